/* claim.h - a ResourceClaim of Kubernetes, as far as it is allocated from this node's GPUs: what it says,
 * read from the API server's JSON; and what its containers get, as a CDI spec. Pure. */
#ifndef GS_DRA_CLAIM_H
#define GS_DRA_CLAIM_H

#include <jansson.h>

#include "common/list.h"
#include "kubelet/container.h"
#include "kubelet/health.h"

#define DRIVER_NAME "gpushare.io"
#define CDI_KIND DRIVER_NAME "/claim"

#define CLAIM_UID_SIZE 64
#define CLAIM_NAME_SIZE 256
#define CLAIM_DEVICES_MAX 32 /* as the API has it */
#define CLAIM_PODS_MAX 256   /* likewise */
#define CLAIM_WHY_SIZE 320

/* The name of a GPU as a device: "gpu-", then its UUID. */
#define DEVICE_NAME_SIZE (GS_UUID_TEXT_SIZE + 4)
void device_name(const struct gpu *gpu, char name[DEVICE_NAME_SIZE]);

/* One result of the allocation: a part of a GPU. */
struct claim_device {
  char request[CLAIM_NAME_SIZE];
  const struct gpu *gpu;
  uint64_t memory_bytes; /* 0: nothing is said */
  uint32_t weight;
  uint32_t class; /* enum gs_class, or GS_CLASS_UNSAID */
};

struct claim {
  struct list link;
  json_t *object; /* as the API server has it: all the rest follows from that */
  const char *uid, *namespace, *name;
  bool shared; /* it is no pod's own: pods may come to it */
  char pods[CLAIM_PODS_MAX][GS_POD_SIZE];
  const char *pod_names[CLAIM_PODS_MAX];
  size_t pod_count;
  struct claim_device devices[CLAIM_DEVICES_MAX]; /* of this driver and node */
  size_t device_count;
  bool together;    /* claims_allotment's */
  bool unbound;     /* the daemon has yet to be told what its pods have, */
  bool unnamed;     /* and what they are called */
  bool look_failed; /* the last look at the API server, which has been said */
  bool bind_failed; /* likewise what the daemon was told */
};

/* Of an object, which is kept; GPUs must live as long. NULL and why. From malloc. */
struct claim *claim_read(json_t *object, const char *pool, const struct gpus *gpus, char why[CLAIM_WHY_SIZE]);
void claim_free(struct claim *claim);

/* A uid may be part of a file's name. */
bool claim_uid_is_right(const char *uid);

/* Bytes, or a number, of "8Gi", "1500M", "25" or "500m", rounded up. 0 or -EINVAL. */
int quantity_parse(const char *text, uint64_t *value);

/* The CDI device of the claim's i-th one: the part of its name behind "KIND=". */
void claim_cdi_name(const struct claim *claim, size_t i, char name[CLAIM_NAME_SIZE]);

/* The CDI spec. NULL: no memory. */
json_t *claim_cdi_spec(const struct claim *claim, const struct container_terms *terms);

/* ALLOT: what the pod has of the GPU by the claims of the list; weight 0: nothing. Pods with a claim in
 * common, directly or by others, are a group with one share: the sum of their claims. */
struct gs_msg claims_allotment(const struct list *claims, const char *pod, const struct gpu *gpu);

/* The claim has come, changed or gone: the claims of each group that one of its pods is in become unbound. */
void claims_unbind(const struct list *claims, const struct claim *claim);

#endif
