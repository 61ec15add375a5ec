/* service.h - the methods of the device plugin API, of a resource each of whose devices is a share of a GPU:
 * requests in, answers out, as bytes. Pure. */
#ifndef GS_PLUGIN_SERVICE_H
#define GS_PLUGIN_SERVICE_H

#include "kubelet/container.h"
#include "kubelet/health.h"
#include "kubelet/rpc_method.h"

#define RESOURCE_SHARES_MAX 1000  /* of one GPU */
#define RESOURCE_DEVICES_MAX 4096 /* all in all: the kubelet tells each in one message */

enum placement { PLACEMENT_SPREAD, PLACEMENT_PACK };

/* What is the same for all resources. */
struct terms_of_use {
  const struct container_terms *container;
  enum placement placement; /* of a container among the GPUs */
  bool apart;               /* several shares of one container are of several GPUs */
  bool limit_memory;        /* to the part of the GPU's memory that the shares are */
  bool visible_by_cdi;      /* CDI devices instead of NVIDIA_VISIBLE_DEVICES */
};

/* What the cluster sees. */
struct resource {
  const char *name;  /* "gpushare.io/gpu" */
  unsigned shares;   /* of each GPU */
  const char *class; /* what its programs are, unless they say so themselves; NULL: nothing is said */
  const struct gpus *gpus;
  const struct terms_of_use *terms;
  const bool *daemon_answers;
};

/* The methods of the API, of this resource, which must live as long. */
struct rpc_service service_of(struct resource *resource);

#endif
