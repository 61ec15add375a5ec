/*
 * fuzz_client.c - bytes as what a daemon says to the library, which may be a newer one, or another program
 * altogether: through the connection's thread and the GPU's worker, in a program of one GPU.
 *
 * Input: records of one byte and one message. The byte says: bit 0, the header is made right first; bit 1,
 * the message is of the GPU that is used, and of its last grant; bit 2, the connection ends instead; bit 3,
 * the packet has another size; bit 4, memory is away from the card; bit 5, the driver has no room for it;
 * bit 6, the program is at the memory's lock.
 *
 * Once the daemon has gone, whatever it has said, the program runs on.
 *
 * Built with -fsanitize=fuzzer this is a libFuzzer target. Otherwise it has a main: see fuzz_files.h.
 */
#include <stdbool.h>

#include "common/condition.h"
#include "common/splitmix.h"
#include "common/thread.h"
#include "common/wire.h"
#include "fuzz_files.h"

#define played_assert(right) fuzz_require(right, #right)
#include "unit/client/played_library.h"
#include "unit/client/played_threads.h"

#define RECORD (1 + GS_MSG_SIZE)

static struct {
  const uint8_t *data;
  size_t size;
  bool ended; /* the connection */
  unsigned connections;
} input;

static void deliver(void);

/* Whoever waits gets the next message. */
static bool played_wait(struct condition *condition, struct lock *lock, uint64_t deadline_ns) {
  (void)condition;
  lock_release(lock);
  deliver();
  lock_take(lock);
  return deadline_ns == UINT64_MAX;
}

#define condition_wait played_wait
#define thread_start_needed played_start
#include "client/connection.c"
#include "client/progress.c"
#include "client/worker.c"
#undef condition_wait
#undef thread_start_needed
#include "unit/client/played_devices.h"

/* ---- the post, as post.h wants it ---- */

int post_start(struct lock *lock, void (*arrived)(void)) { return lock && arrived ? 0 : -EINVAL; }

int post_connect(const char *path) {
  fuzz_require(*path == '/', "no path");
  input.ended = input.size < RECORD;
  input.connections++;
  return input.ended ? -ENOENT : 0;
}

void post_send(const struct gs_msg *msg) {
  struct gs_msg copy = *msg;
  fuzz_require(wire_check(&copy, sizeof copy) == 0, "the library sends what it would not take");
  fuzz_require(msg->type < GS_REGISTERED && msg->gpu < GS_GPUS_PER_CLIENT, "not what a client says");
  fuzz_require(memcmp(&copy, msg, sizeof copy) == 0, "a text without an end");
}

bool post_take(struct letter *letter) {
  *letter = (struct letter){0};
  if (input.ended || input.size < RECORD) {
    letter->err = -ECONNRESET;
    return true;
  }
  uint8_t how = input.data[0];
  memcpy(&letter->msg, input.data + 1, GS_MSG_SIZE);
  input.data += RECORD;
  input.size -= RECORD;
  if (how & 1) {
    letter->msg.magic = GS_MAGIC;
    letter->msg.version = GS_PROTOCOL_VERSION;
  }
  if (how & 2) {
    letter->msg.gpu = 0;
    letter->msg.epoch = client.gpus[0].machine.epoch;
  }
  away_steps = how & 16 ? 3 : away_steps;
  short_steps = how & 32 ? 2 : 0;
  locked = how & 64;
  letter->err = how & 4 ? -ECONNRESET : wire_check(&letter->msg, how & 8 ? GS_MSG_SIZE - 1 : GS_MSG_SIZE);
  input.ended = letter->err != 0 && letter->err != -ENOSYS && letter->err != -EPROTONOSUPPORT;
  return true;
}

void post_shut(void) { input.ended = true; }
void post_hang_up(void) { input.ended = true; }
void post_flush(uint64_t deadline_ns) { (void)deadline_ns; }
void post_fork_child(void) {}

/* ---- one input ---- */

/* As the connection's thread, but for one message at a time, and without a pause between attempts. */
static void deliver(void) {
  struct letter letter;
  client.retry_at_ns = 0;
  if (take_letter(&letter)) {
    if (letter.err == 0)
      on_message(&letter);
    else if (letter.err == -EPROTONOSUPPORT)
      on_other_version(letter.msg.version);
    else if (letter.err != -ENOSYS) {
      lock_take(&client.lock);
      disconnect("the connection ended", 0);
      lock_release(&client.lock);
    }
  }
  attach_all();
  run_timers();
}

/* Until the worker would rest. */
static void work(struct gpu *gpu, unsigned most) {
  lock_take(&client.lock);
  for (; most > 0 && next_work(gpu, false) != WORK_REST; most--)
    work_once(gpu);
  progress_look();
  lock_release(&client.lock);
}

static void begin_input(const uint8_t *data, size_t size) {
  gate_used = gate_opened = locked = false;
  away_steps = short_steps = steps = 0;
  has_room = true;
  input.data = data;
  input.size = size;
  input.connections = 0;
  client_fork_child();
  client_attach(0);
}

static void end_input(struct gpu *gpu) {
  away_steps = short_steps = 0;
  locked = false;
  do
    deliver();
  while (client.connected);
  work(gpu, 100);
  fuzz_require(gate_opened && gpu->machine.holding, "a program that waits for a daemon that has gone");
}

static CUresult get_total(size_t *bytes, CUdevice device) {
  *bytes = (size_t)device + 1;
  return CUDA_SUCCESS;
}

static CUresult get_free(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = *total_bytes = 1;
  return CUDA_SUCCESS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gpu *gpu = client.gpus;
  driver.cuDeviceGetUuid_v2 = get_uuid;
  driver.cuDeviceTotalMem_v2 = get_total;
  driver.cuDeviceGetName = get_name;
  driver.cuMemGetInfo_v2 = get_free;
  log_setup("fuzz", LOG_LEVEL_ERROR);
  begin_input(data, size);
  while (input.size >= RECORD) {
    deliver();
    work(gpu, 4);
  }
  end_input(gpu);
  return 0;
}

#ifndef GS_LIBFUZZER

/* ---- without libFuzzer ---- */

#define RECORDS 200

static uint64_t random_state;
static uint8_t history[RECORDS * RECORD];

static unsigned random_below(unsigned bound) { return (unsigned)(splitmix_next(&random_state) % bound); }

static void randomize(void *bytes, size_t size) {
  for (size_t i = 0; i < size; i++)
    ((uint8_t *)bytes)[i] = (uint8_t)splitmix_next(&random_state);
}

/* What a daemon might say, some of its fields random. */
static void make_record(uint8_t *record, unsigned i) {
  static const enum gs_msg_type types[] = {GS_LOCK_OK,     GS_LOCK_OK,     GS_DROP_LOCK, GS_DROP_LOCK,
                                           GS_ROOM,        GS_ROOM,        GS_MEM_REPLY, GS_CAPACITY,
                                           GS_ATTACHED,    GS_SCHED_ON,    GS_SCHED_OFF, GS_SPATIAL,
                                           GS_LOCK_WANTED, GS_LOCK_WANTED, GS_REGISTERED};
  enum gs_msg_type type = i == 0   ? GS_REGISTERED
                          : i == 1 ? GS_ATTACHED
                                   : types[random_below(sizeof types / sizeof *types)];
  if (random_below(60) == 0)
    type = random_below(3) ? GS_REJECTED : (enum gs_msg_type)random_below(128);
  struct gs_msg msg = wire_msg(type, 0);
  uint64_t values[] = {0, 1, 1000, UINT64_C(1) << 32, UINT64_C(1) << 62, UINT64_MAX, UINT64_MAX - 1};
  for (size_t at = 0; at + 8 <= sizeof msg.raw; at += 8)
    memcpy(msg.raw + at, &values[random_below(sizeof values / sizeof *values)], 8);
  if (random_below(20) == 0)
    randomize((uint8_t *)&msg + random_below(GS_MSG_SIZE - 8), 8);
  record[0] = (uint8_t)((random_below(256) & 0x70) | 3);
  if (random_below(40) == 0)
    record[0] ^= (uint8_t)(1 << random_below(4));
  memcpy(record + 1, &msg, sizeof msg);
}

static size_t make_history(unsigned records) {
  for (unsigned i = 0; i < records; i++)
    make_record(history + i * RECORD, i % 64);
  return records * RECORD;
}

static int run_random(uint64_t seed, uint64_t runs) {
  for (uint64_t i = 0; i < runs; i++) {
    random_state = seed + i;
    fprintf(stderr, "\rseed %llu ", (unsigned long long)random_state);
    LLVMFuzzerTestOneInput(history, make_history(1 + random_below(RECORDS)));
    randomize(history, sizeof history);
    LLVMFuzzerTestOneInput(history, sizeof history);
  }
  fprintf(stderr, "\n");
  return EXIT_SUCCESS;
}

static int write_corpus(const char *folder) {
  int result = EXIT_SUCCESS;
  for (unsigned i = 0; i < 32 && result == EXIT_SUCCESS; i++) {
    random_state = i;
    result = fuzz_write(folder, "history", i, history, make_history(8 + i));
  }
  return result;
}

int main(int argc, char **argv) { return fuzz_main(argc, argv, run_random, write_corpus); }

#endif
