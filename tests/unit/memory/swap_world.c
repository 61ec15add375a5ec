/* swap_world.c - the simulated driver, and stand-ins for client, gate and host. */
#include "swap_world.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "client/client.h"
#include "common/clock.h"
#include "common/host.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "gpushare/protocol.h"
#include "memory/backend.h"
#include "memory/pinned.h"
#include "memory/swap/swap.h"
#include "settings.h"
#include "sim.h"

struct world world;
struct driver driver;
static struct settings set = {.memory = GS_MEMORY_MANAGED, .carry = true};

/* ---- the rest of the library ---- */

const struct settings *settings(void) { return &set; }
uint64_t host_available_bytes(void) { return world.host_bytes; }
bool host_is_plentiful(void) { return world.plentiful; }
struct memory_bounds client_bounds(CUdevice device) {
  (void)device;
  return (struct memory_bounds){.why = GS_REFUSAL_SPENT};
}

uint64_t client_capacity(CUdevice device) { return device < 0; }
bool client_is_stopped(CUdevice device) { return device < 0 || world.stopped; }
void gate_forbid_stop(CUdevice device) { (void)device; }
void gate_allow_stop(void) {}
CUdevice contexts_device(CUcontext context) { return context ? 0 : -1; }
void *contexts_hold(CUcontext context) {
  static char held;
  world.held += context && !world.leaving;
  return context && !world.leaving ? &held : NULL;
}
void contexts_let_go(void *held) { world.held -= held != NULL; }
uint64_t client_room_bytes(CUdevice device) { return device < 0 ? 0 : world.room_bytes; }

int client_memory_mode(CUdevice device) {
  (void)device;
  return GS_MEMORY_SWAP;
}

int client_memory_request(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                          _Atomic uint64_t *seen_ns) {
  (void)device, (void)total_bytes, (void)pinned_bytes, (void)anew, (void)seen_ns;
  return 0;
}

void client_memory_report(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes) {
  (void)device, (void)total_bytes, (void)pinned_bytes;
}

bool client_room_wait(CUdevice device, uint64_t bytes) {
  world.room_waits++;
  return device == 0 && world.room_wait && world.room_wait(bytes);
}

void reserves_waited(void) {}
void reserves_set_spares(uint64_t (*drop)(CUdevice device)) { (void)drop; }

int reserve_or_trim(CUdevice device, enum backing backing, uint64_t bytes) {
  return budget_reserve(device, backing, bytes, false);
}

int pin_or_trim(CUdevice device, uint64_t bytes, void (*change)(void *argument), void *argument) {
  return budget_pin(device, bytes, change, argument);
}

void client_memory_short(CUdevice device, uint64_t bytes) {
  world.short_bytes += device ? 0 : bytes;
  if (world.on_short)
    world.on_short();
}

static void client_wake(void) { world.timer_wakes++; }

const struct memory_port memory_port = {.mode = client_memory_mode,
                                        .capacity = client_capacity,
                                        .bounds = client_bounds,
                                        .request = client_memory_request,
                                        .report = client_memory_report,
                                        .room_bytes = client_room_bytes,
                                        .room_wait = client_room_wait,
                                        .wake_timers = client_wake,
                                        .falls_short = client_memory_short,
                                        .is_stopped = client_is_stopped};

unsigned capture_count(void) { return world.capturing; }
void capture_forbid(void) { world.captures_forbidden++; }
void capture_allow(void) { world.captures_forbidden--; }
void capture_wait_begin(void) {}
void capture_wait_end(void) {}
enum streams_state streams_ask(CUdevice device) {
  (void)device;
  return STREAMS_FINISHED;
}
uint64_t streams_generation(void) { return 0; }

bool contexts_each(CUdevice device, bool (*visit)(CUcontext context, void *argument), void *argument) {
  bool more = true;
  for (int i = 0; i < CONTEXTS && more && device == 0; i++)
    if (world.context[i] && driver.cuCtxPushCurrent_v2(world.context[i]) == CUDA_SUCCESS) {
      more = visit(world.context[i], argument);
      driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
    }
  return more;
}

struct action {
  void (*run)(void *argument);
  void *argument;
};

static bool run_once(CUcontext context, void *argument) {
  struct action *action = argument;
  (void)context;
  action->run(action->argument);
  return false;
}

bool contexts_any(CUdevice device, void (*action)(void *argument), void *argument) {
  return !contexts_each(device, run_once, &(struct action){action, argument});
}

/* The gate, which is shut while memory moves. */
bool gate_is_open(CUdevice device) { return device == 0 && world.gate_open; }
bool gate_in_flight(void) { return world.in_flight; }
bool gate_try_enter(CUstream stream) { return !stream || world.gate_open; }

/* ---- the driver ---- */

static char state_path[64];
pid_t world_owner;

static void fill_driver(void) {
#define GATED(group, name, params, args, stream) *(void **)&driver.name = dlsym(RTLD_DEFAULT, #name);
#define CUSTOM(group, name, params, args) *(void **)&driver.name = dlsym(RTLD_DEFAULT, #name);
#define CALL(name, params) *(void **)&driver.name = dlsym(RTLD_DEFAULT, #name);
#include "driver/hooks.def"
}

void world_start(const char *card) {
  snprintf(state_path, sizeof state_path, "/tmp/swap-test-%d", (int)(world_owner ? world_owner : getpid()));
  if (!world_owner)
    unlink(state_path); /* a process of this number that was killed may have left it */
  setenv("GPUSHARE_SIM_STATE", state_path, 1);
  setenv("GPUSHARE_SIM_CARD", card, 1);
  fill_driver();
  world = (struct world){.room_bytes = UINT64_MAX, .host_bytes = 4 * GIB, .plentiful = true};
  ck_assert_int_eq(driver.cuInit(0), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuDevicePrimaryCtxRetain(&world.context[0], 0), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuCtxPushCurrent_v2(world.context[0]), CUDA_SUCCESS);
  ck_assert(backend_swap.supported(0));
}

void world_end(void) { unlink(state_path); }

CUresult world_try(CUcontext context, size_t bytes, void **memory) {
  CUdeviceptr address = 0;
  struct allocation like = {.context = context, .origin = ORIGIN_PLAIN};
  CUresult result = backend_swap.allocate(&address, bytes, &like);
  *memory = (void *)(uintptr_t)address;
  return result;
}

void *world_get(size_t bytes) {
  void *memory;
  return world_try(world.context[0], bytes, &memory) == CUDA_SUCCESS ? memory : NULL;
}

void world_free(void *memory) {
  struct allocation taken;
  ck_assert(account_take(&account_addresses, (uintptr_t)memory, &taken));
  ck_assert_uint_eq(taken.backing, BACKING_SWAP);
  backend_swap.free(&taken, false);
}

enum memory_progress world_settle(uint64_t room_bytes, struct memory_moved *moved) {
  struct memory_moved ignored = {0};
  enum memory_progress progress;
  do
    progress = backend_swap.step(0, room_bytes, moved ? moved : &ignored);
  while (progress == MEMORY_MOVED);
  return progress;
}

void world_open(void) {
  ck_assert_int_eq(world_settle(UINT64_MAX, NULL), MEMORY_SETTLED);
  ck_assert(backend_swap.open(0, true, true));
}

uint64_t world_card_bytes(CUdevice device) {
  struct gs_sim_process process;
  ck_assert_int_eq(gs_sim_process_read(NULL, getpid(), (unsigned)device, &process), 0);
  return process.pinned_bytes;
}

void world_check_books(void) {
  ck_assert_uint_eq(backend_swap.resident_bytes(0), world_card_bytes(0));
  ck_assert_uint_eq(backend_swap.needed_bytes(0), budget_used_bytes(0, BACKING_SWAP));
  ck_assert_uint_le(backend_swap.resident_bytes(0), backend_swap.needed_bytes(0));
}

/* ---- contents ---- */

static uint64_t word(uint64_t seed, uint64_t i) { return (seed + i) * UINT64_C(0x9e3779b97f4a7c15); }

void world_fill(void *memory, size_t bytes, uint64_t seed) {
  char *at = memory;
  size_t whole = bytes / 8 * 8;
  gs_sim_touch((uintptr_t)memory, bytes);
  for (size_t i = 0; i < whole; i += 8)
    *(uint64_t *)(at + i) = word(seed, i);
  for (size_t i = whole; i < bytes; i++)
    at[i] = (char)word(seed, i);
}

bool world_intact(const void *memory, size_t bytes, uint64_t seed) {
  const char *at = memory;
  size_t whole = bytes / 8 * 8;
  for (size_t i = 0; i < whole; i += 8)
    if (*(const uint64_t *)(at + i) != word(seed, i))
      return false;
  for (size_t i = whole; i < bytes; i++)
    if (at[i] != (char)word(seed, i))
      return false;
  return true;
}
