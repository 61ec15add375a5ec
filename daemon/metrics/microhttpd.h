/*
 * microhttpd.h - libmicrohttpd, loaded when metrics are asked for: it brings a TLS library and eight others
 * along, which a daemon without metrics should neither need nor have in its memory.
 */
#ifndef GS_MICROHTTPD_H
#define GS_MICROHTTPD_H

#include <microhttpd.h>

/* X(name after MHD_) */
#define MICROHTTPD_FUNCTIONS(X)                                                                              \
  X(start_daemon)                                                                                            \
  X(stop_daemon)                                                                                             \
  X(run)                                                                                                     \
  X(get_timeout)                                                                                             \
  X(get_daemon_info)                                                                                         \
  X(get_connection_info)                                                                                     \
  X(lookup_connection_value)                                                                                 \
  X(create_response_from_buffer)                                                                             \
  X(add_response_header)                                                                                     \
  X(queue_response)                                                                                          \
  X(suspend_connection)                                                                                      \
  X(resume_connection)                                                                                       \
  X(destroy_response)

struct microhttpd {
#define X(name) __typeof__(&MHD_##name) name;
  MICROHTTPD_FUNCTIONS(X)
#undef X
};

/* NULL, after a line in the log. It stays loaded. */
const struct microhttpd *microhttpd_load(void);

#endif
