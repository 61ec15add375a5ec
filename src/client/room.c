/*
 * room.c - the worker's moves towards what the process may have on the card, as the daemon says: also while
 * others hold the GPU, and in either direction; and who waits for that room.
 *
 * New orders come between two steps. What a RESIDENT says is true because the worker sends it, which is in
 * the middle of no step then; or the connection thread does, while the worker rests.
 *
 * Without a daemon nobody says who makes way: a process whose swap memory is away brings back what fits, and
 * runs once all is there. Several that do so at the same time may have a part each, and none enough. So
 * whoever has found no more room for a while leaves the card again, and comes back some time later, when
 * there is enough for all that it lacks: then those that come do so one by one.
 */
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "client/client_state.h"
#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/splitmix.h"
#include "driver/driver.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/memory.h"

#define AGAIN_NS (100 * NS_PER_MS)

/* Without a daemon: how long a process looks for room before it makes room, and how long it stays away at
 * most, whatever the driver says is free: it might find room that others' unified memory leaves. */
#define FILL_NS (2 * NS_PER_S)
#define FILL_PAUSE_NS NS_PER_S
#define FILL_AGAIN_NS (10 * NS_PER_S)
/* A driver that has refused every move for so long is not believed to make one any more. */
#define GIVE_UP_NS (2 * NS_PER_S)

struct step {
  CUdevice device;
  uint64_t room_bytes;
  struct filling *filling; /* without a daemon */
  bool is_last;            /* the process runs once this has settled */
  bool long_failed;        /* the process waits for it, and the driver has refused for GIVE_UP_NS */
  struct memory_moved moved;
  enum memory_progress progress;
};

/* The program shall meet the errors itself. */
static void give_up(CUdevice device) {
  log_error("GPU %d: the driver does not bring the program's memory back", device);
  memory_give_up(device);
}

static void run_step(void *argument) {
  struct step *step = argument;
  step->progress = memory_step(step->device, step->room_bytes, &step->moved);
  if (step->progress == MEMORY_SETTLED && step->is_last)
    step->progress = memory_land(step->device);
  if (step->progress == MEMORY_FAILED && step->long_failed)
    give_up(step->device);
}

/* ---- steps without a daemon ---- */

static bool lacks_no_room(CUdevice device) {
  struct memory_usage usage = memory_usage(device);
  size_t free_bytes = 0, total_bytes;
  return driver.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
         free_bytes >= usage.total_bytes - usage.resident_bytes;
}

static void make_room(struct filling *filling, CUdevice device, uint64_t now_ns) {
  uint64_t random = now_ns + (uint64_t)getpid(); /* two that have met shall not come back together */
  filling->short_since_ns = 0;
  filling->away_until_ns = now_ns + splitmix_next(&random) % FILL_PAUSE_NS;
  filling->again_by_ns = now_ns + FILL_AGAIN_NS;
  if (!filling->said)
    log_warn("GPU %d: no daemon, and no room on the card for all of this program's memory beside others': it "
             "waits until they have ended, or a daemon is there",
             device);
  filling->said = true;
}

static void run_fill(void *argument) {
  struct step *step = argument;
  struct filling *filling = step->filling;
  uint64_t now_ns = clock_now_ns();
  bool away =
      now_ns < filling->away_until_ns || (now_ns < filling->again_by_ns && !lacks_no_room(step->device));
  step->room_bytes = away ? 0 : UINT64_MAX;
  step->is_last &= !away;
  run_step(step);
  if (away) {
    step->progress = step->progress == MEMORY_SETTLED ? MEMORY_SHORT : step->progress;
    return;
  }
  filling->away_until_ns = filling->again_by_ns = 0;
  if (step->progress != MEMORY_SHORT)
    filling->short_since_ns = 0;
  else if (!filling->short_since_ns)
    filling->short_since_ns = now_ns;
  else if (now_ns - filling->short_since_ns >= FILL_NS)
    make_room(filling, step->device, now_ns);
}

void room_step(struct gpu *gpu) {
  struct machine *machine = &gpu->machine;
  struct filling filling = gpu->filling;
  uint64_t generation = machine->generation;
  struct machine_move move = machine_begin_move(machine, clock_now_ns());
  struct step step = {.device = gpu->device,
                      .room_bytes = move.room_bytes,
                      .filling = machine->room_bound ? NULL : &filling,
                      .is_last = move.is_last,
                      .long_failed = move.long_failed,
                      .progress = MEMORY_SETTLED};
  lock_release(&client.lock);
  /* Without a context there is nothing to move. */
  bool entered = contexts_any(gpu->device, step.filling ? run_fill : run_step, &step);
  if (move.granted && !entered)
    memory_give_up(gpu->device);
  lock_take(&client.lock);
  if (machine->generation == generation)
    gpu->filling = filling;
  struct sight sight = client_see(gpu);
  struct orders orders = {.wake_waiting = gate_waits(gpu->device, GATE_WAIT_ROOM)}; /* it may have room now */
  machine_end_move(machine, step.progress, &step.moved, &sight, &orders);
  client_obey(gpu, &orders);
}

/* What does not fit has to wait for others, of whom nobody tells. */
void room_fill(CUdevice device) {
  struct filling filling = {.said = false};
  uint64_t well_ns = clock_now_ns(); /* when the driver has refused nothing, the last time */
  while (!memory_open(device, 0)) {
    struct step step = {.device = device,
                        .filling = &filling,
                        .is_last = true,
                        .long_failed = clock_now_ns() - well_ns >= GIVE_UP_NS,
                        .progress = MEMORY_SETTLED};
    if (!contexts_any(device, run_fill, &step))
      memory_give_up(device);
    if (step.progress != MEMORY_FAILED)
      well_ns = clock_now_ns();
    if (step.progress != MEMORY_MOVED)
      clock_sleep(AGAIN_NS);
  }
}

/* ---- what the rest of the library calls ---- */

uint64_t client_room_bytes(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return UINT64_MAX;
  lock_take(&client.lock);
  uint64_t bytes = machine_room_bytes(&gpu->machine);
  lock_release(&client.lock);
  return bytes;
}

/* There is no use in waiting for more than all jobs together may have. */
static bool is_possible(const struct gpu *gpu, uint64_t bytes) {
  return !gpu->machine.room_bound || !gpu->capacity_bytes || bytes <= gpu->capacity_bytes;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns) { return a_ns < b_ns ? a_ns : b_ns; }

static bool is_ending(const struct gpu *gpu) { return gpu->machine.drop_pending || gpu->machine.releasing; }

static bool may_get(const struct gpu *gpu, uint64_t bytes) {
  return is_possible(gpu, bytes) && machine_runs(&gpu->machine) && !is_ending(gpu);
}

bool client_room_wait(CUdevice device, uint64_t bytes) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return true;
  gate_wait_prepare();
  lock_take(&client.lock);
  while (may_get(gpu, bytes) && machine_room_bytes(&gpu->machine) < bytes) {
    gate_wait_begin(device, GATE_WAIT_ROOM); /* anew: an opening of the gate ends such marks */
    condition_wait(&client.memory_changed, &client.lock, UINT64_MAX);
  }
  gate_wait_end();
  bool has = may_get(gpu, bytes);
  lock_release(&client.lock);
  return has;
}

/* Beside what is there of the process: that becomes less while the worker moves it for this. As the process
 * runs the worker moves nothing, but unified memory makes way by itself. */
static bool has_room_beside(const struct gpu *gpu, uint64_t bytes) {
  struct memory_usage usage = memory_usage(gpu->device);
  uint64_t stays_bytes = usage.resident_bytes - (machine_runs(&gpu->machine) ? usage.yielding_bytes : 0);
  return machine_room_bytes(&gpu->machine) >= stays_bytes + bytes;
}

/* What can leave makes way in the end. */
static bool may_come(const struct gpu *gpu, uint64_t bytes) {
  return is_possible(gpu, memory_usage(gpu->device).pinned_there_bytes + bytes);
}

bool client_room_await(CUdevice device, uint64_t bytes, uint64_t deadline_ns) {
  struct gpu *gpu = client_gpu(device);
  uint64_t give_up_ns = deadline_ns;
  if (!gpu) {
    memory_pinned_arrives(device, bytes);
    return true;
  }
  gate_wait_prepare();
  lock_take(&client.lock);
  if (!has_room_beside(gpu, bytes) && !machine_runs(&gpu->machine))
    client_order(gpu, machine_order_move); /* what can leave makes way for it */
  while (may_come(gpu, bytes) && !has_room_beside(gpu, bytes)) {
    gate_wait_begin(device, GATE_WAIT_ROOM | GATE_WAIT_TURN);
    client_tell(gpu, machine_want);
    if (!is_ending(gpu))
      give_up_ns = deadline_ns;
    else if (give_up_ns == deadline_ns)
      give_up_ns = earlier(deadline_ns, clock_now_ns() + MEMORY_ENDING_NS);
    if (!condition_wait(&client.memory_changed, &client.lock, give_up_ns))
      break;
  }
  gate_wait_end();
  bool possible = may_come(gpu, bytes);
  memory_pinned_arrives(device, bytes); /* before anybody else finds this room free */
  lock_release(&client.lock);
  return possible;
}

void client_order_moves(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  lock_take(&client.lock);
  client_order(gpu, machine_order_move);
  lock_release(&client.lock);
}

void client_memory_short(CUdevice device, uint64_t bytes) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  log_info("GPU %d: the driver refuses %llu bytes that there should be room for", device,
           (unsigned long long)bytes);
  lock_take(&client.lock);
  struct orders orders = {0};
  machine_tell_short(&gpu->machine, bytes, &orders);
  client_obey(gpu, &orders);
  lock_release(&client.lock);
}
