/* top.c - gpusharectl top: what is asked for; and line by line, for pipes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "ctl/ctl.h"
#include "ctl/output.h"
#include "ctl/show_status.h"
#include "ctl/top_view.h"

#define INTERVAL_NS (2 * NS_PER_S)

/* ---- line by line ---- */

static int show_text(const struct top_model *model) {
  char line[TOP_TEXT_SIZE];
  unsigned columns = top_text_columns(TOP_TEXT_SIZE, model);
  top_text_daemon(line, model);
  puts(line);
  for (const struct top_gpu *gpu = model->gpus; gpu < model->gpus + model->gpu_count; gpu++) {
    top_text_gpu(line, model, gpu);
    puts(line);
    top_text_memory(line, gpu);
    printf("  %s\n", line);
    top_text_handovers(line, gpu);
    printf("  %s\n", line);
  }
  top_text_head(line, columns, TOP_COLUMNS);
  if (model->job_count)
    puts(line);
  for (size_t i = 0; i < model->job_count; i++) {
    top_text_job(line, columns, &model->jobs[i]);
    puts(line);
  }
  puts("");
  return CTL_OK;
}

static int show_json(const struct top_model *model) {
  return output_line(status_json(model->msgs, model->end));
}

/* The next status in place of the last one. */
static int look(int fd, struct top_model *model) {
  struct gs_msg *msgs;
  struct top_model next;
  size_t count;
  struct ask_error error;
  int code = ask_say(ask_try_status(fd, &msgs, &count, &error), &error);
  if (code != CTL_OK)
    return code;
  if (top_model_make(&next, msgs, count, model) < 0 || !next.daemon)
    return command_error(CTL_REFUSED, "out of memory");
  top_model_clear(model);
  *model = next;
  return CTL_OK;
}

static void pause_until(uint64_t at_ns) {
  struct timespec at = {.tv_sec = (time_t)(at_ns / NS_PER_S), .tv_nsec = (long)(at_ns % NS_PER_S)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
    ;
}

/* Rates need two looks: the first one is not shown. `times` 0: without end. */
static int run_batch(int fd, uint64_t interval_ns, int64_t times, int (*show)(const struct top_model *)) {
  struct top_model model = {0};
  uint64_t at_ns = clock_now_ns();
  int code = look(fd, &model);
  for (int64_t i = 0; code == CTL_OK && (times == 0 || i < times); i++) {
    at_ns += interval_ns;
    pause_until(at_ns);
    code = look(fd, &model);
    if (code == CTL_OK)
      code = show(&model);
    fflush(stdout);
    if (ferror(stdout))
      code = CTL_REFUSED; /* ctl_main.c says why */
  }
  top_model_clear(&model);
  return code;
}

/* ---- the command ---- */

int top_command(const struct request *request) {
  const char *delay = request->delay, *count = request->run.slots;
  uint64_t interval_ns = INTERVAL_NS;
  int64_t times = 0;
  int fd;
  if (delay && (parse_duration_ns(delay, &interval_ns) < 0 || interval_ns < TOP_INTERVAL_MIN_NS ||
                interval_ns > TOP_INTERVAL_MAX_NS))
    return usage_error("the delay is 0.1 to 3600 (seconds), not", delay);
  if (count && parse_integer(count, 1, INT32_MAX, &times) < 0)
    return usage_error("not a number of times:", count);
  if (!request->batch && (count || request->json))
    return usage_error(count ? "-n of top is for --batch" : "--json of top is for --batch", NULL);
  if (!request->batch)
    return top_live(daemon_path(&request->run), interval_ns);
  int code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = run_batch(fd, interval_ns, times, request->json ? show_json : show_text);
  close(fd);
  return code;
}

#ifdef GPUSHARE_NO_NCURSES
int top_live(const char *path, uint64_t interval_ns) {
  (void)path, (void)interval_ns;
  return command_error(CTL_REFUSED,
                       "this build has no ncurses: use top --batch, or install libncurses-dev and "
                       "build gpushare again");
}
#endif
