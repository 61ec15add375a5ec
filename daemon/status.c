/* status.c - a picture of the daemon's state, as messages. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon.h"

static struct gs_msg describe_daemon(const struct daemon *daemon, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_STATUS_DAEMON, GS_GPU_ALL);
  msg.daemon.uptime_ns = now_ns - daemon->started_ns;
  msg.daemon.default_tq_ns = daemon->scheduler.defaults.tq_ns;
  msg.daemon.host_memory_bytes = daemon->scheduler.host_memory_bytes;
  msg.daemon.grace_ns = daemon->scheduler.grace_ns;
  msg.daemon.gpus = daemon->gpu_count;
  msg.daemon.jobs = daemon->client_count;
  msg.daemon.pid = getpid();
  strncpy(msg.daemon.release, GPUSHARE_VERSION, sizeof msg.daemon.release - 1);
  return msg;
}

static struct gs_msg describe_gpu(const struct sched_gpu *gpu, uint32_t index) {
  struct gs_msg msg = wire_msg(GS_STATUS_GPU, index);
  memcpy(msg.gpu_status.uuid, gpu->uuid, GS_UUID_SIZE);
  msg.gpu_status.total_bytes = gpu->total_bytes;
  msg.gpu_status.capacity_bytes = sched_gpu_capacity_bytes(gpu);
  msg.gpu_status.used_bytes = gpu->used_bytes;
  msg.gpu_status.tq_ns = gpu->settings.tq_ns;
  msg.gpu_status.handovers = gpu->handovers;
  msg.gpu_status.moved_bytes = gpu->moved_bytes;
  msg.gpu_status.jobs = gpu->job_count;
  msg.gpu_status.waiting = gpu->waiting_count;
  msg.gpu_status.holders = (uint16_t)(gpu->holder_count < UINT16_MAX ? gpu->holder_count : UINT16_MAX);
  msg.gpu_status.mode = (uint8_t)gpu->settings.mode;
  msg.gpu_status.flags = gpu->serialized ? GS_GPU_SERIALIZED : 0;
  memcpy(msg.gpu_status.name, gpu->name, sizeof msg.gpu_status.name - 1);
  return msg;
}

static struct gs_msg describe_job(const struct sched_job *job, uint32_t index, uint64_t now_ns) {
  const struct peer *peer = attachment_of(job)->peer;
  struct gs_msg msg = wire_msg(GS_STATUS_JOB, index);
  msg.job_status.job = job->id;
  msg.job_status.pid = peer->pid;
  msg.job_status.uid = peer->uid;
  msg.job_status.state = (uint8_t)job->state;
  msg.job_status.flags = (uint8_t)job->flags;
  msg.job_status.queue = (uint16_t)(job->place < UINT16_MAX ? job->place : UINT16_MAX);
  msg.job_status.used_bytes = job->used_bytes;
  msg.job_status.held_ns = sched_job_held_ns(job, now_ns);
  msg.job_status.waited_ns = sched_job_waited_ns(job, now_ns);
  msg.job_status.turns = job->turns;
  msg.job_status.moved_bytes = job->moved_bytes;
  msg.job_status.drain_max_ns = job->drain_max_ns;
  memcpy(msg.job_status.name, peer->name, sizeof msg.job_status.name);
  return msg;
}

static size_t count_messages(const struct daemon *daemon) {
  size_t count = 2;
  list_each(node, &daemon->scheduler.gpus) {
    count += 1 + list_entry(node, struct sched_gpu, link)->job_count;
  }
  return count;
}

struct gs_msg *status_collect(struct daemon *daemon, uint64_t now_ns, size_t *count) {
  uint32_t index = 0;
  struct gs_msg *msgs = malloc(count_messages(daemon) * sizeof *msgs), *msg = msgs;
  if (!msgs)
    return NULL;
  *msg++ = describe_daemon(daemon, now_ns);
  list_each(gpu_node, &daemon->scheduler.gpus) {
    struct sched_gpu *gpu = list_entry(gpu_node, struct sched_gpu, link);
    scheduler_number_queue(gpu);
    *msg++ = describe_gpu(gpu, index);
    list_each(job_node, &gpu->jobs) {
      *msg++ = describe_job(list_entry(job_node, struct sched_job, link), index, now_ns);
    }
    index++;
  }
  *msg++ = wire_msg(GS_STATUS_END, GS_GPU_ALL);
  *count = (size_t)(msg - msgs);
  return msgs;
}
