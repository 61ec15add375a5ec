/*
 * test_events.c - what gpusharectl tells of programs that take turns: the timeline of a whole run agrees with
 * status, by the rules of its format, and all JSON is as its schemas say.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define HANDOVERS 6

static struct scene scene;

static bool has_handed_over(const struct scene_status *status, const void *what) {
  (void)what;
  for (int i = 0; i < status->gpu_count; i++)
    if (status->gpus[i].gpu_status.handovers >= HANDOVERS)
      return true;
  return false;
}

static bool is_deserted(const struct scene_status *status, const void *what) {
  (void)what;
  return status->job_count == 0;
}

static const char *path_of(const char *name) {
  static char paths[16][96];
  static unsigned next;
  char *path = paths[next++ % 16];
  snprintf(path, sizeof paths[0], "%s/%s", scene.folder, name);
  return path;
}

/* The JSON of a command; word NULL: it has no other. */
static char answer[1 << 20];

static void write_answer(const char *name) {
  FILE *file = fopen(path_of(name), "w");
  CHECK(file && fputs(answer, file) >= 0 && fclose(file) == 0, "%s", name);
}

static void write_json(const char *name, const char *command, const char *word) {
  CHECK(scene_ctl(&scene, answer, sizeof answer, command, "--json", word, NULL) == 0, "%s", command);
  write_answer(name);
}

static void write_top(const char *name) {
  CHECK(scene_ctl(&scene, answer, sizeof answer, "top", "--batch", "--json", "-n", "2", "-d", "0.1", NULL) ==
        0);
  write_answer(name);
}

/* history: NULL, or a file of it. */
static int check(const char *trace, const char *status, const char *history) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  struct process *checker =
      scene_start(&scene, plain, GS_PYTHON, GS_SOURCES "/check_trace.py", trace, status, history, NULL);
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
  CHECK(check(changed, status, NULL) != 0, "%s instead of %s is not seen", to, from);
}

TEST(a_timeline_agrees_with_status) {
  struct process *jobs[3];
  scene_begin(&scene, "small,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--tq", "50ms", NULL);
  for (int i = 0; i < 3; i++)
    jobs[i] = scene_start(&scene, NULL, "toiler", "40M", "2ms", NULL);
  scene_await(&scene, has_handed_over, NULL, "hand-overs");
  for (int i = 0; i < 3; i++)
    process_finish(jobs[i]);
  scene_await(&scene, is_deserted, NULL, "all have gone");
  const char *trace = path_of("trace.json"), *status = path_of("status.json");
  write_json("status.json", "status", NULL);
  CHECK(scene_ctl(&scene, NULL, 0, "timeline", "-o", trace, NULL) == 0);
  const char *history = path_of("history.json");
  write_json("history.json", "history", NULL);
  CHECK(check(trace, status, history) == 0, "see the log of python3");
  check_change(trace, status, "\"hand-over\"", "\"hand-ever\"");
  check_change(trace, status, "\"dur\":", "\"dux\":");
  check_change(trace, status, "\"thread_name\"", "\"thread_fame\"");
  check_change(trace, status, "\"ph\":\"X\",\"name\":\"runs\"", "\"ph\":\"B\",\"name\":\"runs\"");
  scene_end(&scene);
}

/* ---- schemas ---- */

static bool is_limited(const struct scene_status *status, const void *what) {
  (void)what;
  for (int i = 0; i < status->job_count; i++)
    if (status->waits[i].wait_status.limited != GS_LIMITED_NOT)
      return true;
  return false;
}

static struct process *start(const char *environment, const char *gpu) {
  char visible[32];
  snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", gpu);
  return scene_start(&scene, (const char *const[]){environment, visible, NULL}, "toiler", "40M", "2ms", NULL);
}

/* In one file: the answers to commands that change something. */
static void write_changes(void) {
  static const char *const orders[][3] = {{"set-policy", "rr"},
                                          {"set-tq", "40ms"},
                                          {"auto"},
                                          {"set-weight", "1", "250"},
                                          {"set-limit", "1", "4G"},
                                          {"set-class", "1", "standard"},
                                          {"pause", "1"},
                                          {"kill", "-sCONT", "1"},
                                          {"reload"},
                                          {"evict", "2"}};
  size_t length = 0;
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    const char *const *order = orders[i];
    CHECK(scene_ctl(&scene, answer + length, sizeof answer - length, "--json", order[0], order[1], order[2],
                    NULL) == 0,
          "%s", order[0]);
    CHECK(answer[length] == '{', "%s answers nothing", order[0]);
    length += strlen(answer + length);
  }
  write_answer("change.jsonl");
}

/* One host answers, the other does not: a script plays ssh. */
static void write_hosts(const char *name) {
  strcpy(answer,
         "#!/bin/sh\n[ \"$2\" = a ] || exit 255\nPATH=$(dirname " GS_CTL "):$PATH exec sh -c \"$3\"\n");
  write_answer("ssh");
  CHECK(chmod(path_of("ssh"), 0755) == 0 && setenv("GPUSHARE_SSH", path_of("ssh"), 1) == 0);
  CHECK(scene_ctl(&scene, answer, sizeof answer, "--json", "--host", "a,b", "status", NULL) == 3);
  write_answer(name);
  CHECK(strstr(answer, "\"gpus\":"), "a answers");
}

/* Everything but the history, which is empty while they run. */
static void write_all(void) {
  write_json("status.json", "status", NULL);
  write_top("status.jsonl");
  write_json("jobs.json", "jobs", NULL);
  write_json("why.json", "why", "1");
  write_json("plan.json", "plan", NULL);
  write_json("event.jsonl", "events", NULL);
  write_json("doctor.json", "doctor", NULL);
  write_hosts("host.jsonl");
  CHECK(scene_ctl(&scene, NULL, 0, "timeline", "-o", path_of("timeline.json"), NULL) == 0);
}

static void check_schemas(const char *const *names) {
  static const char *const plain[] = {"LD_PRELOAD=", "PYTHONPATH=" GS_PYTHON_PACKAGES, NULL};
  char *argv[16] = {(char *)(uintptr_t)GS_PYTHON, (char *)(uintptr_t)(GS_SOURCES "/check_schema.py"),
                    (char *)(uintptr_t)(GS_SOURCES "/../..")};
  for (int i = 0; names[i]; i++)
    argv[3 + i] = (char *)(uintptr_t)path_of(names[i]);
  int status = process_wait(scene_start_argv(&scene, plain, argv));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    test_skip("no jsonschema for %s", GS_PYTHON);
  CHECK(status == 0, "see the log of python3");
}

static void check_running(void) {
  static const char *const names[] = {
      "change.jsonl", "status.json",   "status.jsonl", "jobs.json",  "why.json", "plan.json",
      "event.jsonl",  "timeline.json", "doctor.json",  "host.jsonl", NULL};
  write_changes();
  write_all();
  check_schemas(names);
}

static void check_ended(void) {
  write_json("history.json", "history", NULL);
  CHECK(scene_ctl(&scene, answer, sizeof answer, "--json", "report", "--by", "job", NULL) == 0);
  write_answer("report.json");
  CHECK(strstr(answer, "\"held_ns\": "), "there are accounts");
  write_json("event.jsonl", "events", NULL);
  check_schemas((const char *const[]){"history.json", "report.json", "event.jsonl", NULL});
}

TEST(json_is_as_its_schemas_say) {
  scene_begin(&scene, "small,gpus=2,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--tq", "50ms", "--grace", "2s", NULL);
  struct process *jobs[] = {start("GPUSHARE_CLASS=production", "0"),
                            start("GPUSHARE_CLASS=opportunistic", "0"), start("GPUSHARE_GANG=pair", "0"),
                            start("GPUSHARE_GANG=pair", "1")};
  scene_await(&scene, is_limited, NULL, "the opportunistic one is limited");
  scene_await(&scene, has_handed_over, NULL, "hand-overs");
  process_signal(scene.daemon, SIGHUP);
  check_running();
  CHECK(scene_ctl(&scene, NULL, 0, "resume", "1", NULL) == 0);
  process_kill(jobs[1]);
  process_finish(jobs[0]);
  process_finish(jobs[2]);
  process_finish(jobs[3]);
  scene_await(&scene, is_deserted, NULL, "all have gone");
  check_ended();
  scene_end(&scene);
}
