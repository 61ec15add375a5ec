/* why.h - what a job does on a GPU, or waits for, in words. */
#ifndef GS_CTL_WHY_H
#define GS_CTL_WHY_H

#include <stdio.h>

#include "ctl/figures.h"

/* A job on a GPU, in the messages of a status, which end at `end`. */
struct why {
  const struct gs_msg *msgs, *end;
  struct gpu_figures gpu;
  struct job_figures job;
};

/* The next one of this job, at or after `from`; the first: from = msgs. NULL: there is no more. */
const struct gs_msg *why_find(struct why *why, const struct gs_msg *from, uint32_t job);

/* A sentence or a few, without a line's end. */
void why_tell(FILE *out, const struct why *why);

#endif
