/*
 * room.c - what the process may have on the card, as the daemon says, and the worker's moves towards it: also
 * while others hold the GPU, and in either direction.
 *
 * New orders come between two steps. What a RESIDENT says is true because the worker sends it, which is in
 * the middle of no step then; or the connection thread does, while the worker rests.
 */
#include <time.h>

#include "client/client.h"
#include "client/state.h"
#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/memory.h"

#define REPORT_BYTES (UINT64_C(64) << 20) /* moved: others wait for the room */
#define AGAIN_NS (100 * NS_PER_MS)

/* The memory of a process that has died is free some time after its connection is closed: that is no reason
 * to believe that the card has less than it says. */
#define SHORT_NS (2 * NS_PER_S)

/* A turn whose end takes longer than that may be waiting for a thread that waits for room. Sooner where a
 * gang stops together: then others may be waiting for what that thread would do next. */
#define ENDING_NS (2 * NS_PER_S)
#define ENDING_TOGETHER_NS (50 * NS_PER_MS)

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
  gpu->room_lowered |= lowered;
  gpu->step_over &= !changed;
  if (lowered || !runs(gpu)) /* also unchanged: what was missing may have been freed */
    room_order_step(gpu);
  condition_wake_all(&client.memory_changed);
}

void room_begin(struct gpu *gpu, uint64_t resident_bytes) {
  gpu->room_bound = true;
  gpu->room_bytes = resident_bytes;
  gpu->room_seq = gpu->short_seq = 0;
  gpu->room_lowered = false;
  gpu->evicted_bytes = gpu->restored_bytes = 0;
}

void room_forget(struct gpu *gpu) {
  gpu->room_bound = gpu->room_lowered = false;
  if (gpu->used)
    room_order_step(gpu);
}

uint64_t room_enough_bytes(const struct gpu *gpu) {
  uint64_t target_bytes = gpu->room_bound && gpu->room_seq ? gpu->target_bytes : UINT64_MAX;
  uint64_t there_bytes = gpu->total_bytes < room_bytes(gpu) ? gpu->total_bytes : room_bytes(gpu);
  if (target_bytes < there_bytes) /* allocated so recently that the daemon did not know */
    target_bytes = there_bytes;
  return gpu->step_over && room_bytes(gpu) >= target_bytes ? 0 : target_bytes;
}

/* ---- what the daemon is told ---- */

bool room_report_due(const struct gpu *gpu) {
  return client_connected(gpu) && (gpu->room_lowered || gpu->evicted_bytes || gpu->restored_bytes);
}

void room_report(struct gpu *gpu) {
  struct gs_msg msg = wire_msg(GS_RESIDENT, (uint32_t)gpu->device);
  if (!room_report_due(gpu))
    return;
  msg.resident.resident_bytes = memory_usage(gpu->device).resident_bytes;
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
  struct memory_moved moved;
  enum memory_progress progress;
};

static void run_step(void *argument) {
  struct step *step = argument;
  step->progress = memory_step(step->device, step->room_bytes, &step->moved);
}

bool room_step_due(const struct gpu *gpu) {
  return gpu->step_due && (gpu->holding ? gpu->grant_pending : gpu->room_bound);
}

/* It should leave the card and does not, for now: the host may have no memory for it. */
static bool is_stuck(const struct gpu *gpu) {
  struct memory_usage usage = memory_usage(gpu->device);
  return usage.resident_bytes > room_bytes(gpu) && usage.resident_bytes > usage.pinned_bytes;
}

/* Has the driver refused for long enough, and is that news? */
static bool short_is_due(const struct gpu *gpu) {
  return gpu->short_since_ns && clock_now_ns() - gpu->short_since_ns >= SHORT_NS &&
         gpu->short_seq != gpu->room_seq;
}

static void note_progress(struct gpu *gpu, enum memory_progress progress) {
  if (progress != MEMORY_SHORT)
    gpu->short_since_ns = 0;
  else if (!gpu->short_since_ns)
    gpu->short_since_ns = clock_now_ns();
}

/* No more moves, and nobody has said anything new meanwhile. */
static void end_moves(struct gpu *gpu, const struct step *step) {
  gpu->step_over = step->progress != MEMORY_SHORT;
  if (step->progress != MEMORY_SETTLED || is_stuck(gpu))
    gpu->step_again_ns = clock_now_ns() + AGAIN_NS;
  if (short_is_due(gpu))
    tell_short(gpu, step->moved.short_bytes);
}

void room_step(struct gpu *gpu) {
  struct step step = {.device = gpu->device, .room_bytes = room_bytes(gpu), .progress = MEMORY_SETTLED};
  gpu->step_due = false;
  gpu->step_again_ns = UINT64_MAX;
  gpu->busy = true;
  lock_release(&client.lock);
  contexts_any(gpu->device, run_step, &step); /* without a context there is nothing to move */
  lock_take(&client.lock);
  gpu->busy = false;
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
}

/* What does not fit has to wait for others, of whom nobody tells. */
void room_fill(CUdevice device) {
  bool said = false;
  while (!memory_open(device, 0)) {
    struct step step = {.device = device, .room_bytes = UINT64_MAX, .progress = MEMORY_SETTLED};
    contexts_any(device, run_step, &step);
    if (step.progress == MEMORY_MOVED)
      continue;
    if (!said)
      log_warn("GPU %d: the program waits until its memory fits on the card", device);
    said = true;
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

static bool is_ending(const struct gpu *gpu) { return gpu->drop_pending || gpu->releasing; }

static bool may_get(const struct gpu *gpu, uint64_t bytes) {
  return is_possible(gpu, bytes) && runs(gpu) && !is_ending(gpu);
}

uint64_t client_ending_ns(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return ENDING_NS;
  lock_take(&client.lock);
  uint64_t ns = gpu->together ? ENDING_TOGETHER_NS : ENDING_NS;
  lock_release(&client.lock);
  return ns;
}

bool client_room_wait(CUdevice device, uint64_t bytes) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return true;
  lock_take(&client.lock);
  gate_wait_begin(device, GATE_WAIT_ROOM);
  while (may_get(gpu, bytes) && room_bytes(gpu) < bytes)
    condition_wait(&client.memory_changed, &client.lock, UINT64_MAX);
  gate_wait_end();
  bool has = may_get(gpu, bytes);
  lock_release(&client.lock);
  return has;
}

void client_room_await(CUdevice device, uint64_t bytes) {
  struct gpu *gpu = client_gpu(device);
  uint64_t give_up_ns = UINT64_MAX;
  if (!gpu)
    return;
  lock_take(&client.lock);
  while (is_possible(gpu, bytes) && room_bytes(gpu) < bytes) {
    gate_wait_begin(device, GATE_WAIT_ROOM | GATE_WAIT_TURN);
    client_request_lock(gpu);
    if (!is_ending(gpu))
      give_up_ns = UINT64_MAX;
    else if (give_up_ns == UINT64_MAX)
      give_up_ns = clock_now_ns() + ENDING_NS;
    if (!condition_wait(&client.memory_changed, &client.lock, give_up_ns))
      break;
  }
  gate_wait_end();
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
