/* test_client.c - the client where there is no worker: no thread can be started in this process. */
#include <check.h>
#include <errno.h>
#include <pthread.h>

#include "../suite.h"
#include "client/client.h"
#include "client/state.h"
#include "fork.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/ends.h"
#include "gate/gate.h"
#include "gate/pace.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "memory/device.h"
#include "memory/memory.h"
#include "meter/page.h"
#include "meter/watch.h"
#include "settings.h"

/* ---- the rest of the library ---- */

struct driver driver;
void driver_settle(void) {}
static struct settings set = {.socket = "/nonexistent"};

static bool used, open;
static bool in_context;
static unsigned away_steps;  /* so many are left until all memory is on the card */
static unsigned short_steps; /* of these: so many find the card full */
static unsigned steps_at_open;
static unsigned steps;
static bool locked;    /* somebody holds the memory's lock */
static unsigned waits; /* calls that may have to wait for him */

int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                          void *argument) {
  (void)thread, (void)attributes, (void)body, (void)argument;
  return EAGAIN;
}

const struct settings *settings(void) { return &set; }
void settings_complain(void) {}

void fork_watch(void) {}
void gate_add(CUdevice device) { used |= device == 0; }
bool gate_is_used(CUdevice device) { return device == 0 && used; }
bool gate_is_open(CUdevice device) { return device == 0 && open; }
void gate_open(CUdevice device) {
  open |= device == 0;
  steps_at_open = steps;
}
bool gate_close(CUdevice device, uint64_t timeout_ns) { return device == 0 && timeout_ns; }
bool gate_revoke_pulse(CUdevice device, uint64_t timeout_ns) { return device == 0 && timeout_ns; }
void gate_pulse(CUdevice device) { (void)device; }
void gate_let_pass(CUdevice device, uint64_t calls) { (void)device, (void)calls; }
bool gate_lets_pass(CUdevice device) { return device != 0; }
uint64_t gate_pulses(CUdevice device) { return (uint64_t)device; }
uint32_t gate_waiting(CUdevice device) { return (uint32_t)device; }
uint64_t gate_reached_from(CUdevice device) { return (uint64_t)device; }
bool gate_is_kept(CUdevice device) { return device != 0; }
void watch_attach(CUdevice device, struct gs_meter *page, int err) { (void)device, (void)page, (void)err; }
bool page_is_fit(int fd) { return fd >= 0; }
int page_map(int fd, struct gs_meter **page) { return page ? -fd : 0; }
void page_unmap(struct gs_meter *page) { (void)page; }
void watch_detach(CUdevice device) { (void)device; }
uint64_t gate_calls(void) { return 0; }
bool gate_in_flight(void) { return false; }

void gate_set_pace(CUdevice device, enum gate_pace pace) { (void)device, (void)pace; }
enum gate_pace gate_pace(CUdevice device) { return device == 0 ? GATE_FREE : GATE_HALTED; }
void pace_begin(CUdevice device, uint64_t now_ns) { (void)device, (void)now_ns; }
uint64_t pace_caught_up_ns(CUdevice device) { return (uint64_t)device; }
bool pace_is_behind(CUdevice device) { return device != 0; }
bool pace_held_back(CUdevice device) { return device != 0; }
void ends_watch(CUdevice device, bool watch) { (void)device, (void)watch; }
uint64_t ends_next_ns(CUdevice device, uint64_t now_ns) { return now_ns + (uint64_t)device; }

bool contexts_any(CUdevice device, void (*action)(void *argument), void *argument) {
  in_context = device == 0;
  action(argument);
  in_context = false;
  return true;
}
void contexts_synchronize(CUdevice device) { (void)device; }
bool streams_idle(CUdevice device) { return device == 0; }
unsigned capture_count(void) { return 0; }
void capture_forbid(void) {}
void capture_allow(void) {}
bool capture_wait_none(uint64_t timeout_ns) { return timeout_ns > 0; }

struct memory_usage memory_usage(CUdevice device) {
  (void)device;
  return (struct memory_usage){0};
}
void memory_pinned_arrives(CUdevice device, uint64_t bytes) { (void)device, (void)bytes; }
enum memory_mode device_memory_if_decided(CUdevice device) { return device ? MEMORY_OFF : MEMORY_SWAP; }
void memory_give_up(CUdevice device) { (void)device; }
void memory_close(CUdevice device) { (void)device; }
void memory_expect_moves(CUdevice device, bool expected) { (void)device, (void)expected; }
void memory_set_host_tight(bool tight) { (void)tight; }
uint64_t memory_run_timers(uint64_t now_ns) { return now_ns; }

static bool is_there(CUdevice device) { return device == 0 && !away_steps; }
bool memory_open(CUdevice device, uint64_t enough_bytes) {
  waits++;
  return is_there(device) && !enough_bytes;
}
bool memory_try_open(CUdevice device, uint64_t enough_bytes) {
  return is_there(device) && !locked && enough_bytes;
}

enum memory_progress memory_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  ck_assert(in_context && device == 0 && room_bytes == UINT64_MAX);
  steps++;
  if (short_steps) {
    short_steps--;
    return MEMORY_SHORT;
  }
  moved->in_bytes++;
  away_steps--;
  return MEMORY_MOVED;
}

static void set_up(void) {
  used = open = false;
  away_steps = short_steps = steps = waits = 0;
  locked = false;
}

static void tear_down(void) {}

START_TEST(without_a_worker_the_gate_opens_at_once) {
  client_attach(0);
  ck_assert(used && open);
  ck_assert_uint_eq(steps, 0);
  ck_assert_uint_eq(client_room_bytes(0), UINT64_MAX);
}
END_TEST

/* A program may allocate before it is known that there is no worker. */
START_TEST(without_a_worker_memory_comes_before_the_gate_opens) {
  away_steps = 3;
  short_steps = 2;
  client_attach(0);
  ck_assert(open);
  ck_assert_uint_eq(steps_at_open, 5);
}
END_TEST

/* The thread that hears the daemon has others to listen for. */
START_TEST(a_grant_never_waits_for_the_memory) {
  struct gpu *gpu = client_gpu(0);
  locked = true;
  pthread_mutex_lock(&client.lock);
  condition_init(&client.memory_changed);
  client_attach_device(gpu, 0);
  handover_begin_at_once(gpu);
  ck_assert(!open && gpu->grant_pending); /* for the worker */
  locked = gpu->grant_pending = false;
  handover_begin_at_once(gpu);
  ck_assert(open && !gpu->grant_pending);
  pthread_mutex_unlock(&client.lock);
  ck_assert_uint_eq(waits, 0);
}
END_TEST

/* The target is what the daemon knew of. */
START_TEST(what_was_allocated_just_before_the_grant_must_be_there_too) {
  struct gpu gpu = {
      .room_bound = true, .room_seq = 1, .room_bytes = 100, .target_bytes = 10, .total_bytes = 60};
  ck_assert_uint_eq(room_enough_bytes(&gpu), 60);
  gpu.total_bytes = 200; /* as far as there is room */
  ck_assert_uint_eq(room_enough_bytes(&gpu), 100);
  gpu.total_bytes = 5;
  ck_assert_uint_eq(room_enough_bytes(&gpu), 10);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      what_was_allocated_just_before_the_grant_must_be_there_too, without_a_worker_the_gate_opens_at_once,
      without_a_worker_memory_comes_before_the_gate_opens, a_grant_never_waits_for_the_memory, NULL};
  return suite_main("client", tests, set_up, tear_down);
}
