/* plan.c - gpusharectl run, for many jobs: what is asked for becomes a plan. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gang_name.h"
#include "common/parse.h"
#include "ctl/ctl.h"
#include "ctl/sweep.h"

#define GRACE_NS (10 * NS_PER_S)
#define COUNT_MAX 1000000

/* ---- values ---- */

/* Text NULL: *count stays. */
static int read_count(const char *option, const char *text, unsigned least, unsigned *count) {
  if (!text)
    return CTL_OK;
  char *end;
  unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || value < least || value > COUNT_MAX)
    return command_error(CTL_USAGE, "%s is a number from %u to %u, not '%s'; try --help", option, least,
                         COUNT_MAX, text);
  *count = (unsigned)value;
  return CTL_OK;
}

static int read_grace(const char *text, uint64_t *ns) {
  return !text || parse_duration_ns(text, ns) == 0
             ? CTL_OK
             : command_error(CTL_USAGE, "--grace is a duration (20, 0.5, 250ms, 2m), not '%s'", text);
}

/* ---- the list ---- */

static int refuse_file(const char *name, const char *why) {
  return command_error(CTL_USAGE, "can't read the jobs in %s: %s", name, why);
}

/* All of it, from malloc. */
static int read_file(const char *name, char **text) {
  FILE *file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
  size_t room = 0;
  if (!file)
    return refuse_file(name, strerror(errno));
  *text = NULL;
  ssize_t length = getdelim(text, &room, '\0', file);
  const char *wrong = NULL;
  if (length >= 0 && strlen(*text) < (size_t)length)
    wrong = "it is not text";
  else if (ferror(file) || (length < 0 && !feof(file)))
    wrong = strerror(errno);
  else if (length < 0)
    wrong = "it is empty";
  if (file != stdin)
    fclose(file);
  if (!wrong)
    return CTL_OK;
  free(*text);
  return refuse_file(name, wrong);
}

/* Each must name a program, if the command does not. */
static int check_list(const char *name, const struct joblist *list, char *const *command) {
  if (list->count == 0)
    return refuse_file(name, "there are none");
  for (size_t i = 0; i < list->count; i++)
    if (!*command && !list->jobs[i].words[list->jobs[i].settings])
      return command_error(CTL_USAGE, "%s, line %zu: no program is named", name, list->jobs[i].line);
  return CTL_OK;
}

static int parse_list(const char *name, char *text, char *const *command, struct joblist *list) {
  struct joblist_error error;
  int err = joblist_parse(list, text, &error);
  if (err == -EINVAL)
    return command_error(CTL_USAGE, "%s, line %zu: %s", name, error.line, error.what);
  return err < 0 ? refuse_file(name, strerror(-err)) : check_list(name, list, command);
}

/* ---- the GPUs ---- */

/* per_job 0: all. */
static int read_per_job(const char *text, struct spread *spread) {
  int64_t number = 1;
  if (text && strcmp(text, "all") == 0)
    number = 0;
  else if (text && parse_integer(text, 1, SPREAD_GPUS_MAX, &number) < 0)
    return command_error(CTL_USAGE, "--gpus-per-job is all, or a number from 1 to %d, not '%s'; try --help",
                         SPREAD_GPUS_MAX, text);
  spread->per_job = (size_t)number;
  spread->as_told = text;
  return CTL_OK;
}

/* We are one of several processes, each of which has its GPU, or will choose one. */
static bool are_of_gang(void) {
  char name[GS_GANG_SIZE];
  gang_name_find(getenv, name);
  return *name;
}

static int refuse_per_job(const struct spread *spread) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  return command_error(CTL_USAGE, "--gpus-per-job is %zu, but the number of visible GPUs is %zu%s%s",
                       spread->per_job, spread->count, list ? "; CUDA_VISIBLE_DEVICES is " : "",
                       list ? list : "");
}

/* Each job sees one GPU, so that they use all; unless it is told otherwise. */
static int find_gpus(struct spread *spread) {
  if (spread->per_job == 0 || (!spread->as_told && are_of_gang()))
    return CTL_OK;
  int code = visible_find(spread);
  if (code != CTL_OK)
    return code;
  if (spread->as_told && spread->per_job > spread->count)
    return refuse_per_job(spread);
  if (spread_is_needed(spread))
    fprintf(stderr, "gpusharectl: %zu GPUs are visible, each job gets %zu; see --gpus-per-job\n",
            spread->count, spread->per_job);
  return CTL_OK;
}

/* ---- the plan ---- */

static int read_plan(const struct run_request *request, struct sweep_plan *plan, unsigned *slots) {
  int code = read_count("-n", request->slots, 1, slots);
  if (code == CTL_OK)
    code = read_count("--retry", request->retry, 0, &plan->retries);
  if (code == CTL_OK)
    code = read_grace(request->grace, &plan->grace_ns);
  if (code == CTL_OK)
    code = read_per_job(request->gpus_per_job, plan->spread);
  if (code == CTL_OK && request->prefix && request->output)
    code = command_error(CTL_USAGE, "--prefix writes no files: --output goes without it");
  return code;
}

static int run_list(struct sweep_plan *plan, const struct joblist *list, unsigned slots) {
  plan->list = list;
  plan->slots = slots && slots < list->count ? slots : list->count;
  int code = find_gpus(plan->spread);
  return code == CTL_OK ? sweep_run(plan) : code;
}

static int run_file(struct sweep_plan *plan, const char *name, unsigned slots) {
  struct joblist list = {0};
  char *text;
  int code = read_file(name, &text);
  if (code != CTL_OK)
    return code;
  code = parse_list(name, text, plan->command, &list);
  if (code == CTL_OK)
    code = run_list(plan, &list, slots);
  joblist_free(&list);
  free(text);
  return code;
}

static int run_copies(struct sweep_plan *plan, unsigned slots) {
  struct joblist list;
  if (joblist_repeat(&list, slots) < 0)
    return command_error(CTL_REFUSED, "out of memory");
  int code = run_list(plan, &list, slots);
  joblist_free(&list);
  return code;
}

int run_many(const struct run_request *request) {
  struct spread spread = {0};
  struct sweep_plan plan = {.spread = &spread,
                            .socket = daemon_path(request),
                            .command = request->command,
                            .grace_ns = GRACE_NS,
                            .output = request->output,
                            .prefix = request->prefix,
                            .fail_fast = request->fail_fast};
  unsigned slots = 0;
  int code = read_plan(request, &plan, &slots);
  if (code != CTL_OK)
    return code;
  return request->jobs ? run_file(&plan, request->jobs, slots) : run_copies(&plan, slots);
}
