/* h2.h - an HTTP/2 session over a socket: what both sides have in common. */
#ifndef GS_PLUGIN_H2_H
#define GS_PLUGIN_H2_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A header with a name and a value that live as long as the submission. */
#define H2_HEADER(name_text, value_text)                                                                     \
  ((nghttp2_nv){.name = (uint8_t *)(uintptr_t)(name_text),                                                   \
                .namelen = strlen(name_text),                                                                \
                .value = (uint8_t *)(uintptr_t)(value_text),                                                 \
                .valuelen = strlen(value_text),                                                              \
                .flags = NGHTTP2_NV_FLAG_NONE})

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
