/* label.h - how GPUs, jobs and people are called in the log. What is returned is a value:
 * f(label_job(peer).text). */
#ifndef GS_LABEL_H
#define GS_LABEL_H

#include "server/daemon.h"

struct label {
  char text[144];
};

/* "alice (uid 1000, pid 4711, gpusharectl)": the process at the other end. */
struct label label_peer(const struct peer *peer);

/* Likewise, of one that is not connected. */
struct label label_process(uid_t uid, pid_t pid);

/* "job 12 (pid 345, train.py, of bob)" */
struct label label_job(const struct peer *client);

/* "GPU 2 (NVIDIA H200, 0000:65:00.0)", or "GPU 2 (NVIDIA H200, GPU-1a2b3c4d)" where its place is not known;
 * NULL: "all GPUs". */
struct label label_gpu(const struct sched_gpu *gpu);

#endif
