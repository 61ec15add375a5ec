/* service.h - the methods of the device plugin API, of a resource each of whose devices is a share of a GPU:
 * requests in, answers out, as bytes. Pure. */
#ifndef GS_PLUGIN_SERVICE_H
#define GS_PLUGIN_SERVICE_H

#include "plugin/grpc.h"
#include "plugin/health.h"

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

/* What the cluster sees. */
struct resource {
  const char *name;  /* "gpushare.io/gpu" */
  unsigned shares;   /* of each GPU */
  const char *class; /* what its programs are, unless they say so themselves; NULL: nothing is said */
  const struct gpus *gpus;
  const struct terms_of_use *terms;
  const bool *daemon_answers;
};

/* An answer: on GRPC_OK, the message with its head in front, from malloc. */
struct service_answer {
  struct grpc_result result;
  uint8_t *bytes;
  size_t size;
};

struct service_method;

/* By its path, "/v1beta1.DevicePlugin/Allocate"; NULL: there is none. */
const struct service_method *service_find(const char *path);

/* Its call does not end: what it answers is sent again whenever that changes. */
bool service_lasts(const struct service_method *method);

struct service_answer service_call(const struct service_method *method, const struct resource *resource,
                                   const uint8_t *request, size_t size);

#endif
