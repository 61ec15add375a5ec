/*
 * test_passing.c - at hand-overs between jobs of one user the card's memory passes from the one to the other:
 * it is seen that it does, and that no byte differs.
 */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define BYTES "128M" /* of each job, in two buffers */
#define PIECES 4
#define CARD "small,capacity=168MiB" /* no room for two of them */
#define HANDOVERS 12

static const char *const swap[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_LOG=debug", NULL};

static struct scene scene;

static void begin(void) {
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, "--mode", "on", "--tq", "30ms", NULL);
}

static struct process *start(void) {
  return scene_start(&scene, swap, "job", "--bytes", BYTES, "--rounds", "0", "--progress", "--spin", "2ms",
                     NULL);
}

static bool has_handed_over(const struct scene_status *status, const void *times) {
  return status->gpu_count > 0 && status->gpus[0].gpu_status.handovers >= *(const uint64_t *)times;
}

static void await_handovers(uint64_t times) { scene_await(&scene, has_handed_over, &times, "hand-overs"); }

static uint64_t counter(const struct process *job, enum gs_sim_counter which) {
  return scene_process(&scene, job, 0).counters[which];
}

static uint64_t card_bytes(void) { return scene_card(&scene, 0).pinned_bytes; }

/* Each verifies all of its memory at its end. */
TEST(memory_passes_at_hand_overs) {
  begin();
  struct process *jobs[2] = {start(), start()};
  await_handovers(HANDOVERS);
  uint64_t created = 0, imported = 0;
  for (int i = 0; i < 2; i++) {
    created += counter(jobs[i], GS_SIM_created);
    imported += counter(jobs[i], GS_SIM_imported);
  }
  CHECK(imported > HANDOVERS * PIECES / 3, "%llu pieces have passed, %llu were made",
        (unsigned long long)imported, (unsigned long long)created);
  CHECK(created < imported, "%llu pieces were made, and %llu have passed", (unsigned long long)created,
        (unsigned long long)imported);
  for (int i = 0; i < 2; i++) {
    process_finish(jobs[i]);
    CHECK(process_log_count(jobs[i], "pieces passed to the next job") > 0);
    CHECK(process_log_count(jobs[i], "pieces taken from jobs before") > 0);
  }
  CHECK(card_bytes() == 0, "%llu bytes are left on the card", (unsigned long long)card_bytes());
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* Whatever was on its way to the one that is killed is gone with it. */
TEST(a_job_is_killed_while_memory_passes) {
  uint64_t seed = test_seed();
  begin();
  struct process *job = start();
  for (int round = 0; round < 8; round++) {
    struct process *other = start();
    process_expect(other, "round ", NULL, 0);
    process_expect(other, "round ", NULL, 0);
    process_expect(job, "round ", NULL, 0);
    nanosleep(&(struct timespec){.tv_nsec = (long)(random_next(&seed) % (60 * NS_PER_MS))}, NULL);
    process_signal(other, round % 2 ? SIGSTOP : SIGKILL);
    nanosleep(&(struct timespec){.tv_nsec = (long)(random_next(&seed) % (20 * NS_PER_MS))}, NULL);
    process_kill(other);
    process_drain(job);
    process_expect(job, "round ", NULL, 0);
    process_expect(job, "round ", NULL, 0);
    CHECK(card_bytes() == PIECES * 32 * MIB, "%llu bytes are on the card", (unsigned long long)card_bytes());
  }
  CHECK(counter(job, GS_SIM_imported) > 0);
  process_finish(job);
  CHECK(card_bytes() == 0, "%llu bytes are left on the card", (unsigned long long)card_bytes());
  scene_end(&scene);
}

/* Three take turns: memory goes round. */
TEST(memory_goes_round) {
  begin();
  struct process *jobs[3] = {start(), start(), start()};
  await_handovers(HANDOVERS);
  for (int i = 0; i < 3; i++) {
    CHECK(counter(jobs[i], GS_SIM_imported) > 0);
    process_finish(jobs[i]);
  }
  CHECK(card_bytes() == 0, "%llu bytes are left on the card", (unsigned long long)card_bytes());
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}
