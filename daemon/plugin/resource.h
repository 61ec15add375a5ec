/* resource.h - what the cluster sees: a resource, each of whose devices is a share of a GPU. Pure. */
#ifndef GS_PLUGIN_RESOURCE_H
#define GS_PLUGIN_RESOURCE_H

#include <stdbool.h>

#include "plugin/node_gpus.h"

#define RESOURCE_SHARES_MAX 1000  /* of one GPU */
#define RESOURCE_DEVICES_MAX 4096 /* all in all: the kubelet tells each in one message */

enum placement { PLACEMENT_SPREAD, PLACEMENT_PACK };

/* What is the same for all resources. */
struct terms_of_use {
  const char *socket;         /* the daemon's; its folder is mounted */
  const char *library_folder; /* with libunified.so and ld.so.preload; mounted at the same place */
  enum placement placement;   /* of a container among the GPUs */
  bool apart;                 /* several shares of one container are of several GPUs */
  bool limit_memory;          /* to the part of the GPU's memory that the shares are */
  bool preload_by_env;        /* LD_PRELOAD instead of /etc/ld.so.preload */
  bool visible_by_cdi;        /* CDI devices instead of NVIDIA_VISIBLE_DEVICES */
};

struct resource {
  const char *name;  /* "gpushare.io/gpu" */
  unsigned shares;   /* of each GPU */
  const char *class; /* what its programs are, unless they say so themselves; NULL: nothing is said */
  const struct gpus *gpus;
  const struct terms_of_use *terms;
  const bool *daemon_answers;
};

/* A device is named by its GPU and its number: "GPU-....7". */
#define RESOURCE_ID_SIZE (GS_UUID_TEXT_SIZE + 8)
void resource_format_id(const struct resource *resource, size_t gpu, unsigned share,
                        char id[RESOURCE_ID_SIZE]);

/* 0, or -ENOENT: it has no such device. */
int resource_parse_id(const struct resource *resource, const char *id, size_t *gpu, unsigned *share);

/* Whether programs can be given shares of this GPU now. */
bool resource_healthy(const struct resource *resource, size_t gpu);

#endif
