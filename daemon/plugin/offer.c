/* offer.c - keeps a resource registered: whatever the kubelet forgets of it, it is told again. Listens,
 * accepts, and ends connections of which nothing is to be expected. */
#include "plugin/offer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "deviceplugin.pb-c.h"
#include "plugin/rpc_server.h"

#define CHUNK 16384
#define CHUNKS_PER_TURN 16
#define CONNECTIONS_MAX 8
#define BACKLOG 16
#define PATIENCE_NS (60 * NS_PER_S) /* without an answered call, unless somebody watches */
/* A kubelet that is told again of a resource watches the new connection before or after it ends the old one.
 */
#define UNWATCHED_NS (5 * NS_PER_S)

#define API_VERSION "v1beta1"
#define CALL_PATIENCE_NS                                                                                     \
  (15 * NS_PER_S) /* the kubelet connects to us before it answers, for which it takes up to 10 s */
#define PAUSE_FIRST_NS (NS_PER_S / 2)
#define PAUSE_DOUBLINGS 6 /* up to 32 s */

struct connection {
  struct source source;
  struct timer timer;
  struct list link;
  struct offer *offer;
  struct h2 h2;
  struct rpc_server server;
  uint64_t calls_seen;
};

/* ---- HTTP/2, between a non-blocking socket and an nghttp2 session ---- */

/* The next bytes to send, into out; none: the session has nothing to say. */
static int take_output(struct h2 *h2) {
  ssize_t size = nghttp2_session_mem_send(h2->session, &h2->out);
  if (size < 0)
    return size == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
  h2->out_size = (size_t)size;
  return 0;
}

/* 0 as long as it lives, also when the socket takes no more. */
static int send_output(struct h2 *h2) {
  for (;;) {
    int err = h2->out_size ? 0 : take_output(h2);
    if (err < 0 || h2->out_size == 0)
      return err;
    ssize_t sent = send(h2->fd, h2->out, h2->out_size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return errno == EAGAIN ? 0 : -errno;
    h2->out += sent;
    h2->out_size -= (size_t)sent;
  }
}

/* 0: there is no more for now. 1: there may be more. */
static int receive_chunk(struct h2 *h2) {
  uint8_t chunk[CHUNK];
  ssize_t size = recv(h2->fd, chunk, sizeof chunk, MSG_DONTWAIT);
  if (size < 0)
    return errno == EAGAIN || errno == EINTR ? 0 : -errno;
  if (size == 0)
    return -ECONNRESET;
  ssize_t taken = nghttp2_session_mem_recv(h2->session, chunk, (size_t)size);
  if (taken < 0)
    return taken == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
  return 1;
}

/* Read what there is, and send what follows from it. Who does not read what we send is not read from. 0; or
 * -errno: the connection is over: -ECONNRESET, -EPROTO (not HTTP/2), or the socket's error. */
static int h2_pump(struct h2 *h2) {
  int result = send_output(h2);
  for (int i = 0; i < CHUNKS_PER_TURN && result == 0 && h2->out_size == 0; i++) {
    result = receive_chunk(h2);
    if (result < 0)
      break;
    bool more = result > 0;
    result = send_output(h2);
    if (!more)
      break;
  }
  bool over = !nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session);
  return result == 0 && over && h2->out_size == 0 ? -ECONNRESET : result;
}

/* What to wait for, as epoll has it. */
static uint32_t h2_events(const struct h2 *h2) { return h2->out_size ? EPOLLOUT : EPOLLIN; }

/* ---- connections ---- */

/* The kubelet takes a resource that it does not watch for gone. */
static void look_for_watchers(struct offer *offer) {
  bool watched = false;
  list_each(node, &offer->connections) {
    watched |= list_entry(node, struct connection, link)->server.watches > 0;
  }
  if (watched == offer->watched)
    return;
  offer->watched = watched;
  offer->unwatched.due_ns = watched ? LOOP_NEVER : clock_now_ns() + UNWATCHED_NS;
}

static void close_connection(struct connection *connection) {
  struct offer *offer = connection->offer;
  loop_remove_timer(&connection->timer);
  loop_remove(offer->loop, &connection->source);
  list_remove(&connection->link);
  offer->connection_count--;
  rpc_server_close(&connection->server);
  free(connection);
  look_for_watchers(offer);
}

/* May end the connection. */
static void pump(struct connection *connection) {
  int err = h2_pump(&connection->h2);
  if (err < 0) {
    log_debug("%s: a connection ends: %s", connection->offer->resource.name, strerror(-err));
    close_connection(connection);
    return;
  }
  loop_change(connection->offer->loop, &connection->source, h2_events(&connection->h2));
  if (connection->server.watches > 0) {
    connection->timer.due_ns = LOOP_NEVER;
  } else if (connection->timer.due_ns == LOOP_NEVER || connection->server.ended != connection->calls_seen) {
    connection->timer.due_ns = clock_now_ns() + PATIENCE_NS;
    connection->calls_seen = connection->server.ended;
  }
  look_for_watchers(connection->offer);
}

static void on_connection(struct source *source, uint32_t events) {
  (void)events;
  pump(list_entry(source, struct connection, source));
}

static void on_patience_over(struct timer *timer, uint64_t now_ns) {
  struct connection *connection = list_entry(timer, struct connection, timer);
  (void)now_ns;
  log_info("%s: a connection without calls is closed", connection->offer->resource.name);
  close_connection(connection);
}

/* Takes the descriptor in any case. 0 or -errno. */
static int add_connection(struct offer *offer, int fd) {
  struct connection *connection =
      offer->connection_count < CONNECTIONS_MAX ? calloc(1, sizeof *connection) : NULL;
  int err = connection ? rpc_server_open(&connection->server, &offer->resource) : -ENOMEM;
  if (err < 0) {
    free(connection);
    close(fd);
    return offer->connection_count < CONNECTIONS_MAX ? err : -EMFILE;
  }
  connection->offer = offer;
  connection->source = (struct source){.fd = fd, .on_event = on_connection};
  connection->h2 = (struct h2){.fd = fd, .session = connection->server.session};
  connection->timer = (struct timer){.due_ns = LOOP_NEVER, .on_due = on_patience_over};
  list_append(&offer->connections, &connection->link);
  loop_add_timer(offer->loop, &connection->timer);
  offer->connection_count++;
  err = loop_add(offer->loop, &connection->source, EPOLLIN);
  if (err < 0)
    close_connection(connection);
  else
    pump(connection);
  return err;
}

/* ---- the socket ---- */

static void on_listener(struct source *source, uint32_t events) {
  struct offer *offer = list_entry(source, struct offer, listener);
  (void)events;
  int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  int err = fd < 0 ? 0 : add_connection(offer, fd);
  if (err < 0)
    log_warn("%s: a connection is refused: %s", offer->resource.name, strerror(-err));
}

/* For root alone, as the kubelet's folder is. A kubelet that starts just now may remove the file at once:
 * then it is not in place, and the folder's event tells. */
static int try_listen(struct offer *offer) {
  const char *path = offer->address.sun_path;
  if (unlink(path) < 0 && errno != ENOENT)
    return -errno;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  mode_t before = umask(0077);
  int err = bind(fd, (const struct sockaddr *)&offer->address, sizeof offer->address) < 0 ? -errno : 0;
  umask(before);
  offer->identity = (struct stat){0};
  if (err == 0 && (listen(fd, BACKLOG) < 0 || (lstat(path, &offer->identity) < 0 && errno != ENOENT)))
    err = -errno;
  offer->listener.fd = fd;
  if (err == 0)
    err = loop_add(offer->loop, &offer->listener, EPOLLIN);
  if (err < 0)
    loop_remove(offer->loop, &offer->listener);
  return err;
}

static int open_listener(struct offer *offer) {
  int err = try_listen(offer);
  if (err < 0)
    log_error("can't listen on %s: %s", offer->address.sun_path, strerror(-err));
  return err;
}

static bool is_in_place(const struct offer *offer) {
  struct stat now;
  return offer->listener.fd >= 0 && lstat(offer->address.sun_path, &now) == 0 &&
         now.st_dev == offer->identity.st_dev && now.st_ino == offer->identity.st_ino;
}

/* ---- the registration: gRPC over HTTP/2, the side that asks; what is answered but the status does not
 * matter ----
 */

static void end_call(struct registration *registration) {
  loop_remove(registration->loop, &registration->source);
  nghttp2_session_del(registration->h2.session);
  registration->h2 = (struct h2){.fd = -1};
}

/* Later again. */
static void fail(struct registration *registration, const char *why, const char *text) {
  const char *gap = *text ? ": " : "";
  if (registration->failures == 0)
    log_warn("%s is not registered yet: %s%s%s", registration->resource, why, gap, text);
  else
    log_debug("%s is still not registered: %s%s%s", registration->resource, why, gap, text);
  end_call(registration);
  registration->timer.due_ns = clock_now_ns() + (PAUSE_FIRST_NS << registration->failures);
  registration->failures += registration->failures < PAUSE_DOUBLINGS;
}

static void on_answer(struct source *source, uint32_t events) {
  struct registration *registration = list_entry(source, struct registration, source);
  (void)events;
  int err = h2_pump(&registration->h2);
  if (registration->ended && registration->status == GRPC_OK) {
    end_call(registration);
    registration->failures = 0;
    registration->timer.due_ns = LOOP_NEVER;
    log_info("%s is registered", registration->resource);
  } else if (registration->ended && registration->status > GRPC_OK) {
    fail(registration, "the kubelet refuses it", registration->text);
  } else if (err < 0 || registration->ended) {
    fail(registration, strerror(err < 0 ? -err : EPROTO), "");
  } else {
    loop_change(registration->loop, source, h2_events(&registration->h2));
  }
}

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *context) {
  struct registration *registration = context;
  size_t left = registration->size - registration->sent, now = left < room ? left : room;
  (void)session, (void)stream, (void)source;
  memcpy(to, registration->body + registration->sent, now);
  registration->sent += now;
  if (registration->sent == registration->size)
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
  struct registration *registration = context;
  char number[8];
  (void)session, (void)frame, (void)flags;
  copy_value(number, sizeof number, value, value_size);
  if (name_size == 11 && memcmp(name, "grpc-status", 11) == 0 &&
      parse_integer(number, 0, 9999, &registration->status) != 0)
    registration->status = -1;
  else if (name_size == 12 && memcmp(name, "grpc-message", 12) == 0)
    copy_value(registration->text, sizeof registration->text, value, value_size);
  return 0;
}

static int on_stream_closed(nghttp2_session *session, int32_t stream, uint32_t code, void *context) {
  (void)session, (void)stream, (void)code;
  ((struct registration *)context)->ended = true;
  return 0;
}

static int write_body(struct registration *registration) {
  static char version[] = API_VERSION;
  V1beta1__DevicePluginOptions options;
  V1beta1__RegisterRequest request;
  v1beta1__register_request__init(&request);
  v1beta1__device_plugin_options__init(&options);
  options.get_preferred_allocation_available = true;
  request.version = version;
  request.endpoint = (char *)(uintptr_t)registration->endpoint;
  request.resource_name = (char *)(uintptr_t)registration->resource;
  request.options = &options;
  size_t size = v1beta1__register_request__get_packed_size(&request);
  if (size > sizeof registration->body - GRPC_HEAD_SIZE)
    return -EMSGSIZE;
  grpc_write_head(registration->body, (uint32_t)size);
  v1beta1__register_request__pack(&request, registration->body + GRPC_HEAD_SIZE);
  registration->size = GRPC_HEAD_SIZE + size;
  return 0;
}

static int open_session(struct registration *registration) {
  nghttp2_session_callbacks *callbacks;
  if (nghttp2_session_callbacks_new(&callbacks) != 0)
    return -ENOMEM;
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_closed);
  int err = nghttp2_session_client_new(&registration->h2.session, callbacks, registration);
  nghttp2_session_callbacks_del(callbacks);
  if (err != 0)
    return -ENOMEM;
  nghttp2_nv headers[] = {
      H2_HEADER(":method", "POST"),
      H2_HEADER(":scheme", "http"),
      H2_HEADER(":path", "/" API_VERSION ".Registration/Register"),
      H2_HEADER(":authority", "localhost"),
      H2_HEADER("content-type", "application/grpc"),
      H2_HEADER("te", "trailers"),
      H2_HEADER("user-agent", "gpushare-device-plugin/" GPUSHARE_VERSION),
  };
  nghttp2_session *session = registration->h2.session;
  nghttp2_settings_entry no_push = {NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
  nghttp2_data_provider body = {.read_callback = read_body};
  if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &no_push, 1) != 0 ||
      nghttp2_submit_request(session, NULL, headers, sizeof headers / sizeof *headers, &body, NULL) < 0)
    return -ENOMEM;
  return 0;
}

/* The events come when the socket is writable. */
static int open_socket(struct registration *registration) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(registration->kubelet_socket) >= sizeof address.sun_path)
    return -ENAMETOOLONG;
  strcpy(address.sun_path, registration->kubelet_socket);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  registration->source.fd = registration->h2.fd = fd;
  if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
    return -errno;
  return loop_add(registration->loop, &registration->source, EPOLLOUT);
}

static void try_now(struct registration *registration) {
  end_call(registration);
  registration->status = -1;
  registration->ended = false;
  registration->sent = 0;
  *registration->text = '\0';
  int err = write_body(registration);
  if (err == 0)
    err = open_session(registration);
  if (err == 0)
    err = open_socket(registration);
  if (err < 0)
    fail(registration, "can't reach the kubelet", strerror(-err));
  else
    registration->timer.due_ns = clock_now_ns() + CALL_PATIENCE_NS;
}

static void on_try_due(struct timer *timer, uint64_t now_ns) {
  struct registration *registration = list_entry(timer, struct registration, timer);
  (void)now_ns;
  if (registration->h2.session)
    fail(registration, "the kubelet does not answer", "");
  else
    try_now(registration);
}

static void registration_open(struct registration *registration, struct loop *loop,
                              const char *kubelet_socket, const char *endpoint, const char *resource) {
  *registration = (struct registration){.loop = loop,
                                        .kubelet_socket = kubelet_socket,
                                        .endpoint = endpoint,
                                        .resource = resource,
                                        .source = {.fd = -1, .on_event = on_answer},
                                        .h2.fd = -1,
                                        .timer = {.due_ns = LOOP_NEVER, .on_due = on_try_due}};
  loop_add_timer(loop, &registration->timer);
}

static void registration_begin(struct registration *registration) {
  registration->failures = 0;
  try_now(registration);
}

static void registration_close(struct registration *registration) {
  loop_remove_timer(&registration->timer);
  end_call(registration);
}

/* ---- the offer ---- */

/* Listens again if somebody has removed the file, as a kubelet that starts does. Connections stay. */
void offer_renew(struct offer *offer, bool kubelet) {
  bool in_place = is_in_place(offer);
  if (!in_place) {
    loop_remove(offer->loop, &offer->listener);
    if (open_listener(offer) < 0)
      return;
  }
  if (kubelet || !in_place)
    registration_begin(&offer->registration);
}

static void on_unwatched(struct timer *timer, uint64_t now_ns) {
  struct offer *offer = list_entry(timer, struct offer, unwatched);
  timer->due_ns = now_ns + UNWATCHED_NS;
  if (offer->registration.timer.due_ns != LOOP_NEVER)
    return; /* it is under way, or tried again later */
  log_warn("%s is not watched by the kubelet", offer->resource.name);
  offer_renew(offer, true);
}

void offer_refresh(struct offer *offer) {
  struct list *node = offer->connections.next, *next;
  for (; node != &offer->connections; node = next) {
    struct connection *connection = list_entry(node, struct connection, link);
    next = node->next;
    rpc_server_refresh(&connection->server);
    pump(connection);
  }
}

int offer_open(struct offer *offer, struct loop *loop, const char *folder, const char *kubelet_socket) {
  char *path = offer->address.sun_path;
  offer->loop = loop;
  offer->address.sun_family = AF_UNIX;
  offer->listener = (struct source){.fd = -1, .on_event = on_listener};
  list_init(&offer->connections);
  if (snprintf(path, sizeof offer->address.sun_path, "%s/%s", folder, offer->socket_name) >=
      (int)sizeof offer->address.sun_path)
    return -ENAMETOOLONG;
  int err = open_listener(offer);
  if (err < 0)
    return err;
  registration_open(&offer->registration, loop, kubelet_socket, offer->socket_name, offer->resource.name);
  offer->unwatched = (struct timer){.due_ns = clock_now_ns() + UNWATCHED_NS, .on_due = on_unwatched};
  loop_add_timer(loop, &offer->unwatched);
  offer_renew(offer, true);
  return 0;
}

void offer_close(struct offer *offer) {
  registration_close(&offer->registration);
  while (!list_empty(&offer->connections))
    close_connection(list_entry(list_first(&offer->connections), struct connection, link));
  if (is_in_place(offer))
    unlink(offer->address.sun_path);
  loop_remove(offer->loop, &offer->listener);
  loop_remove_timer(&offer->unwatched);
}
