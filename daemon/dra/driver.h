/* driver.h - the claims that are prepared on this node, and the methods by which the kubelet has them
 * prepared. */
#ifndef GS_DRA_DRIVER_H
#define GS_DRA_DRIVER_H

#include "dra/api.h"
#include "dra/store.h"
#include "kubelet/rpc_method.h"

struct driver {
  const char *node; /* its pool has the same name */
  const struct gpus *gpus;
  struct store store;
  struct api api;
  const char *endpoint; /* the socket's path, as the kubelet has it */
  void (*on_registered)(struct driver *driver);
  struct list claims;
};

/* All but claims is set. Knows again what was prepared. 0 or -errno. */
int driver_open(struct driver *driver);
void driver_close(struct driver *driver);

/* The kubelet's Registration and DRAPlugin. */
struct rpc_service driver_service(struct driver *driver);

/* The daemon is told of all that has been prepared: it may be a new one. */
void driver_allot_all(struct driver *driver);

/* Pods may have come to claims that pods share, of which the kubelet tells nothing. */
void driver_look_for_pods(struct driver *driver);

#endif
