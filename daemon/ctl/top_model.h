/* top_model.h - gpusharectl top: what is shown of GPUs and jobs, from one status and the one before. Pure. */
#ifndef GS_CTL_TOP_MODEL_H
#define GS_CTL_TOP_MODEL_H

#include <stddef.h>

#include "ctl/figures.h"

struct top_gpu {
  struct gpu_figures figures;
  uint64_t card_bytes, away_bytes; /* of its jobs: on the card, and not */
  bool rated;                      /* since the status before: */
  double handovers_per_s, moved_per_s;
  double lost_share; /* of the time, in hand-overs */
};

struct top_job {
  struct job_figures figures;
  const struct top_gpu *gpu;
  char user[32], from[FIGURES_FROM_SIZE];
  uint64_t away_bytes;
  bool waits_for_room;
  bool rated;                      /* since the status before: */
  double held_share, waited_share; /* of the time */
};

struct top_model {
  struct gs_msg *msgs; /* all others point there */
  const struct gs_msg *end;
  const struct gs_msg *daemon; /* STATUS_DAEMON; NULL: nothing is known */
  struct top_gpu *gpus;
  struct top_job *jobs; /* in the order of their GPUs */
  size_t gpu_count, job_count;
};

/* Of a daemon's whole answer, which it takes over (from malloc). `before`: an earlier one, perhaps of another
 * daemon, or an empty one. 0 or -ENOMEM, and *model is empty. */
int top_model_make(struct top_model *model, struct gs_msg *msgs, size_t count,
                   const struct top_model *before);

/* It is empty then. */
void top_model_clear(struct top_model *model);

#endif
