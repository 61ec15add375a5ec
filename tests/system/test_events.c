/*
 * test_events.c - what the daemon tells of programs that take turns: the timeline of a whole run agrees with
 * status, by the rules of its format.
 */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define HANDOVERS 6

static struct scene scene;

static bool has_handed_over(const struct scene_status *status, const void *what) {
  (void)what;
  return status->gpu_count > 0 && status->gpus[0].gpu_status.handovers >= HANDOVERS;
}

static bool is_deserted(const struct scene_status *status, const void *what) {
  (void)what;
  return status->job_count == 0;
}

static void finish(struct process *job) {
  process_close_input(job);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
}

static void write_status(const char *path) {
  static char text[65536];
  CHECK(scene_ctl(&scene, text, sizeof text, "status", "--json", NULL) == 0);
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", path);
}

static int check(const char *trace, const char *status) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  struct process *checker =
      scene_start(&scene, plain, GS_PYTHON, GS_SOURCES "/check_trace.py", trace, status, NULL);
  return process_wait(checker);
}

/* Does the checker see it when `from` is `to`? */
static void check_change(const char *trace, const char *status, const char *from, const char *to) {
  static char text[1 << 20];
  char changed[128];
  snprintf(changed, sizeof changed, "%s.changed", trace);
  FILE *file = fopen(trace, "r");
  CHECK(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  char *found = strstr(text, from);
  CHECK(found && strlen(from) == strlen(to), "%s is not there", from);
  memcpy(found, to, strlen(to));
  file = fopen(changed, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", changed);
  CHECK(check(changed, status) != 0, "%s instead of %s is not seen", to, from);
}

TEST(a_timeline_agrees_with_status) {
  char trace[96], status[96];
  struct process *jobs[3];
  scene_begin(&scene, "small,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--tq", "50ms", NULL);
  for (int i = 0; i < 3; i++)
    jobs[i] = scene_start(&scene, NULL, "toiler", "40M", "2ms", NULL);
  scene_await(&scene, has_handed_over, NULL, "hand-overs");
  for (int i = 0; i < 3; i++)
    finish(jobs[i]);
  scene_await(&scene, is_deserted, NULL, "all have gone");
  snprintf(trace, sizeof trace, "%s/trace.json", scene.folder);
  snprintf(status, sizeof status, "%s/status.json", scene.folder);
  write_status(status);
  CHECK(scene_ctl(&scene, NULL, 0, "timeline", "-o", trace, NULL) == 0);
  CHECK(check(trace, status) == 0, "see the log of python3");
  check_change(trace, status, "\"hand-over\"", "\"hand-ever\"");
  check_change(trace, status, "\"dur\":", "\"dux\":");
  check_change(trace, status, "\"thread_name\"", "\"thread_fame\"");
  check_change(trace, status, "\"ph\":\"X\",\"name\":\"runs\"", "\"ph\":\"B\",\"name\":\"runs\"");
  scene_end(&scene);
}
