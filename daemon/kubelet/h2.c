/* h2.c - moves bytes between a socket and an nghttp2 session. */
#include "kubelet/h2.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>

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
