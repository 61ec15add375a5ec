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

#define MEMORY_ANSWER_NS (2 * NS_PER_S) /* for the daemon to answer MEM_REQUEST */
#define SEEN_NS (100 * NS_PER_MS)       /* between two signs of life of who asks */

/* Wait until the daemon has answered about this GPU, or is known to be absent; the handshake's time limit
 * bounds it. Lock held. */
static void wait_settled(const struct gpu *gpu) {
  while (gpu->used && !gpu->machine.attached && !gpu->refused_until_ns && !client.alone && client.started)
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
  bounds = (struct memory_bounds){.job = client.job,
                                  .limited = gpu->limited,
                                  .why = gpu->machine.memory_why,
                                  .knows_most = gpu->machine.most.known,
                                  .most_bytes = gpu->machine.most.total_bytes,
                                  .most_pinned_bytes = gpu->machine.most.pinned_bytes,
                                  .making_way_bytes = gpu->machine.most.making_way_bytes};
  lock_release(&client.lock);
  return bounds;
}

/* Wait for an answer. Lock held, on entry and exit. */
static int await_answer(struct machine *machine, const struct machine_question *question,
                        _Atomic uint64_t *seen_ns) {
  uint64_t now_ns = clock_now_ns(), deadline_ns = now_ns + MEMORY_ANSWER_NS;
  int err;
  while ((err = machine_answer(machine, question, false)) == -EINPROGRESS &&
         (machine->memory_awaited || now_ns < deadline_ns)) {
    condition_wait(&client.memory_changed, &client.lock, now_ns + SEEN_NS);
    now_ns = clock_now_ns();
    atomic_store(seen_ns, now_ns);
  }
  if (err != -EINPROGRESS)
    return err;
  post_shut();
  return machine_answer(machine, question, true);
}

/* What counts of what there is to see. Lock held. */
static struct sight see(const struct gpu *gpu, uint64_t total_bytes, uint64_t pinned_bytes) {
  return machine_looks(&gpu->machine, total_bytes, pinned_bytes) ? client_see(gpu) : (struct sight){0};
}

int client_memory_request(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                          _Atomic uint64_t *seen_ns) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return -ENOTCONN;
  lock_take(&client.lock);
  client_attach_device(gpu, device);
  wait_settled(gpu);
  struct sight sight = anew ? client_see(gpu) : see(gpu, total_bytes, pinned_bytes);
  struct orders orders = {0};
  struct machine_question question;
  int err = machine_ask(&gpu->machine, total_bytes, pinned_bytes, anew, &sight, &orders, &question);
  client_obey(gpu, &orders);
  if (err == -EINPROGRESS)
    err = await_answer(&gpu->machine, &question, seen_ns);
  lock_release(&client.lock);
  return err;
}

void client_memory_report(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  lock_take(&client.lock);
  struct sight sight = see(gpu, total_bytes, pinned_bytes);
  struct orders orders = {0};
  machine_note_memory(&gpu->machine, total_bytes, pinned_bytes, &sight, &orders);
  client_obey(gpu, &orders);
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
