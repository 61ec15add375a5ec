/* rpc_listener.h - a socket that answers for a service: its file, and the connections to it. */
#ifndef GS_KUBELET_RPC_LISTENER_H
#define GS_KUBELET_RPC_LISTENER_H

#include <sys/stat.h>
#include <sys/un.h>

#include "kubelet/loop.h"
#include "kubelet/rpc_method.h"

struct rpc_listener {
  struct loop *loop;
  struct rpc_service service;
  const char *label;    /* in the log */
  uint64_t patience_ns; /* with a connection that has no call answered, and none that lasts; LOOP_NEVER */
  void (*on_watched)(struct rpc_listener *listener); /* `watched` has changed; NULL: nobody asks */
  bool watched;                                      /* a lasting call is open */
  struct source source;                              /* fd -1: it does not listen */
  struct sockaddr_un address;
  struct stat identity; /* of the file */
  struct list connections;
  unsigned connection_count;
};

/* All down to on_watched is set. Listens at FOLDER/NAME, in place of what is there. 0, or -errno after a line
 * in the log. */
int rpc_listener_open(struct rpc_listener *listener, const char *folder, const char *name);
void rpc_listener_close(struct rpc_listener *listener);

/* Listens again if somebody has removed the file; connections stay. 1: so it was. 0: the file is in place.
 * -errno after a line in the log. */
int rpc_listener_renew(struct rpc_listener *listener);

/* What lasting calls answer has changed. */
void rpc_listener_refresh(struct rpc_listener *listener);

#endif
