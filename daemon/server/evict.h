/* evict.h - jobs that lose their place: a person says so, or they have been silent for too long. */
#ifndef GS_EVICT_H
#define GS_EVICT_H

#include "server/daemon.h"

/* The client's connection ends, and its jobs leave their GPUs. Its program may come again as any other. by:
 * who has said so; NULL: nobody. */
void evict_client(struct daemon *daemon, struct peer *client, const struct peer *by, uint64_t now_ns);

/* The job has not stopped within the grace, and others wait for it: it has some more graces for that. */
void evict_watch(struct attachment *attachment, uint64_t now_ns);

/* The job of an evicted client has been detached: so much of its memory is on the card still, until its
 * process ends, or comes back there. */
void evict_leave_bytes(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t bytes,
                       uint64_t now_ns);

/* Before the peer's job is attached to the GPU: what is known of its memory is what it tells. */
void evict_return(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t now_ns);

/* Nobody comes back any more. */
void evict_end(struct daemon *daemon);

uint64_t evict_deadline_ns(const struct daemon *daemon);
void evict_on_time(struct daemon *daemon, uint64_t now_ns);

#endif
