/* why.h - what a job does on a GPU, or waits for, in words. */
#ifndef GS_CTL_WHY_H
#define GS_CTL_WHY_H

#include "ctl/figures.h"

/* A job on a GPU, in the messages of a status, which end at `end`. */
struct why {
  const struct gs_msg *msgs, *end;
  struct gpu_figures gpu;
  struct job_figures job;
};

/* A sentence or a few, from malloc; NULL: no memory. */
char *why_text(const struct why *why);

#endif
