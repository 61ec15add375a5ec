/* shares.h - whose share of a GPU a job counts with: its pod's if that has been allotted one, else its
 * user's.
 *
 * What a pod is, its processes' control groups say (process.h): no program names its own. Allotments are told
 * by somebody who may change settings, and told again to a daemon that is started anew. */
#ifndef GS_SHARES_H
#define GS_SHARES_H

#include <stdbool.h>

#include "core/scheduler.h"

struct daemon;
struct peer;

/* More than the pods of a host have GPUs. */
#define ALLOTMENTS_MAX 4096

void shares_end(struct daemon *daemon);

/* That of the peer's jobs on this GPU. NULL: no memory. */
struct sched_share *shares_provide(const struct daemon *daemon, struct sched_gpu *gpu,
                                   const struct peer *peer);

/* Those without jobs go, but for those whose jobs others have waited for: nobody gets out of that by ending
 * them. */
void shares_leave(struct sched_gpu *gpu);

/* In the numbers of shares: it is of pods, and so not by a user's limits. Users have 32 bits. */
#define SHARE_OF_PODS (UINT64_C(1) << 63)
static inline bool share_is_allotted(const struct sched_share *share) { return share->user & SHARE_OF_PODS; }

/* The peer has registered: its pod's class is its own, whatever it declares. */
void shares_on_register(struct daemon *daemon, struct peer *peer);

/* NULL, or what is wrong with an ALLOT. */
const char *shares_wrong(const struct gs_msg *msg);

/* POD_NAMESPACE and POD_NAME. Of a pod that has no allotment they change nothing. */
void shares_name_pod(struct daemon *daemon, const struct gs_msg *msg);

/* Of the peer's pod, as far as it is known by what it has been allotted of the GPU; "". */
struct pod_names {
  const char *namespace, *name;
};
struct pod_names shares_pod_names(const struct daemon *daemon, const struct sched_gpu *gpu,
                                  const struct peer *peer);

/* ALLOT, which is not wrong: it counts for jobs that are there, too. 0, -ENOMEM or -ENOSPC. */
int shares_allot(struct daemon *daemon, const struct gs_msg *msg, uint64_t now_ns);

#endif
