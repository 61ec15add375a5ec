/*
 * test_firsts.c - whatever a program does first after all of its memory has left the card: it waits for its
 * turn, and every byte is right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

/* As large as the capacity, so that nothing else stays on the card while it runs. */
#define CAPACITY "16M"

static struct scene scene;

static uint64_t on_card(const struct process *process) {
  const struct gs_sim_process seen = scene_process(&scene, process, 0);
  return seen.pinned_bytes + seen.resident_bytes;
}

/* Nothing tells when the last byte has left. What a pool of unified memory keeps unused stays
 * (src/memory/pools.c). */
static void await_away(const struct process *process, uint64_t kept_bytes) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  while (on_card(process) > kept_bytes) {
    CHECK(deadline_left_ms(deadline) > 0, "%llu bytes do not leave the card",
          (unsigned long long)on_card(process));
    nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
  }
}

static void run(const char *program) {
  static const char *const environment[] = {"GPUSHARE_MEMORY=swap", NULL};
  char line[64];
  uint64_t kept_bytes = 0;
  scene_begin(&scene, "small");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "5ms", "--capacity", CAPACITY, NULL);
  struct process *firsts = scene_start(&scene, environment, program, NULL);
  process_expect(firsts, "ready ", line, sizeof line);
  struct process *other =
      scene_start(&scene, environment, "job", "--bytes", CAPACITY, "--buffers", "1", "--rounds", "0", NULL);
  for (int i = 0; i < atoi(line + strlen("ready ")); i++) {
    char number[16], done[64];
    await_away(firsts, kept_bytes);
    snprintf(number, sizeof number, "%d", i);
    process_say(firsts, number);
    process_expect(firsts, "done ", done, sizeof done);
    kept_bytes = strtoull(done + strlen("done "), NULL, 10);
  }
  struct process *both[] = {firsts, other};
  for (int i = 0; i < 2; i++) {
    process_close_input(both[i]);
    process_expect(both[i], "ok", NULL, 0);
    process_wait_exit(both[i], 0);
  }
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

TEST(swap) { run("firsts"); }
TEST(swap_per_thread) { run("firsts_per_thread"); }
