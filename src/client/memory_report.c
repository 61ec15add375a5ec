/* memory_report.c - what the daemon is told, and asked, about this process' device memory. */
#include <errno.h>

#include "client/client.h"
#include "client/client_state.h"
#include "client/post.h"
#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "memory/memory.h"

#define MEMORY_ANSWER_NS (2 * NS_PER_S)  /* for the daemon to answer MEM_REQUEST */
#define SEEN_NS (100 * NS_PER_MS)        /* between two signs of life of who asks */
#define REPORT_BYTES (UINT64_C(1) << 20) /* a change by less is not worth a message */
#define REPORT_NS (20 * NS_PER_MS)       /* between two reports */
#define SLACK_BYTES (UINT64_C(16) << 20) /* what is kept of a grant when memory is given back */

static void send_memory(enum gs_msg_type type, struct gpu *gpu) {
  struct gs_msg msg = wire_msg(type, (uint32_t)gpu->device);
  msg.mem.total_bytes = gpu->told_bytes = gpu->total_bytes;
  msg.mem.pinned_bytes = gpu->pinned_bytes;
  msg.mem.paging_bytes = gpu->told_paging_bytes = memory_usage(gpu->device).paging_bytes;
  gpu->report_at_ns = 0;
  gpu->reported_ns = clock_now_ns();
  client_send(&msg);
}

/* Programs may allocate and free thousands of times a second: the daemon is told of it now and then. The time
 * when it is due; UINT64_MAX: no need. Lock held. */
uint64_t memory_check(struct gpu *gpu, uint64_t now_ns) {
  if (!gpu->report_at_ns || !client_connected(gpu) || gpu->memory_asking)
    return UINT64_MAX;
  if (now_ns < gpu->report_at_ns)
    return gpu->report_at_ns;
  send_memory(GS_MEM_REPORT, gpu);
  if (gpu->granted_bytes > gpu->total_bytes + SLACK_BYTES)
    gpu->granted_bytes = gpu->total_bytes + SLACK_BYTES;
  return UINT64_MAX;
}

/* What must be on the card for the program to run has grown beyond what the daemon knows, though all of its
 * memory has not. Lock held. */
static bool pages_less(const struct gpu *gpu) {
  return memory_usage(gpu->device).paging_bytes + REPORT_BYTES <= gpu->told_paging_bytes;
}

/* The program's total has changed. Lock held. */
static void memory_note(struct gpu *gpu, uint64_t total_bytes, uint64_t pinned_bytes) {
  /* What can't leave must be known to the byte. */
  bool others = pinned_bytes != gpu->pinned_bytes || pages_less(gpu);
  gpu->total_bytes = total_bytes;
  gpu->pinned_bytes = pinned_bytes;
  uint64_t change =
      total_bytes > gpu->told_bytes ? total_bytes - gpu->told_bytes : gpu->told_bytes - total_bytes;
  if (gpu->report_at_ns || (!others && change < REPORT_BYTES && (total_bytes > 0 || change == 0)))
    return;
  gpu->report_at_ns = gpu->reported_ns + REPORT_NS;
  if (memory_check(gpu, clock_now_ns()) != UINT64_MAX)
    client_wake();
}

/* Wait until the daemon has answered about this GPU, or is known to be absent; the handshake's time limit
 * bounds it. Lock held. */
static void wait_settled(const struct gpu *gpu) {
  while (gpu->used && !gpu->attached && !gpu->refused_until_ns && !client.alone && client.started)
    condition_wait(&client.memory_changed, &client.lock, UINT64_MAX);
}

uint64_t client_capacity(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return 0;
  lock_take(&client.lock);
  client_attach_device(gpu, device); /* not the gate: a program may only be looking around */
  wait_settled(gpu);
  uint64_t bytes = gpu->capacity_bytes;
  lock_release(&client.lock);
  return bytes;
}

struct memory_bounds client_bounds(CUdevice device) {
  const struct gpu *gpu = client_gpu(device);
  struct memory_bounds bounds = {0};
  if (!gpu)
    return bounds;
  lock_take(&client.lock);
  bounds = (struct memory_bounds){.job = client.job, .limited = gpu->limited, .why = gpu->memory_why};
  lock_release(&client.lock);
  return bounds;
}

/* Ask and wait. Lock held, on entry and exit. */
static int ask_memory(struct gpu *gpu, _Atomic uint64_t *seen_ns) {
  uint64_t generation = client.generation, question = gpu->memory_question;
  uint64_t now_ns = clock_now_ns(), deadline_ns = now_ns + MEMORY_ANSWER_NS;
  gpu->memory_answered = gpu->memory_awaited = false;
  send_memory(GS_MEM_REQUEST, gpu);
  while (!gpu->memory_answered && client.generation == generation && gpu->memory_question == question &&
         (gpu->memory_awaited || now_ns < deadline_ns)) {
    condition_wait(&client.memory_changed, &client.lock, now_ns + SEEN_NS);
    now_ns = clock_now_ns();
    atomic_store(seen_ns, now_ns);
  }
  if (gpu->memory_question != question)
    return -EINTR;
  if (client.generation != generation)
    return -ENOTCONN;
  if (!gpu->memory_answered) {
    post_shut();
    return -ENOTCONN;
  }
  return gpu->memory_status;
}

/* What can't leave is asked for even within the grant where it has to wait for room: others may have pinned
 * all of the card, and two programs would wait for each other for ever. Lock held. */
static bool must_ask(const struct gpu *gpu, uint64_t total_bytes, uint64_t pinned_bytes) {
  return total_bytes > gpu->granted_bytes ||
         (pinned_bytes > gpu->pinned_bytes && room_bytes(gpu) < total_bytes);
}

/* Whoever has asked before has left by a jump, or has ended. Lock held. */
static void forget_question(struct gpu *gpu) {
  gpu->memory_question++;
  if (gpu->memory_asking) /* or has not: it starts over */
    condition_wake_all(&client.memory_changed);
  gpu->memory_asking = false;
}

int client_memory_request(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes,
                          _Atomic uint64_t *seen_ns) {
  struct gpu *gpu = client_gpu(device);
  int err = 0;
  if (!gpu)
    return -ENOTCONN;
  lock_take(&client.lock);
  client_attach_device(gpu, device);
  wait_settled(gpu);
  forget_question(gpu);
  if (!client_connected(gpu)) {
    gpu->total_bytes = total_bytes;
    gpu->pinned_bytes = pinned_bytes;
    err = -ENOTCONN;
  } else if (!must_ask(gpu, total_bytes, pinned_bytes) && !pages_less(gpu)) {
    memory_note(gpu, total_bytes, pinned_bytes);
  } else {
    uint64_t before_bytes = gpu->total_bytes, pinned_before_bytes = gpu->pinned_bytes;
    gpu->total_bytes = total_bytes;
    gpu->pinned_bytes = pinned_bytes;
    gpu->memory_asking = true;
    err = ask_memory(gpu, seen_ns);
    if (err != -EINTR)
      gpu->memory_asking = false;
    if (err == -ENOMEM) {
      gpu->total_bytes = gpu->told_bytes = before_bytes;
      gpu->pinned_bytes = pinned_before_bytes;
    }
  }
  lock_release(&client.lock);
  return err;
}

void client_memory_report(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  lock_take(&client.lock);
  forget_question(gpu);
  memory_note(gpu, total_bytes, pinned_bytes);
  lock_release(&client.lock);
}

int client_memory_mode(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return GS_MEMORY_MANAGED;
  lock_take(&client.lock);
  client_attach_device(gpu, device);
  wait_settled(gpu);
  int mode = gpu->memory_mode;
  lock_release(&client.lock);
  return mode;
}
