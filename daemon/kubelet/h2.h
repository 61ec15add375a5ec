/* h2.h - HTTP/2, between a non-blocking socket and an nghttp2 session. */
#ifndef GS_KUBELET_H2_H
#define GS_KUBELET_H2_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>

/* Begins with descriptor and session, which stay the owner's, and no bytes that wait to be sent. */
struct h2 {
  int fd;
  nghttp2_session *session;
  const uint8_t *out;
  size_t out_size;
};

/* Read what there is, and send what follows from it. Who does not read what we send is not read from. 0; or
 * -errno: the connection is over: -ECONNRESET, -EPROTO (not HTTP/2), or the socket's error. */
int h2_pump(struct h2 *h2);

/* What to wait for, as epoll has it. */
uint32_t h2_events(const struct h2 *h2);

#endif
