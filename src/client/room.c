/*
 * room.c - what the process may have on the card, as the daemon says, and the worker's moves towards it: also
 * while others hold the GPU, and in either direction.
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

#define REPORT_BYTES (UINT64_C(64) << 20) /* moved: others wait for the room */
#define AGAIN_NS (100 * NS_PER_MS)

/* The memory of a process that has died is free some time after its connection is closed: that is no reason
 * to believe that the card has less than it says. */
#define SHORT_NS (2 * NS_PER_S)

/* Without a daemon: how long a process looks for room before it makes room, and how long it stays away at
 * most, whatever the driver says is free: it might find room that others' unified memory leaves. */
#define FILL_NS (2 * NS_PER_S)
#define FILL_PAUSE_NS NS_PER_S
#define FILL_AGAIN_NS (10 * NS_PER_S)
/* A driver that has refused every move for so long is not believed to make one any more. */
#define GIVE_UP_NS (2 * NS_PER_S)

uint64_t room_bytes(const struct gpu *gpu) { return gpu->room_bound ? gpu->room_bytes : UINT64_MAX; }

/* It holds the lock, and its gate is open or about to be: nothing moves. */
static bool runs(const struct gpu *gpu) { return gpu->holding && !gpu->grant_pending; }

void room_order_step(struct gpu *gpu) {
  gpu->step_due = true;
  gpu->step_over = false;
  condition_wake_all(&gpu->changed);
}

void room_take(struct gpu *gpu, const struct gs_msg *msg) {
  bool lowered = msg->room.room_bytes < gpu->room_bytes, changed = msg->room.room_bytes != gpu->room_bytes;
  gpu->room_bytes = msg->room.room_bytes;
  gpu->room_seq = msg->room.room_seq;
  gpu->target_bytes = msg->room.target_bytes;
  memory_set_heir(gpu->device, &(struct memory_heir){.pass = msg->room.pass, .pid = msg->room.pass_pid});
  gpu->room_lowered |= lowered;
  gpu->step_over &= !changed;
  if (lowered || !runs(gpu)) /* also unchanged: what was missing may have been freed */
    room_order_step(gpu);
  condition_wake_all(&client.memory_changed);
}

void room_begin(struct gpu *gpu, uint64_t resident_bytes) {
  gpu->room_bound = true;
  gpu->room_bytes = gpu->told_resident_bytes = resident_bytes;
  gpu->room_seq = gpu->short_seq = gpu->short_since_ns = 0; /* others' memory was in the way, unasked */
  gpu->room_lowered = false;
  gpu->evicted_bytes = gpu->restored_bytes = 0;
}

void room_forget(struct gpu *gpu) {
  gpu->room_bound = gpu->room_lowered = false;
  memory_set_heir(gpu->device, &(struct memory_heir){.pid = 0});
  gpu->filling = (struct filling){.said = false};
  if (gpu->used)
    room_order_step(gpu);
}

/* All that the daemon means to be there. */
static uint64_t target_bytes_of(const struct gpu *gpu) {
  uint64_t target_bytes = gpu->room_bound && gpu->room_seq ? gpu->target_bytes : UINT64_MAX;
  uint64_t there_bytes = gpu->total_bytes < room_bytes(gpu) ? gpu->total_bytes : room_bytes(gpu);
  if (target_bytes < there_bytes) /* allocated so recently that the daemon did not know */
    target_bytes = there_bytes;
  return target_bytes;
}

uint64_t room_enough_bytes(const struct gpu *gpu) {
  uint64_t target_bytes = target_bytes_of(gpu);
  return gpu->step_over && room_bytes(gpu) >= target_bytes ? 0 : target_bytes;
}

/* ---- what the daemon is told ---- */

/* What the daemon was told of, and waits for, has gone without a move: the program has freed it. What it has
 * allocated since then hides that from reports of all that it has. */
static bool has_gone(const struct gpu *gpu) {
  return gpu->told_resident_bytes > room_bytes(gpu) &&
         memory_usage(gpu->device).resident_bytes < gpu->told_resident_bytes;
}

bool room_report_due(const struct gpu *gpu) {
  return client_connected(gpu) &&
         (gpu->room_lowered || gpu->evicted_bytes || gpu->restored_bytes || has_gone(gpu));
}

void room_report(struct gpu *gpu) {
  struct gs_msg msg = wire_msg(GS_RESIDENT, (uint32_t)gpu->device);
  if (!room_report_due(gpu))
    return;
  memory_check(gpu, UINT64_MAX); /* of what is there, nothing may be unknown to the daemon */
  msg.resident.resident_bytes = gpu->told_resident_bytes = memory_usage(gpu->device).resident_bytes;
  msg.resident.room_seq = gpu->room_seq;
  msg.resident.evicted_bytes = gpu->evicted_bytes;
  msg.resident.restored_bytes = gpu->restored_bytes;
  gpu->room_lowered = false;
  gpu->evicted_bytes = gpu->restored_bytes = 0;
  client_send(&msg);
}

static void tell_short(struct gpu *gpu, uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_MEM_SHORT, (uint32_t)gpu->device);
  msg.mem_short.short_bytes = bytes;
  gpu->short_seq = gpu->room_seq;
  if (client_connected(gpu))
    client_send(&msg);
}

/* ---- steps ---- */

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

static bool is_long(uint64_t failed_since_ns) {
  return failed_since_ns && clock_now_ns() - failed_since_ns >= GIVE_UP_NS;
}

static void note_since(uint64_t *since_ns, bool holds) {
  if (!holds)
    *since_ns = 0;
  else if (!*since_ns)
    *since_ns = clock_now_ns();
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

bool room_step_due(const struct gpu *gpu) {
  return gpu->step_due && (gpu->holding ? gpu->grant_pending : gpu->room_bound);
}

/* Also by what can't leave and is still to come. */
bool room_is_exceeded(const struct gpu *gpu) {
  struct memory_usage usage = memory_usage(gpu->device);
  uint64_t awaited_bytes = usage.pinned_bytes - usage.pinned_there_bytes;
  return usage.resident_bytes + awaited_bytes > room_bytes(gpu) &&
         usage.resident_bytes > usage.pinned_there_bytes;
}

void room_try_again(struct gpu *gpu) {
  gpu->step_due = false;
  gpu->step_again_ns = clock_now_ns() + AGAIN_NS;
}

/* Has the driver refused for long enough, and is that news? */
static bool short_is_due(const struct gpu *gpu) {
  return gpu->short_since_ns && clock_now_ns() - gpu->short_since_ns >= SHORT_NS &&
         gpu->short_seq != gpu->room_seq;
}

static void note_progress(struct gpu *gpu, enum memory_progress progress) {
  note_since(&gpu->failed_since_ns, progress == MEMORY_FAILED && gpu->grant_pending);
  note_since(&gpu->short_since_ns, progress == MEMORY_SHORT);
}

/* No more moves, and nobody has said anything new meanwhile. */
static void end_moves(struct gpu *gpu, const struct step *step) {
  gpu->step_over = step->progress != MEMORY_SHORT;
  if (step->progress != MEMORY_SETTLED || room_is_exceeded(gpu)) /* the host may have no memory for it */
    gpu->step_again_ns = clock_now_ns() + AGAIN_NS;
  if (short_is_due(gpu))
    tell_short(gpu, step->moved.short_bytes);
}

void room_step(struct gpu *gpu) {
  struct filling filling = gpu->filling;
  uint64_t generation = client.generation;
  struct step step = {.device = gpu->device,
                      .room_bytes = room_bytes(gpu),
                      .filling = gpu->room_bound ? NULL : &filling,
                      .is_last = gpu->grant_pending && room_bytes(gpu) >= target_bytes_of(gpu),
                      .long_failed = gpu->grant_pending && is_long(gpu->failed_since_ns),
                      .progress = MEMORY_SETTLED};
  gpu->step_due = false;
  gpu->step_again_ns = UINT64_MAX;
  gpu->busy = true;
  bool granted = gpu->grant_pending;
  lock_release(&client.lock);
  /* Without a context there is nothing to move. */
  bool entered = contexts_any(gpu->device, step.filling ? run_fill : run_step, &step);
  if (granted && !entered)
    memory_give_up(gpu->device);
  lock_take(&client.lock);
  gpu->busy = false;
  if (client.generation == generation)
    gpu->filling = filling;
  gpu->evicted_bytes += step.moved.out_bytes;
  gpu->restored_bytes += step.moved.in_bytes;
  gpu->returned_bytes += step.moved.in_bytes;
  note_progress(gpu, step.progress);
  bool moving = step.progress == MEMORY_MOVED;
  if (!moving || gpu->evicted_bytes + gpu->restored_bytes >= REPORT_BYTES)
    room_report(gpu);
  if (!moving && !gpu->step_due)
    end_moves(gpu, &step);
  gpu->step_due |= moving;
  if (gate_waits(gpu->device, GATE_WAIT_ROOM)) /* what has left has made room */
    condition_wake_all(&client.memory_changed);
}

/* What does not fit has to wait for others, of whom nobody tells. */
void room_fill(CUdevice device) {
  struct filling filling = {.said = false};
  uint64_t failed_since_ns = 0;
  while (!memory_open(device, 0)) {
    struct step step = {.device = device,
                        .filling = &filling,
                        .is_last = true,
                        .long_failed = is_long(failed_since_ns),
                        .progress = MEMORY_SETTLED};
    if (!contexts_any(device, run_fill, &step))
      memory_give_up(device);
    note_since(&failed_since_ns, step.progress == MEMORY_FAILED);
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
  uint64_t bytes = room_bytes(gpu);
  lock_release(&client.lock);
  return bytes;
}

/* There is no use in waiting for more than all jobs together may have. */
static bool is_possible(const struct gpu *gpu, uint64_t bytes) {
  return !gpu->room_bound || !gpu->capacity_bytes || bytes <= gpu->capacity_bytes;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns) { return a_ns < b_ns ? a_ns : b_ns; }

static bool is_ending(const struct gpu *gpu) { return gpu->drop_pending || gpu->releasing; }

static bool may_get(const struct gpu *gpu, uint64_t bytes) {
  return is_possible(gpu, bytes) && runs(gpu) && !is_ending(gpu);
}

bool client_room_wait(CUdevice device, uint64_t bytes) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return true;
  gate_wait_prepare();
  lock_take(&client.lock);
  while (may_get(gpu, bytes) && room_bytes(gpu) < bytes) {
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
  uint64_t stays_bytes = usage.resident_bytes - (runs(gpu) ? usage.yielding_bytes : 0);
  return room_bytes(gpu) >= stays_bytes + bytes;
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
  if (!has_room_beside(gpu, bytes) && !runs(gpu))
    room_order_step(gpu); /* what can leave makes way for it */
  while (may_come(gpu, bytes) && !has_room_beside(gpu, bytes)) {
    gate_wait_begin(device, GATE_WAIT_ROOM | GATE_WAIT_TURN);
    client_request_lock(gpu);
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
  room_order_step(gpu);
  lock_release(&client.lock);
}

void client_memory_short(CUdevice device, uint64_t bytes) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  log_info("GPU %d: the driver refuses %llu bytes that there should be room for", device,
           (unsigned long long)bytes);
  lock_take(&client.lock);
  tell_short(gpu, bytes);
  lock_release(&client.lock);
}
