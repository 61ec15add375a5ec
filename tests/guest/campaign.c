/*
 * campaign.c - runs a case natively and under the library, and compares the two. See README.md.
 *
 * usage: campaign [CASE...]     GS_TEST_MEMORY: managed (default) or swap. GS_GUEST_DRIVER: new (default) or
 * old.
 */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "system/runner.h"
#include "system/scene.h"

#define HANG_NS (10 * NS_PER_S) /* longer than natively, though nothing waits for a processor: a hang */
#define SKIPPED 77

enum { BESIDE = 1, SIMULATED = 2 }; /* flags of cases.def */

/* What a run has shown. */
struct outcome {
  int status;
  uint64_t took_ns; /* but for the time in which something waited for a processor */
  char *text;       /* stdout, stderr without our lines, files */
  size_t size;
};

static struct scene scene;

/* Lines of our log are left out, and what a sanitizer says of threads that a raw clone has left behind. */
static void add_file(FILE *into, const char *path) {
  bool sanitized = getenv("GS_TEST_PRELOAD_FIRST") != NULL;
  char line[4096];
  FILE *file = fopen(path, "r");
  CHECK(file, "%s: %s", path, strerror(errno));
  while (fgets(line, sizeof line, file))
    if (strncmp(line, "gpushare[", 9) != 0 && !(sanitized && strncmp(line, "==", 2) == 0))
      fputs(line, into);
  fclose(file);
}

static int is_entry(const struct dirent *entry) {
  return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

static void take_folder(FILE *into, const char *folder) {
  struct dirent **entries;
  char path[512];
  int count = scandir(folder, &entries, is_entry, alphasort);
  CHECK(count >= 0, "%s: %s", folder, strerror(errno));
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    fprintf(into, "--- file %s\n", entries[i]->d_name);
    add_file(into, path);
    unlink(path);
    free(entries[i]);
  }
  free(entries);
  CHECK(rmdir(folder) == 0, "rmdir %s: %s", folder, strerror(errno));
}

/* The case, in an empty folder and on a card of its own. */
static struct outcome run(const char *name, bool native) {
  struct outcome outcome = {0};
  char folder[128], program[512], state[160], line[16384];
  snprintf(folder, sizeof folder, "%s/%s", scene.folder, native ? "native" : "guest");
  snprintf(program, sizeof program, "%s/%s", GS_GUESTS, name);
  snprintf(state, sizeof state, "GPUSHARE_SIM_STATE=%s.native", scene.state);
  const char *alone[] = {"LD_PRELOAD=", state, NULL};
  FILE *into = open_memstream(&outcome.text, &outcome.size);
  CHECK(into && mkdir(folder, 0700) == 0 && chdir(folder) == 0, "%s: %s", folder, strerror(errno));
  struct test_time begun = test_time();
  struct process *process = scene_start(&scene, native ? alone : NULL, program, NULL);
  while (process_line(process, line, sizeof line))
    fprintf(into, "%s\n", line);
  outcome.status = process_wait(process);
  outcome.took_ns = test_calm_ns(begun);
  CHECK(chdir("/") == 0, "chdir: %s", strerror(errno));
  take_folder(into, folder);
  fprintf(into, "--- stderr\n");
  add_file(into, process->log);
  fclose(into);
  return outcome;
}

/* Another job, which wants the GPU for as long as the case runs. */
static struct process *start_other(void) {
  struct process *other =
      scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "0", "--progress", NULL);
  process_expect(other, "round 1", NULL, 0);
  return other;
}

static bool says_ok(const char *text) { return strncmp(text, "ok\n", 3) == 0 || strstr(text, "\nok\n"); }

static void compare(const struct outcome *native, const struct outcome *guest) {
  bool same = native->status == guest->status && strcmp(native->text, guest->text) == 0;
  if (!same)
    printf("=== natively: wait status %x, and\n%s=== under the library: wait status %x, and\n%s===\n",
           (unsigned)native->status, native->text, (unsigned)guest->status, guest->text);
  CHECK(says_ok(native->text), "it does not even say ok natively");
  CHECK(same, "it behaves otherwise");
  CHECK(guest->took_ns < native->took_ns + HANG_NS * test_scale(), "it took %.1f s, natively %.1f",
        (double)guest->took_ns / NS_PER_S, (double)native->took_ns / NS_PER_S);
}

static void play(const char *name, const char *plain_card, unsigned flags) {
  const char *generation = getenv("GS_GUEST_DRIVER");
  char card[256];
  snprintf(card, sizeof card, "%s%s", plain_card,
           generation && strcmp(generation, "old") == 0 ? ",driver_version=12020" : "");
  scene_begin(&scene, card);
  struct outcome native = run(name, true);
  if (WIFEXITED(native.status) && WEXITSTATUS(native.status) == SKIPPED)
    test_skip("%s can't run here:\n%s", name, native.text);
  scene_start_daemon(&scene, "--mode", flags & BESIDE ? "on" : "auto", "--tq", "20ms", NULL);
  struct process *other = flags & BESIDE ? start_other() : NULL;
  struct outcome guest = run(name, false);
  if (other)
    process_finish(other);
  compare(&native, &guest);
  free(native.text);
  free(guest.text);
  scene_end(&scene);
}

#define CASE(name, source, card, flags)                                                                      \
  TEST(name) { play(#name, card, flags); }
#include "cases.def"
