/*
 * client_state.c - the one state of the client, under its lock, and how the machine's orders are carried out.
 */
#include "client/client_state.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "client/post.h"
#include "common/clock.h"
#include "common/condition.h"
#include "common/futex.h"
#include "common/lock.h"
#include "common/log.h"
#include "gate/gate.h"
#include "memory/memory.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct client client = {.lock = LOCK(LOCK_CLIENT)};

/* 1, in memory that the kernel clears in a child that is made without pthread_atfork (_Fork, clone): none of
 * our threads is there, so what they would answer is not waited for. NULL: not started yet. */
static _Atomic uint32_t *_Atomic here;

bool client_is_stray(void) {
  _Atomic uint32_t *mark = atomic_load_explicit(&here, memory_order_acquire);
  return mark && !atomic_load_explicit(mark, memory_order_relaxed);
}

/* Where the kernel can't (before 4.14), such a child is not known. */
void client_mark_process(void) {
  void *mark = atomic_load(&here);
  if (!mark)
    mark = mmap(NULL, sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mark == MAP_FAILED || madvise(mark, sizeof(uint32_t), MADV_WIPEONFORK) < 0)
    return;
  atomic_store((_Atomic uint32_t *)mark, 1);
  atomic_store(&here, mark);
}

struct gpu *client_gpu(CUdevice device) {
  return !client_is_stray() && device >= 0 && device < GS_GPUS_PER_CLIENT ? &client.gpus[device] : NULL;
}

bool client_connected(const struct gpu *gpu) { return client.connected && gpu->machine.attached; }

void client_send(const struct gs_msg *msg) {
  if (!client.connected)
    return;
  post_send(msg);
  log_debug("sent %s gpu %u epoch %lu", wire_type_name(msg->type), msg->gpu, msg->epoch);
}

void client_wake(void) {
  atomic_fetch_add(&client.events, 1);
  futex_wake(&client.events, 1);
}

/* ---- the machine of a GPU: what it sees, and what it orders ---- */

struct sight client_see(const struct gpu *gpu) {
  return (struct sight){.now_ns = clock_now_ns(),
                        .needed = gpu->stopped || gate_waiting(gpu->device) > 0 ||
                                  gate_waits(gpu->device, GATE_WAIT_TURN) > 0,
                        .memory = memory_usage(gpu->device)};
}

void client_end_steps(struct gpu *gpu) {
  if (gpu->stepped_ns)
    gate_revoke_pulse(gpu->device, 0);
  gpu->stepped_ns = 0;
}

/* All that the process needs is there. */
static void open_gate(struct gpu *gpu) {
  gpu->let_on = false;
  gpu->turned_ns = clock_now_ns();
  if (gpu->machine.steps)
    return;
  client_end_steps(gpu);
  gate_open(gpu->device);
}

void client_obey(struct gpu *gpu, struct orders *orders) {
  if (orders->expect)
    memory_expect_passed(gpu->device, true);
  if (orders->open)
    open_gate(gpu);
  for (unsigned i = 0; i < orders->count; i++) {
    orders->messages[i].gpu = (uint32_t)gpu->device;
    client_send(&orders->messages[i]);
  }
  if (orders->wake_worker)
    condition_wake_all(&gpu->changed);
  if (orders->wake_waiting)
    condition_wake_all(&client.memory_changed);
  if (orders->wake_timers)
    client_wake();
}

void client_tell(struct gpu *gpu,
                 void (*event)(struct machine *machine, const struct sight *sight, struct orders *orders)) {
  struct sight sight = client_see(gpu);
  struct orders orders = {0};
  event(&gpu->machine, &sight, &orders);
  client_obey(gpu, &orders);
}

void client_order(struct gpu *gpu, void (*event)(struct machine *machine, struct orders *orders)) {
  struct orders orders = {0};
  event(&gpu->machine, &orders);
  client_obey(gpu, &orders);
}
