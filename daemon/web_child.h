/* web_child.h - the page for browsers: its socket is the daemon's, and gpushare-web, a child without rights,
 * serves it. */
#ifndef GS_WEB_CHILD_H
#define GS_WEB_CHILD_H

#include "server/listen.h"

/* All zero: there is none. */
struct web_child {
  bool shown;
  struct listener listener;
  const char *socket; /* the daemon's own */
  pid_t pid;          /* 0: it has ended too soon, and there is no page until web_child_show shows it anew */
  uint64_t begun_ns;
};

/* At this address (ADDRESS_OFF: nowhere) from now on. What fails is told in the log, and the daemon does
 * without. socket: the path of the daemon's own; it outlives this. */
void web_child_show(struct web_child *web, const char *address, const char *socket);

/* A child has ended, which may have been this one: there is another one, unless it has ended at once. */
void web_child_on_child(struct web_child *web);

/* The child is ended, and the address given up. */
void web_child_end(struct web_child *web);

#endif
