/* measures.h - what is measured, in three tables: of the daemon, of each GPU, and of each job on a GPU. */
#ifndef GS_MEASURES_H
#define GS_MEASURES_H

#include "metrics/exposition.h"
#include "server/daemon.h"

/* What is looked at. The exposition has its labels. */
struct scene {
  const struct exposition *exposition;
  const struct daemon *daemon;
  const struct sched_gpu *gpu;
  const struct sched_job *job;
  uint64_t now_ns;
};

struct measure {
  struct family family;
  /* One of them: the value of its only sample, or what puts its samples. */
  uint64_t (*value)(const struct scene *scene);
  void (*put)(const struct scene *scene);
};

/* Up to one whose family has no name. */
extern const struct measure measures_of_daemon[], measures_of_gpu[], measures_of_job[];

#endif
