/* grpc.c - gRPC's framing: one byte that says whether a message is compressed, four of length, the message.
 * And what is between a non-blocking socket and an nghttp2 session. */
#include "plugin/grpc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ROOM_FIRST 256

void grpc_write_head(uint8_t head[GRPC_HEAD_SIZE], uint32_t size) {
  head[0] = 0;
  for (int i = 0; i < 4; i++)
    head[1 + i] = (uint8_t)(size >> (24 - 8 * i));
}

static size_t announced_size(const struct grpc_reader *reader) {
  size_t size = 0;
  for (int i = 0; i < 4; i++)
    size = size << 8 | reader->head[1 + i];
  return size;
}

static struct grpc_result check_head(const struct grpc_reader *reader) {
  if (reader->head[0] == 1)
    return (struct grpc_result){GRPC_UNIMPLEMENTED, "compressed messages are not taken"};
  if (reader->head[0] != 0)
    return (struct grpc_result){GRPC_INTERNAL, "not a gRPC message"};
  if (announced_size(reader) > GRPC_MESSAGE_MAX)
    return (struct grpc_result){GRPC_RESOURCE_EXHAUSTED, "the message is too long"};
  return (struct grpc_result){0};
}

/* False: no memory. */
static bool make_room(struct grpc_reader *reader, size_t more) {
  size_t room = reader->room ? reader->room : ROOM_FIRST;
  while (room < reader->size + more)
    room *= 2;
  uint8_t *grown = room == reader->room ? reader->message : realloc(reader->message, room);
  if (!grown)
    return false;
  reader->message = grown;
  reader->room = room;
  return true;
}

struct grpc_result grpc_reader_add(struct grpc_reader *reader, const uint8_t *bytes, size_t size) {
  if (size == 0)
    return (struct grpc_result){0};
  size_t lacking = GRPC_HEAD_SIZE - reader->head_size, taken = size < lacking ? size : lacking;
  memcpy(reader->head + reader->head_size, bytes, taken);
  reader->head_size += taken;
  bytes += taken;
  size -= taken;
  if (reader->head_size < GRPC_HEAD_SIZE)
    return (struct grpc_result){0};
  struct grpc_result result = check_head(reader);
  if (result.status != GRPC_OK)
    return result;
  if (size > announced_size(reader) - reader->size)
    return (struct grpc_result){GRPC_INTERNAL, "more than one message"};
  if (size == 0)
    return (struct grpc_result){0};
  if (!make_room(reader, size))
    return (struct grpc_result){GRPC_RESOURCE_EXHAUSTED, "out of memory"};
  memcpy(reader->message + reader->size, bytes, size);
  reader->size += size;
  return (struct grpc_result){0};
}

struct grpc_result grpc_reader_end(const struct grpc_reader *reader) {
  if (reader->head_size < GRPC_HEAD_SIZE || reader->size < announced_size(reader))
    return (struct grpc_result){GRPC_INTERNAL, "the message is not whole"};
  return (struct grpc_result){0};
}

void grpc_reader_free(struct grpc_reader *reader) {
  free(reader->message);
  *reader = (struct grpc_reader){0};
}

/* ---- HTTP/2 ---- */

#define CHUNK 16384
#define CHUNKS_PER_TURN 16

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

int h2_pump(struct h2 *h2) {
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

uint32_t h2_events(const struct h2 *h2) { return h2->out_size ? EPOLLOUT : EPOLLIN; }
