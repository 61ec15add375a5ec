/* rpc_client.c - gRPC over HTTP/2, the side that asks. What is answered but the status does not matter here.
 */
#include "plugin/rpc_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/parse.h"
#include "plugin/grpc.h"
#include "plugin/h2.h"

#define STATUS_NONE (-1)

struct rpc_client {
  struct source source;
  struct loop *loop;
  struct h2 h2;
  rpc_client_done *done;
  void *owner;
  int64_t status; /* gRPC's; STATUS_NONE: none has come */
  char text[RPC_CLIENT_TEXT_SIZE];
  bool ended;
  size_t size, sent; /* of the body */
  uint8_t body[];
};

/* ---- what nghttp2 tells and asks ---- */

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *context) {
  struct rpc_client *client = context;
  size_t left = client->size - client->sent, now = left < room ? left : room;
  (void)session;
  (void)stream;
  (void)source;
  memcpy(to, client->body + client->sent, now);
  client->sent += now;
  if (client->sent == client->size)
    *flags |= NGHTTP2_DATA_FLAG_EOF;
  return (ssize_t)now;
}

static void copy_value(char *to, size_t room, const uint8_t *value, size_t size) {
  size_t length = size < room ? size : room - 1;
  memcpy(to, value, length);
  to[length] = '\0';
}

/* Of headers and trailers alike. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
  struct rpc_client *client = context;
  char number[8];
  (void)session;
  (void)frame;
  (void)flags;
  copy_value(number, sizeof number, value, value_size);
  if (name_size == 11 && memcmp(name, "grpc-status", 11) == 0 &&
      parse_integer(number, 0, 9999, &client->status) != 0)
    client->status = STATUS_NONE;
  else if (name_size == 12 && memcmp(name, "grpc-message", 12) == 0)
    copy_value(client->text, sizeof client->text, value, value_size);
  return 0;
}

static int on_stream_closed(nghttp2_session *session, int32_t stream, uint32_t code, void *context) {
  struct rpc_client *client = context;
  (void)session;
  (void)stream;
  (void)code;
  client->ended = true;
  return 0;
}

/* ---- the call ---- */

static void on_event(struct source *source, uint32_t events) {
  struct rpc_client *client = list_entry(source, struct rpc_client, source);
  (void)events;
  int err = h2_pump(&client->h2);
  if (client->ended && client->status != STATUS_NONE)
    client->done(client->owner, (int)client->status, client->text);
  else if (err < 0 || client->ended)
    client->done(client->owner, err < 0 ? err : -EPROTO, "");
  else
    loop_change(client->loop, source, h2_events(&client->h2));
}

static int open_session(struct rpc_client *client) {
  nghttp2_session_callbacks *callbacks;
  if (nghttp2_session_callbacks_new(&callbacks) != 0)
    return -ENOMEM;
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_closed);
  int err = nghttp2_session_client_new(&client->h2.session, callbacks, client);
  nghttp2_session_callbacks_del(callbacks);
  return err ? -ENOMEM : 0;
}

static int submit_call(struct rpc_client *client, const char *path) {
  nghttp2_nv headers[] = {
      H2_HEADER(":method", "POST"),
      H2_HEADER(":scheme", "http"),
      H2_HEADER(":path", path),
      H2_HEADER(":authority", "localhost"),
      H2_HEADER("content-type", "application/grpc"),
      H2_HEADER("te", "trailers"),
      H2_HEADER("user-agent", "gpushare-device-plugin/" GPUSHARE_VERSION),
  };
  nghttp2_settings_entry no_push = {NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
  nghttp2_data_provider body = {.read_callback = read_body};
  if (nghttp2_submit_settings(client->h2.session, NGHTTP2_FLAG_NONE, &no_push, 1) != 0)
    return -ENOMEM;
  int32_t stream = nghttp2_submit_request(client->h2.session, NULL, headers, sizeof headers / sizeof *headers,
                                          &body, NULL);
  return stream < 0 ? -ENOMEM : 0;
}

static int connect_to(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path)
    return -ENAMETOOLONG;
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
    return fd;
  int err = -errno;
  close(fd);
  return err;
}

/* The session and the socket; the events come when that is writable. */
static int begin(struct rpc_client *client, const char *socket, const char *path) {
  int err = open_session(client);
  if (err == 0)
    err = submit_call(client, path);
  if (err < 0)
    return err;
  int fd = connect_to(socket);
  if (fd < 0)
    return fd;
  client->source.fd = client->h2.fd = fd;
  return loop_add(client->loop, &client->source, EPOLLOUT);
}

struct rpc_client *rpc_client_open(struct loop *loop, const char *socket, const char *path,
                                   const uint8_t *message, size_t size, rpc_client_done *done, void *owner,
                                   int *err) {
  struct rpc_client *client = calloc(1, sizeof *client + GRPC_HEAD_SIZE + size);
  if (!client) {
    *err = -ENOMEM;
    return NULL;
  }
  client->source = (struct source){.fd = -1, .on_event = on_event};
  client->loop = loop;
  client->done = done;
  client->owner = owner;
  client->status = STATUS_NONE;
  client->size = GRPC_HEAD_SIZE + size;
  grpc_write_head(client->body, (uint32_t)size);
  memcpy(client->body + GRPC_HEAD_SIZE, message, size);
  *err = begin(client, socket, path);
  if (*err == 0)
    return client;
  rpc_client_close(client);
  return NULL;
}

void rpc_client_close(struct rpc_client *client) {
  loop_remove(client->loop, &client->source);
  nghttp2_session_del(client->h2.session);
  free(client);
}
