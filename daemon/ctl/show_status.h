/* show_status.h - the daemon's state as JSON, for commands that show it, or a part of it; and, of a job, in
 * words. */
#ifndef GS_CTL_SHOW_STATUS_H
#define GS_CTL_SHOW_STATUS_H

#include <jansson.h>

#include "ctl/ctl.h"
#include "ctl/figures.h"

/* Of messages that end at `end`, as of ask_try_status. */
json_t *status_json(const struct gs_msg *msgs, const struct gs_msg *end);

/* Of a STATUS_WAIT: what a job does or waits for. */
void status_put_wait(json_t *object, const struct gs_msg *wait);

/* ---- show_plan.c ---- */

/* Of a STATUS_WAIT: the rule that gives a job its seat among those that run, or denies it: for programs, for
 * people ("has a seat"); and that with what the plan has for it, as JSON. */
const char *plan_rule_name(const struct gs_msg *wait);
const char *plan_rule_text(const struct gs_msg *wait);
bool plan_denies(const struct gs_msg *wait);
void plan_put(json_t *object, const struct gs_msg *wait);

/* ---- why.c ---- */

/* A job on a GPU, in the messages of a status, which end at `end`. */
struct why {
  const struct gs_msg *msgs, *end;
  struct gpu_figures gpu;
  struct job_figures job;
};

/* A sentence or a few, from malloc; NULL: no memory. */
char *why_text(const struct why *why);

#endif
