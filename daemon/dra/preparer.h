/* preparer.h - the claims that are prepared on this node, and the methods by which the kubelet has them
 * prepared. */
#ifndef GS_DRA_PREPARER_H
#define GS_DRA_PREPARER_H

#include "dra/api.h"
#include "dra/store.h"
#include "kubelet/rpc_method.h"

struct preparer {
  const char *node; /* its pool has the same name */
  const struct gpus *gpus;
  struct store store;
  struct api api;
  const char *endpoint; /* the socket's path, as the kubelet has it */
  void (*on_registered)(struct preparer *preparer);
  struct list claims;
};

/* All but claims is set. Knows again what was prepared. 0 or -errno. */
int preparer_open(struct preparer *preparer);
void preparer_close(struct preparer *preparer);

/* The kubelet's Registration and DRAPlugin. */
struct rpc_service preparer_service(struct preparer *preparer);

/* The daemon is told of the claims of which it has not been told yet. Waits for it, some seconds at most. */
void preparer_bind(const struct preparer *preparer);

/* The same for all claims: the daemon may be a new one. */
void preparer_bind_all(const struct preparer *preparer);

/* Pods may have come to claims that pods share, of which the kubelet tells nothing. */
void preparer_look_for_pods(struct preparer *preparer);

#endif
