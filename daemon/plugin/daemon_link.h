/* daemon_link.h - whether the daemon is there, and answers. */
#ifndef GS_PLUGIN_DAEMON_LINK_H
#define GS_PLUGIN_DAEMON_LINK_H

#include "plugin/loop.h"

struct daemon_link {
  struct source source; /* a connection, as gpusharectl's; fd -1: none */
  struct timer timer;   /* of the next question, or of giving up the answer to the last one */
  struct loop *loop;
  const char *socket;
  uint64_t interval_ns;   /* between questions */
  bool asked;             /* and not answered */
  uint64_t full_since_ns; /* wire_connect_again_ns */
  bool answers;
  bool refused; /* by a daemon of another version, which has been said */
  void (*on_change)(struct daemon_link *link);
};

/* socket, interval_ns and on_change are set. A daemon that is not there comes later. */
void daemon_link_open(struct daemon_link *link, struct loop *loop);
void daemon_link_close(struct daemon_link *link);

#endif
