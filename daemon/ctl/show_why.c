/* show_why.c - gpusharectl why JOB. */
#include <stdlib.h>

#include "common/parse.h"
#include "ctl/ctl.h"
#include "ctl/why.h"

static void show(struct why *why, uint32_t job) {
  for (const struct gs_msg *msg = why->msgs; (msg = why_find(why, msg, job)); msg++) {
    why_tell(stdout, why);
    printf("\n");
  }
}

static int answer(const struct request *request, struct why *why, uint32_t job) {
  struct why first = *why;
  if (!why_find(&first, first.msgs, job)) {
    fprintf(stderr, "gpusharectl: no job on a GPU has the number %u: see gpusharectl status\n", job);
    return CTL_REFUSED;
  }
  if (request->json)
    return json_show_why(why, job);
  show(why, job);
  return CTL_OK;
}

int why_command(const struct request *request) {
  struct gs_msg *msgs;
  size_t count;
  int64_t job;
  if (parse_integer(request->words[1], 1, UINT32_MAX, &job) < 0)
    return usage_error("not the number of a job (see gpusharectl status):", request->words[1]);
  int code = fetch_status(request, &msgs, &count);
  if (code != CTL_OK)
    return code;
  code = answer(request, &(struct why){.msgs = msgs, .end = msgs + count}, (uint32_t)job);
  free(msgs);
  return code;
}
