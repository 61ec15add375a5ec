/*
 * test_ipc.c - memory between processes by CUDA IPC (src/memory/ipc.c): what one writes the other reads, also
 * while they take turns and the rest of their memory leaves the card; and every way to its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/splitmix.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define LINE 400
#define ROUNDS 24 /* of what is drawn */

static struct scene scene;
static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};
static const char *const managed[] = {"GPUSHARE_MEMORY=managed", NULL}; /* no user, however large it is */

static struct process *start(environment_list environment) {
  struct process *program = scene_start(&scene, environment, "sharer", NULL);
  process_expect(program, "ready", NULL, 0);
  return program;
}

/* What comes after "done ". */
static void ask(struct process *program, const char *order, char *answer) {
  char line[LINE];
  process_say(program, order);
  CHECK(process_line(program, line, sizeof line), "%s has ended", program->name);
  CHECK(strncmp(line, "done", 4) == 0, "%s: %s: %s", program->name, order, line);
  if (answer)
    strcpy(answer, line + 5);
}

static void expect_error(struct process *program, const char *order, int result) {
  char line[LINE], expected[32];
  snprintf(expected, sizeof expected, "error %d", result);
  process_say(program, order);
  CHECK(process_line(program, line, sizeof line), "%s has ended", program->name);
  CHECK(strcmp(line, expected) == 0, "%s: %s: %s", program->name, order, line);
}

static void share(struct process *program, int slot, char *handle) {
  char order[32];
  snprintf(order, sizeof order, "share %d", slot);
  ask(program, order, handle);
}

static const char *opening(int slot, const char *handle) {
  static char order[LINE + 16];
  snprintf(order, sizeof order, "open %d %s", slot, handle);
  return order;
}

static void begin_with(const char *mode, const char *capacity) {
  scene_begin(&scene, "small,capacity=1GiB");
  scene_start_daemon(&scene, "--mode", mode, "--capacity", capacity, "--tq", "20ms", NULL);
}

static void begin(const char *mode) { begin_with(mode, "112M"); }

/* The card has little more than the jobs may have of it, so that nothing comes before something else has
 * left. */
static void begin_exactly(const char *mode, const char *card, const char *capacity) {
  scene_begin(&scene, card);
  scene_start_daemon(&scene, "--mode", mode, "--capacity", capacity, "--tq", "20ms", NULL);
}

static void end(struct process *first, struct process *second) {
  process_finish(first);
  if (second)
    process_finish(second);
  scene_end(&scene);
}

/* `bytes` may share a block with others, be a piece or several, with a small one at the end. */
static void share_and_write(const char *bytes) {
  char order[LINE], handle[LINE], opened[LINE];
  struct process *maker = start(swap), *user = start(swap);
  unsigned long long at, base;
  size_t length;
  ask(maker, "alloc 1 40000000", NULL); /* both of these and what is shared do not fit */
  ask(user, "alloc 1 40000000", NULL);
  snprintf(order, sizeof order, "alloc 0 %s", bytes);
  ask(maker, order, NULL);
  share(maker, 0, handle);
  for (int i = 0; i < 3; i++) {
    ask(user, opening(0, handle), opened);
    int found = sscanf(opened, "%llx %llx %zu", &at, &base, &length);
    CHECK(found == 3 && at == base && length == strtoull(bytes, NULL, 0), "%s", opened);
    snprintf(order, sizeof order, "verify 0 %d", 3 * i);
    ask(user, order, NULL);
    ask(user, "add 0 1", NULL);
    ask(maker, "verify 1 0", NULL);
    ask(maker, "add 0 2", NULL);
    ask(user, "verify 1 0", NULL);
    snprintf(order, sizeof order, "verify 0 %d", 3 * i + 3);
    ask(maker, order, NULL);
    ask(user, order, NULL);
    ask(user, "close 0", NULL);
    expect_error(user, "close 0", 1);
  }
  ask(maker, "free 0", NULL);
  end(maker, user);
}

TEST(a_small_one_in_turns) {
  begin("on");
  share_and_write("65536");
}

TEST(a_grain_in_turns) {
  begin("on");
  share_and_write("2097152");
}

TEST(a_piece_and_a_bit_in_turns) {
  begin("on");
  share_and_write("34000000");
}

TEST(side_by_side) {
  begin("off");
  share_and_write("34000000");
}

/* Until it is granted: what can't leave is still to be told of to the daemon as what can. */
static void take_when_granted(struct process *program, const char *bytes) {
  char order[LINE], line[LINE];
  snprintf(order, sizeof order, "fits 1 %s", bytes);
  do {
    process_say(program, order);
    CHECK(process_line(program, line, sizeof line), "%s has ended", program->name);
  } while (strncmp(line, "error 2", 7) == 0);
  CHECK(strncmp(line, "done", 4) == 0, "%s", line);
  snprintf(order, sizeof order, "alloc 1 %s", bytes);
  ask(program, order, NULL);
}

/* Of 112 MiB a third job needs more than is left beside what two have open. */
TEST(what_is_shared_leaves_for_another_job) {
  char handle[LINE];
  begin_exactly("on", "small,capacity=116MiB", "112M");
  struct process *maker = start(swap), *user = start(swap), *other = start(swap);
  ask(maker, "alloc 0 67108864", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  take_when_granted(other, "100000000");
  for (int i = 0; i < 4; i++) {
    char order[LINE];
    ask(user, "add 0 1", NULL);
    ask(other, "add 1 3", NULL);
    snprintf(order, sizeof order, "verify 1 %d", 3 * i + 3);
    ask(other, order, NULL);
    ask(maker, "add 0 2", NULL);
    snprintf(order, sizeof order, "verify 0 %d", 3 * i + 3);
    ask(user, order, NULL);
    if (i % 2)
      ask(other, "add 1 0", NULL);
    ask(maker, order, NULL);
  }
  ask(user, "close 0", NULL);
  ask(maker, "free 0", NULL);
  process_finish(other);
  end(maker, user);
}

/* Two blocks that two processes use beside their maker, and a fourth one that needs nearly all of the card:
 * who comes next, and what it does, is drawn. Each finds what all before it have done. */
static void use_at_random(const char *mode, const char *card, const char *capacity) {
  static const char *const sizes[] = {"41943040", "75000000"};
  struct process *program[4];
  uint64_t added[3] = {0};
  char order[LINE], handle[LINE];
  begin_exactly(mode, card, capacity);
  for (int i = 0; i < 4; i++)
    program[i] = start(swap);
  for (int block = 0; block < 2; block++) {
    snprintf(order, sizeof order, "alloc %d %s", block, sizes[block]);
    ask(program[0], order, NULL);
    share(program[0], block, handle);
    for (int i = 1; i < 3; i++)
      ask(program[i], opening(block, handle), NULL);
  }
  take_when_granted(program[3], "120000000");
  uint64_t random = 11;
  for (unsigned i = 0; i < ROUNDS; i++) {
    uint64_t drawn = splitmix_next(&random);
    unsigned who = drawn % 4, which = who == 3 ? 2 : drawn / 4 % 2, slot = who == 3 ? 1 : which;
    unsigned more = drawn / 8 % 5;
    snprintf(order, sizeof order, "verify %u %llu", slot, (unsigned long long)added[which]);
    ask(program[who], order, NULL);
    snprintf(order, sizeof order, "add %u %u", slot, more);
    ask(program[who], order, NULL);
    added[which] += more;
  }
  for (int block = 0; block < 2; block++) {
    snprintf(order, sizeof order, "verify %d %llu", block, (unsigned long long)added[block]);
    for (int i = 0; i < 3; i++)
      ask(program[i], order, NULL);
  }
  for (int i = 3; i >= 0; i--) {
    CHECK(process_log_count(program[i], "the driver refuses") == 0, "there was room before there was");
    process_finish(program[i]);
  }
  scene_end(&scene);
}

TEST(what_is_shared_in_turns_at_random) { use_at_random("on", "small,capacity=144MiB", "140M"); }
TEST(what_is_shared_beside_each_other_at_random) { use_at_random("auto", "small,capacity=144MiB", "140M"); }
TEST(what_is_shared_by_few_at_a_time_at_random) { use_at_random("auto", "small,capacity=244MiB", "240M"); }

TEST(without_a_daemon) {
  scene_begin(&scene, "small,capacity=1GiB");
  share_and_write("34000000");
}

/* The handle is the same each time; what is opened twice has one address, and ends with the last one. */
TEST(twice) {
  char handle[LINE], again[LINE], first[LINE], second[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap), *third = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  share(maker, 0, again);
  CHECK(strcmp(handle, again) == 0);
  ask(user, opening(0, handle), first);
  ask(user, opening(1, handle), second);
  CHECK(strcmp(first, second) == 0);
  ask(third, opening(0, handle), NULL);
  ask(third, "add 0 5", NULL);
  ask(user, "close 0", NULL);
  ask(user, "verify 1 5", NULL);
  ask(user, "close 1", NULL);
  expect_error(user, "close 1", 1);
  ask(user, opening(0, handle), NULL);
  ask(user, "verify 0 5", NULL);
  ask(maker, "verify 0 5", NULL);
  process_finish(third);
  end(maker, user);
}

static bool has_pinned(const struct scene_status *status, const void *what) {
  uint64_t bytes = 0;
  for (int i = 0; i < status->job_count; i++)
    bytes += status->waits[i].wait_status.pinned_bytes;
  return bytes == *(const uint64_t *)what;
}

struct counted {
  pid_t pid;
  uint64_t bytes;
};

static bool is_counted(const struct scene_status *status, const void *what) {
  const struct counted *counted = what;
  const struct gs_msg *job = scene_wait_of(status, counted->pid);
  return job && job->wait_status.pinned_bytes == counted->bytes;
}

static void await_counted(const struct process *process, uint64_t bytes, const char *what) {
  const struct counted counted = {.pid = process->pid, .bytes = bytes};
  scene_await(&scene, is_counted, &counted, what);
}

static void await_pinned(uint64_t bytes, const char *what) { scene_await(&scene, has_pinned, &bytes, what); }

/* What is opened stays on the card. So to copy from it needs no turn of that GPU, which another job has. */
TEST(a_copy_to_another_gpu_waits_for_no_turn) {
  char handle[LINE];
  scene_begin(&scene, "small,gpus=2,capacity=1GiB");
  scene_start_daemon(&scene, "--mode", "on", "--capacity", "112M", "--tq", "1h", NULL);
  struct process *maker = start(swap), *user = scene_start(&scene, swap, "sharer", "1", NULL);
  process_expect(user, "ready", NULL, 0);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  ask(user, "use 0 0", NULL);
  ask(user, opening(0, handle), NULL);
  struct process *third = start(swap);
  ask(third, "spin 0 3600000000000", NULL);
  ask(user, "copy 0 0", NULL);
  process_kill(third);
  end(maker, user);
}

/* It counts as pinned from the first handle on, for its maker, until all have closed it. */
TEST(it_is_counted) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  ask(maker, "alloc 1 8388608", NULL);
  await_pinned(0, "nothing is shared yet");
  share(maker, 0, handle);
  share(maker, 0, handle);
  await_pinned(8 * MIB, "what is shared");
  ask(user, opening(0, handle), NULL);
  ask(user, "close 0", NULL);
  ask(user, opening(0, handle), NULL);
  ask(maker, "free 0", NULL);
  ask(maker, "fits 2 8388608", NULL);
  ask(user, "verify 0 0", NULL);
  CHECK(scene_card(&scene, 0).pinned_bytes >= 16 * MIB);
  await_counted(maker, 8 * MIB, "its maker counts it");
  await_counted(user, 0, "and nobody else");
  ask(user, "close 0", NULL);
  CHECK(scene_card(&scene, 0).pinned_bytes < 16 * MIB);
  await_pinned(0, "nobody has it");
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  ask(maker, "free 0", NULL);
  process_finish(user);
  await_pinned(0, "the process that had it open has ended");
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  await_pinned(8 * MIB, "what is shared");
  ask(maker, "free 0", NULL);
  await_pinned(0, "nobody has opened it");
  end(maker, NULL);
}

/* What nobody has open any more leaves the card where another job needs that: `leaves`. To be opened again,
 * it comes back in its maker's turn. */
static void let_go_and_open_again(const char *bytes, bool leaves) {
  char order[LINE], handle[LINE], again[LINE];
  begin_with("on", "256M");
  struct process *maker = start(swap), *user = start(swap), *third = start(leaves ? managed : swap);
  uint64_t block_bytes = (strtoull(bytes, NULL, 0) + 2 * MIB - 1) / (2 * MIB) * 2 * MIB;
  snprintf(order, sizeof order, "alloc 0 %s", bytes);
  ask(maker, order, NULL);
  share(maker, 0, handle);
  ask(third, opening(0, handle), NULL);
  ask(third, opening(1, handle), NULL);
  ask(third, "add 0 1", NULL);
  ask(third, "close 0", NULL);
  ask(third, "close 1", NULL);
  await_pinned(0, "nobody has it open");
  uint64_t made = scene_process(&scene, maker, 0).counters[GS_SIM_created];
  if (!leaves)
    ask(maker, "alloc 2 65536", NULL);
  CHECK(scene_process(&scene, maker, 0).counters[GS_SIM_created] == made, "there was a hole");
  ask(user, "alloc 1 199229440", NULL); /* 190 MiB: it may pin 64 without asking */
  for (int i = 1; i < 4; i++) {
    snprintf(order, sizeof order, "verify 1 %d", i - 1);
    ask(user, order, NULL);
    ask(user, "add 1 1", NULL);
    snprintf(order, sizeof order, "verify 0 %d", i);
    ask(maker, order, NULL);
    ask(maker, "add 0 1", NULL);
  }
  ask(user, "add 1 1", NULL);
  CHECK(!leaves || scene_process(&scene, maker, 0).pinned_bytes < block_bytes - 2 * MIB,
        "all is on the card");
  ask(user, "free 1", NULL);
  ask(third, opening(0, handle), NULL);
  await_counted(maker, block_bytes, "it is held again");
  share(maker, 0, again);
  CHECK(strcmp(handle, again) == 0, "another handle");
  ask(third, "verify 0 4", NULL);
  ask(third, "add 0 1", NULL);
  ask(maker, "verify 0 5", NULL);
  process_finish(third);
  end(maker, user);
}

TEST(a_small_one_is_let_go) { let_go_and_open_again("65536", false); }
TEST(one_of_many_pieces_is_let_go) { let_go_and_open_again("90000000", true); }

/* A process that has not closed it, and has died; one that has closed the connection, and lives. */
TEST(processes_that_do_not_say_that_they_have_closed_it) {
  char handle[LINE], other[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap), *third = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  ask(maker, "alloc 1 4194304", NULL);
  ask(maker, "alloc 2 2097152", NULL);
  share(maker, 2, handle);
  share(maker, 1, other);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  ask(maker, "closefrom", NULL);
  expect_error(third, opening(1, other), 400); /* the thread of before ends */
  share(maker, 1, other);
  share(maker, 0, handle);
  ask(third, opening(1, other), NULL);
  await_counted(maker, 14 * MIB, "two are open, and one has never been");
  ask(third, "close 1", NULL);
  await_counted(maker, 10 * MIB, "one is open");
  ask(user, "verify 0 0", NULL);
  process_kill(user);
  await_counted(maker, 2 * MIB, "none is open");
  ask(third, opening(0, handle), NULL);
  ask(third, "verify 0 0", NULL);
  process_kill(third);
  await_counted(maker, 2 * MIB, "the last one has died");
  end(maker, NULL);
}

/* There is no pidfd_open, or no leave to call it: the end of a process is seen all the same. */
TEST(processes_that_die_beside_a_sandbox) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "sandbox", NULL);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  await_counted(maker, 8 * MIB, "it is open");
  process_kill(user);
  await_counted(maker, 0, "none is open");
  end(maker, NULL);
}

static void open_until_it_is_let_go(struct process *user, const char *handle) {
  ask(user, opening(0, handle), NULL);
  ask(user, "close 0", NULL);
  await_pinned(0, "nobody has it open");
}

static bool has_waited(const struct scene_status *status, const void *user) {
  (void)status;
  return process_log_count(user, "waits for the turn") > 0;
}

static bool is_idle(const struct scene_status *status, const void *process) {
  return !scene_job_holds(status, process) && !scene_job_drops(status, process);
}

static struct process *open_while_paused(const char *handle, const struct process *maker) {
  static const char *const logging[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_LOG=info", NULL};
  struct process *user = start(logging);
  open_until_it_is_let_go(user, handle);
  CHECK(scene_ctl(&scene, NULL, 0, "pause", "1", NULL) == 0);
  scene_await(&scene, is_idle, maker, "it has stopped");
  process_say(user, opening(0, handle));
  scene_await(&scene, has_waited, user, "for the turn of its maker");
  return user;
}

/* Asks the maker of the handle by a wrong key. Before that process refuses it, it looks at its leases. */
static void knock(struct process *process, const char *handle) {
  char wrong[LINE];
  strcpy(wrong, handle);
  memset(wrong + 32, '0', 16);
  expect_error(process, opening(7, wrong), 400);
}

/* Where a program may have so few descriptors open that no connection stays, nobody knows who has it open. */
TEST(no_connection_can_stay) {
  char handle[LINE], other[LINE];
  begin("on");
  struct process *maker = start(swap), *known = start(swap), *user = start(swap);
  ask(maker, "crowd 0 3", NULL);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  ask(known, "alloc 0 4194304", NULL);
  share(known, 0, other);
  ask(user, opening(0, handle), NULL);
  ask(user, opening(1, other), NULL);
  ask(user, "close 0", NULL);
  ask(user, "close 1", NULL);
  await_counted(known, 0, "it is closed");
  knock(user, handle);
  ask(maker, "fits 1 4194304", NULL);
  await_counted(maker, 8 * MIB, "it may be open");
  ask(maker, "free 0", NULL);
  await_counted(maker, 0, "it is freed");
  process_finish(known);
  end(maker, user);
}

/* Memory that was passed on takes two eighths of the program's descriptors at most. Where these are taken, a
 * third eighth is left for connections, on both sides. */
TEST(a_connection_can_stay_beside_memory) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "crowd 0 2", NULL);
  ask(user, "crowd 0 2", NULL);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  ask(user, "close 0", NULL);
  await_counted(maker, 0, "it is closed");
  ask(user, opening(0, handle), NULL);
  process_kill(maker);
  await_counted(user, 8 * MIB, "what its maker has left");
  ask(user, "close 0", NULL);
  end(user, NULL);
}

/* Where the process that opens memory can't keep the connection, it can't say that it has closed the memory.
 * So the maker counts the memory until that process has ended. */
TEST(no_connection_can_stay_where_it_is_opened) {
  char handle[LINE], other[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap), *known = start(swap);
  ask(user, "crowd 0 3", NULL);
  ask(maker, "alloc 0 8388608", NULL);
  ask(maker, "alloc 1 4194304", NULL);
  share(maker, 0, handle);
  share(maker, 1, other);
  ask(user, opening(0, handle), NULL);
  ask(user, "verify 0 0", NULL);
  ask(user, "close 0", NULL);
  ask(known, opening(1, other), NULL);
  ask(known, "close 1", NULL);
  await_counted(maker, 8 * MIB, "the other one is closed, and let go");
  knock(known, handle);
  await_counted(maker, 8 * MIB, "it may be open");
  process_finish(user);
  await_counted(maker, 0, "the process has ended");
  end(maker, known);
}

/* Who opens what was let go waits for the turn of its maker. */
TEST(a_maker_that_has_no_turn) {
  char handle[LINE], line[LINE];
  begin("on");
  struct process *maker = start(swap);
  ask(maker, "alloc 0 8388608", NULL); /* it is job 1 */
  share(maker, 0, handle);
  struct process *user = open_while_paused(handle, maker);
  CHECK(scene_ctl(&scene, NULL, 0, "resume", "1", NULL) == 0);
  CHECK(process_line(user, line, sizeof line) && strncmp(line, "done", 4) == 0, "%s", line);
  ask(user, "verify 0 0", NULL);
  process_finish(user);
  user = open_while_paused(handle, maker);
  process_await_log(user, "has left the card: this waits for the turn");
  process_kill(maker);
  CHECK(process_line(user, line, sizeof line) && strcmp(line, "error 400") == 0, "%s", line);
  end(user, NULL);
}

/* The driver waits for work, so as to destroy the context. No memory of it comes back any more. */
TEST(a_maker_whose_context_is_leaving) {
  static const char *const drained[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_PREEMPT=off", NULL};
  char handle[LINE], line[LINE];
  begin("on");
  struct process *maker = start(drained), *user = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  open_until_it_is_let_go(user, handle);
  ask(maker, "spin 0 2000000000", NULL);
  process_say(maker, "reset");
  process_say(user, opening(0, handle)); /* before that, if the maker is slow */
  CHECK(process_line(user, line, sizeof line) && (!strcmp(line, "error 400") || !strncmp(line, "done", 4)),
        "%s", line);
  CHECK(process_line(maker, line, sizeof line) && strncmp(line, "done", 4) == 0, "%s", line);
  end(maker, user);
}

static bool is_shared(const struct scene_status *status, const void *maker) {
  char line[LINE];
  (void)status;
  process_say((struct process *)maker, "share 0");
  return process_line((struct process *)maker, line, sizeof line) && strncmp(line, "done", 4) == 0;
}

/* The other one could not run beside it. The one that is refused takes its turns as before. */
TEST(what_is_refused) {
  char order[32];
  begin_with("on", "256M");
  struct process *maker = start(swap), *other = start(swap);
  ask(other, "alloc 0 250000000", NULL);
  ask(maker, "alloc 0 25165824", NULL);
  for (int i = 1; i < 4; i++) {
    snprintf(order, sizeof order, "verify 0 %d", i);
    expect_error(maker, "share 0", 2);
    ask(other, "add 0 1", NULL);
    ask(maker, "add 0 1", NULL);
    ask(other, order, NULL);
    ask(maker, order, NULL);
  }
  CHECK(process_log_count(maker, "no room") == 1);
  ask(other, "free 0", NULL);
  ask(other, "fits 0 4194304", NULL); /* the daemon hears of it */
  scene_await(&scene, is_shared, maker, "what was freed is not expected back");
  await_counted(maker, 24 * MIB, "now there is room");
  end(maker, other);
}

/* An allocation that gets the memory of one that was shared has not the name of that. */
TEST(what_was_freed_after_it_was_let_go) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 2097152", NULL);
  share(maker, 0, handle);
  open_until_it_is_let_go(user, handle);
  ask(maker, "free 0", NULL);
  ask(maker, "alloc 0 2097152", NULL);
  expect_error(user, opening(0, handle), 400);
  end(maker, user);
}

/* What was closed before is counted by nobody, and no connection is left of it. */
TEST(what_is_closed_is_not_counted) {
  char handle[LINE], other[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  ask(maker, "alloc 1 4194304", NULL);
  share(maker, 0, handle);
  share(maker, 1, other);
  ask(user, opening(0, handle), NULL);
  int makers = test_descriptors(maker->pid), users = test_descriptors(user->pid);
  for (int i = 0; i < 32; i++) {
    ask(user, "close 0", NULL);
    ask(user, opening(0, handle), NULL);
  }
  ask(user, "close 0", NULL);
  ask(user, opening(1, other), NULL);
  CHECK(makers > 2 && users > 2, "they can't be seen");
  CHECK(test_descriptors(maker->pid) < makers + 8 && test_descriptors(user->pid) < users + 8,
        "connections are left");
  process_kill(maker);
  await_counted(user, 4 * MIB, "what is open");
  end(user, NULL);
}

static bool is_refused(const struct scene_status *status, const void *unused) {
  (void)status, (void)unused;
  return process_log_count(scene.daemon, "is refused") > 0;
}

/* Where there is no room for what is there already, the daemon is asked again. */
TEST(it_is_counted_once_there_is_room) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap), *other = start(swap);
  ask(other, "alloc 0 33554432", NULL);
  ask(maker, "alloc 0 31457280", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  CHECK(scene_ctl(&scene, NULL, 0, "set-capacity", "48M", NULL) == 0);
  process_kill(maker);
  scene_await(&scene, is_refused, NULL, "the other one could not run beside it");
  await_counted(user, 0, "it does not count");
  CHECK(scene_ctl(&scene, NULL, 0, "set-capacity", "112M", NULL) == 0);
  await_counted(user, 30 * MIB, "now it does");
  ask(user, "verify 0 0", NULL);
  ask(other, "verify 0 0", NULL);
  end(other, user);
}

/* Two that use each other's memory, and both must go for a third one. */
TEST(what_two_have_of_each_other_leaves) {
  char handle[LINE], order[LINE];
  begin_exactly("on", "small,capacity=148MiB", "144M");
  struct process *one = start(swap), *two = start(swap), *other = start(swap);
  ask(one, "alloc 0 37748736", NULL);
  ask(two, "alloc 1 37748736", NULL);
  share(one, 0, handle);
  ask(two, opening(0, handle), NULL);
  share(two, 1, handle);
  ask(one, opening(1, handle), NULL);
  take_when_granted(other, "134217728");
  for (int i = 1; i < 3; i++) {
    ask(one, "add 1 1", NULL);
    ask(other, "add 1 1", NULL);
    ask(two, "add 0 1", NULL);
    for (int slot = 0; slot < 2; slot++) {
      snprintf(order, sizeof order, "verify %d %d", slot, i);
      ask(one, order, NULL);
      ask(two, order, NULL);
    }
    snprintf(order, sizeof order, "verify 1 %d", i);
    ask(other, order, NULL);
  }
  process_finish(other);
  end(one, two);
}

/* A user that goes while it is away, one that is killed as it has it, and a maker that frees it. */
TEST(users_come_and_go) {
  char handle[LINE];
  begin_exactly("on", "small,capacity=116MiB", "112M");
  struct process *maker = start(swap), *user = start(swap), *killed = start(swap), *other = start(swap);
  ask(maker, "alloc 0 67108864", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  ask(killed, opening(0, handle), NULL);
  take_when_granted(other, "100000000");
  ask(killed, "add 0 1", NULL);
  process_kill(killed);
  ask(other, "add 1 1", NULL);
  ask(user, "verify 0 1", NULL);
  ask(other, "add 1 1", NULL);
  ask(user, "close 0", NULL);
  ask(user, opening(0, handle), NULL);
  ask(user, "add 0 4", NULL);
  ask(other, "verify 1 2", NULL);
  ask(maker, "verify 0 5", NULL);
  ask(user, "verify 0 5", NULL);
  ask(maker, "free 0", NULL);
  await_counted(user, 64 * MIB, "it stays for the user, which knows");
  ask(user, "verify 0 5", NULL);
  ask(user, "close 0", NULL);
  await_counted(user, 0, "nobody has it");
  ask(other, "verify 1 2", NULL);
  process_finish(other);
  end(maker, user);
}

/* A user whose program has closed the connection can't make way, nor say that it has closed the memory: the
 * maker counts that as pinned, until the process has ended. */
TEST(a_user_that_has_closed_its_connection) {
  char handle[LINE], other[LINE];
  begin_exactly("on", "small,capacity=256MiB", "250M");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 67108864", NULL);
  ask(maker, "alloc 1 33554432", NULL);
  share(maker, 0, handle);
  share(maker, 1, other);
  ask(user, opening(0, handle), NULL);
  ask(user, "closefrom", NULL);
  await_counted(maker, 64 * MIB, "it can't make way");
  ask(user, opening(1, other), NULL);
  await_counted(maker, 64 * MIB, "the other one can");
  await_counted(user, 0, "its maker counts it");
  ask(user, "add 0 1", NULL);
  ask(user, "close 0", NULL);
  ask(maker, "verify 0 1", NULL);
  ask(user, "closefrom", NULL);
  ask(user, "close 1", NULL);
  await_counted(maker, 96 * MIB, "nobody has said that they are closed");
  process_kill(user);
  await_counted(maker, 0, "the process has ended");
  ask(maker, "verify 0 1", NULL);
  end(maker, NULL);
}

/* It is away as its maker dies: who touches it meets an error, and nobody stands still. */
TEST(a_maker_dies_while_it_is_away) {
  char handle[LINE], line[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap), *other = start(swap);
  ask(maker, "alloc 0 67108864", NULL);
  ask(user, "alloc 1 4194304", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  take_when_granted(other, "100000000");
  ask(other, "add 1 1", NULL);
  process_kill(maker);
  ask(user, "verify 1 0", NULL);
  CHECK(process_log_count(user, "are gone") == 1);
  ask(user, "close 0", NULL);
  ask(other, "verify 1 1", NULL);
  process_say(user, "verify 1 0");
  CHECK(process_line(user, line, sizeof line));
  process_finish(other);
  end(user, NULL);
}

/* What counts here is no way round a limit. If it is more than the limit, it is not taken away. */
TEST(limits_hold_for_what_was_opened) {
  static const char *const limited[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY_LIMIT=24M", NULL};
  char handle[LINE];
  begin("on");
  struct process *makers[] = {start(swap), start(swap)}, *user = start(limited);
  for (int i = 0; i < 2; i++) {
    ask(makers[i], "alloc 0 16777216", NULL);
    share(makers[i], 0, handle);
    ask(user, opening(i, handle), NULL);
  }
  ask(user, "fits 2 16777216", NULL);
  process_kill(makers[0]);
  await_counted(user, 16 * MIB, "what its maker has left");
  expect_error(user, "fits 2 16777216", 2);
  ask(user, "fits 2 4194304", NULL);
  process_kill(makers[1]);
  await_counted(user, 24 * MIB, "as much as it may have");
  expect_error(user, "fits 2 4194304", 2);
  ask(user, "add 0 1", NULL);
  ask(user, "verify 0 1", NULL);
  ask(user, "verify 1 0", NULL);
  ask(user, "close 1", NULL);
  await_counted(user, 16 * MIB, "the other one");
  expect_error(user, "fits 2 16777216", 2);
  ask(user, "fits 2 4194304", NULL);
  end(user, NULL);
}

/* Two allocations of one block, whose maker dies: the block counts once for each process, until it has closed
 * both. A child of the maker's has copies of its descriptors, and lives on. */
TEST(a_maker_dies) {
  static const char *const tells[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_LOG=info", NULL};
  char first[LINE], second[LINE], order[32], made[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(tells), *third = start(swap);
  ask(maker, "alloc 0 65536", NULL);
  ask(maker, "alloc 1 65536", NULL);
  share(maker, 0, first);
  share(maker, 1, second);
  ask(user, opening(0, first), NULL);
  ask(user, opening(1, second), NULL);
  ask(third, opening(0, first), NULL);
  ask(maker, "alloc 2 8388608", NULL);
  share(maker, 2, first);
  ask(third, opening(1, first), NULL);
  await_pinned(10 * MIB, "its maker counts it");
  snprintf(order, sizeof order, "fork 0 %d", (int)user->pid);
  ask(maker, order, made);
  process_kill(maker);
  await_counted(user, 2 * MIB, "it counts here");
  ask(user, "fits 2 8388608", NULL); /* the daemon hears of all that there is */
  await_counted(user, 2 * MIB, "and once");
  await_counted(third, 10 * MIB, "and there, with another block");
  ask(user, "close 1", NULL);
  ask(user, "verify 0 0", NULL);
  ask(third, "verify 0 0", NULL);
  ask(user, "fits 2 8388608", NULL);
  await_counted(user, 2 * MIB, "the other one is open still");
  CHECK(process_log_count(user, "they count here from now on") == 1, "it did not count for a while");
  ask(user, "close 0", NULL);
  await_counted(user, 0, "it has closed both");
  ask(third, "reset", NULL);
  await_pinned(0, "nobody has it");
  pid_t child = (pid_t)strtol(made, NULL, 10);
  process_finish(user);
  process_await_gone(child);
  end(third, NULL);
}

/* Two allocations of one block. One of them is being closed, and that waits for work. Until it ends, the
 * block is known to count, so that a look at what dead makers have left does not book it for the other one.
 */
TEST(what_is_being_closed_is_not_counted_twice) {
  static const char *const limited[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY_LIMIT=13M", NULL};
  char handle[LINE], own[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(limited), *third = start(swap);
  ask(maker, "alloc 0 65536", NULL);
  ask(maker, "alloc 1 65536", NULL);
  for (int i = 0; i < 2; i++) {
    share(maker, i, handle);
    ask(user, opening(i, handle), NULL);
  }
  ask(user, "alloc 2 65536", NULL);
  share(user, 2, own);
  process_kill(maker);
  await_counted(user, 4 * MIB, "a block of its own, and one that its maker has left");
  ask(user, "spin 0 3600000000000", NULL);
  ask(user, "closing 1", NULL); /* that one counts for both */
  for (int i = 0; i < 3; i++)
    knock(third, own);
  ask(user, "take 3 8388608", NULL); /* 12 MiB in all */
  process_kill(user);
  end(third, NULL);
}

/* A context takes all of its memory with it, also what is shared and what is opened in it. */
TEST(contexts_end) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  ask(user, "reset", NULL);
  expect_error(user, "close 0", 1);
  ask(user, opening(0, handle), NULL);
  ask(user, "verify 0 0", NULL);
  ask(maker, "reset", NULL);
  await_counted(maker, 8 * MIB, "it is open still");
  ask(user, "close 0", NULL);
  expect_error(user, opening(0, handle), 400);
  CHECK(scene_card(&scene, 0).pinned_bytes < 8 * MIB);
  end(maker, user);
}

TEST(what_cant_be_opened) {
  char handle[LINE], freed[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  ask(maker, "alloc 1 8388608", NULL);
  share(maker, 0, handle);
  share(maker, 1, freed);
  ask(maker, "free 1", NULL);
  expect_error(maker, opening(2, handle), 201); /* its own */
  expect_error(user, opening(2, freed), 400);
  knock(user, handle);
  ask(user, opening(2, handle), NULL);
  expect_error(user, "share 2", 1); /* what is opened is not its own */
  expect_error(user, "free 2", 1);
  process_finish(maker);
  ask(user, "verify 2 0", NULL);
  ask(user, "close 2", NULL);
  expect_error(user, opening(3, handle), 400);
  CHECK(process_log_count(user, "can't be opened") > 0);
  end(user, NULL);
}

/* Programs close descriptors that they don't know (closefrom): what is made later is open again. */
TEST(descriptors_are_closed) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  share(maker, 0, handle);
  ask(maker, "closefrom", NULL);
  expect_error(user, opening(0, handle), 400);
  share(maker, 0, handle);
  ask(user, opening(0, handle), NULL);
  ask(user, "verify 0 0", NULL);
  end(maker, user);
}

static void take_turns(struct process *maker, struct process *other) {
  for (int i = 1; i < 4; i++) {
    char order[32];
    snprintf(order, sizeof order, "verify 0 %d", i);
    ask(maker, "add 0 1", NULL);
    ask(maker, order, NULL);
    ask(other, "add 0 1", NULL);
  }
  ask(maker, "add 0 1", NULL);
}

/* The maker's slot 0 is memory that has come from the other one, and was added to four times. */
static void pass_memory(struct process *maker, struct process *other, const char *how) {
  char order[32];
  snprintf(order, sizeof order, "%s 1 67108864", how);
  ask(maker, order, NULL);
  snprintf(order, sizeof order, "%s 0 33554432", how); /* the newest leaves first */
  ask(maker, order, NULL);
  ask(other, "alloc 0 67108864", NULL);
  take_turns(maker, other);
  CHECK(scene_process(&scene, maker, 0).counters[GS_SIM_imported] > 0, "nothing was passed");
}

/* Memory that has come from another process the driver does not export again: only what it came with can be
 * passed on. If the program has closed that, or has no descriptor left for it, the handle is refused, and the
 * memory is as it was. */
static void share_what_was_passed_on(const char *first, const char *then, bool can_share) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *other = start(swap);
  ask(maker, first, NULL);
  pass_memory(maker, other, "alloc");
  ask(maker, then, NULL);
  if (!can_share) {
    expect_error(maker, "share 0", 801);
    CHECK(process_log_count(maker, "ulimit -n") == 1);
  } else {
    share(maker, 0, handle);
    struct process *user =
        start(managed); /* it opens memory without a turn: so that is still what has come */
    ask(user, opening(1, handle), NULL);
    ask(user, "verify 1 4", NULL);
    ask(user, "add 1 1", NULL);
    ask(maker, "add 0 -1", NULL);
    process_finish(user);
  }
  ask(maker, "verify 0 4", NULL);
  end(maker, other);
}

/* An export makes memory of the driver's own instead. */
TEST(memory_that_was_passed_on_is_exported) {
  begin("on");
  struct process *maker = start(swap), *other = start(swap);
  pass_memory(maker, other, "create");
  ask(other, "free 0", NULL);
  ask(maker, "export 0 4", NULL);
  end(maker, other);
}

TEST(memory_that_was_passed_on) { share_what_was_passed_on("crowd 0 1", "fits 2 65536", true); }
TEST(memory_that_was_passed_on_and_closed) { share_what_was_passed_on("fits 2 65536", "closefrom", false); }
TEST(memory_that_was_passed_on_beyond_its_descriptors) {
  share_what_was_passed_on("crowd 0 2", "fits 2 65536", false);
}

/* What was let go comes back as memory of its own, so that it can be lent again. */
TEST(memory_that_is_lent_again_was_not_passed_on) {
  char handle[LINE];
  begin_with("on", "176M"); /* 64 of it others may pin without asking */
  struct process *maker = start(swap), *other = start(swap);
  ask(maker, "alloc 1 67108864", NULL);
  ask(maker, "alloc 0 33554432", NULL);
  share(maker, 0, handle);
  open_until_it_is_let_go(other, handle);
  ask(other, "alloc 0 109051904", NULL);
  take_turns(maker, other);
  CHECK(scene_process(&scene, maker, 0).counters[GS_SIM_copied_out_bytes] >= 32 * MIB, "nothing has left");
  ask(maker, "closefrom", NULL);
  ask(other, "free 0", NULL);
  share(maker, 0, handle);
  ask(other, opening(1, handle), NULL);
  ask(other, "verify 1 4", NULL);
  end(maker, other);
}

/* To wait for work would invalidate a capture. */
TEST(while_a_capture_is_open) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(swap), *user = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  ask(maker, "capture", NULL);
  share(maker, 0, handle);
  ask(maker, "uncapture", NULL);
  ask(user, opening(0, handle), NULL);
  ask(user, "capture", NULL);
  ask(user, "verify 0 0", NULL);
  ask(user, "close 0", NULL); /* it ends later */
  ask(user, opening(0, handle), NULL);
  ask(user, "uncapture", NULL);
  ask(user, "close 0", NULL);
  await_counted(maker, 0, "it is closed");
  ask(user, opening(0, handle), NULL);
  await_counted(maker, 8 * MIB, "it is open");
  ask(user, "capture", NULL);
  ask(user, "close 0", NULL);
  ask(user, "uncapture", NULL);
  await_counted(maker, 0, "it is closed once the capture has ended");
  ask(maker, "free 0", NULL);
  CHECK(scene_card(&scene, 0).pinned_bytes < 8 * MIB);
  end(maker, user);
}

/* Small memory stays on the card anyhow, under `managed`, too: sharing it changes no books. */
TEST(small_memory_beside_unified) {
  char handle[LINE];
  begin("on");
  struct process *maker = start(managed), *user = start(managed);
  for (int i = 0; i < 3; i++) {
    ask(maker, "alloc 0 65536", NULL);
    await_pinned(2 * MIB, "a block for small ones");
    share(maker, 0, handle);
    ask(user, opening(0, handle), NULL);
    ask(user, "verify 0 0", NULL);
    ask(user, "close 0", NULL);
    await_pinned(2 * MIB, "it is the same");
    ask(maker, "free 0", NULL);
    await_pinned(0, "it has ended");
  }
  end(maker, user);
}

/* Unified memory can't be shared: the log says what can. */
TEST(unified_memory) {
  char answer[LINE];
  begin("on");
  struct process *maker = start(managed);
  ask(maker, "alloc 0 8388608", NULL);
  expect_error(maker, "share 0", 801);
  expect_error(maker, "share 0", 801);
  ask(maker, "describe 0", answer);
  CHECK(strcmp(answer, "0") == 0);
  CHECK(process_log_lines(maker) == 1, "%d lines", process_log_lines(maker));
  CHECK(process_log_count(maker, "GPUSHARE_MEMORY=swap") == 1);
  end(maker, NULL);
}

TEST(what_may_be_shared) {
  char answer[LINE];
  begin("on");
  struct process *maker = start(swap);
  ask(maker, "alloc 0 8388608", NULL);
  ask(maker, "describe 0", answer);
  CHECK(strcmp(answer, "1") == 0);
  ask(maker, "async 1 8388608", NULL);
  ask(maker, "describe 1", answer);
  CHECK(strcmp(answer, "0") == 0);
  expect_error(maker, "share 1", 1);
  end(maker, NULL);
}
