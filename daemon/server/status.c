/* status.c - a picture of the daemon's state, as messages. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/daemon.h"

/* So many processes are looked at for one picture: each costs some ten microseconds. */
#define LOOKS 256
#define DESCRIBES_PER_LOOK 16 /* at the clock */

static void look_at(struct status *status, const struct sched_job *job) {
  struct peer *peer = attachment_of(job)->peer;
  if (peer->looked != status->number)
    peer->stopped = false;
  peer->looked = status->number;
  /* Others may wait for it: it may submit, owes an answer, or has memory on the card. */
  bool in_the_way = (job->state != GS_JOB_IDLE && job->state != GS_JOB_WAITING) || job->resident_bytes > 0;
  if (peer->stopped || !in_the_way || status->looks == 0)
    return;
  status->looks--;
  peer->stopped = peer_is_stopped(peer);
}

static struct gs_msg describe_daemon(const struct daemon *daemon, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_STATUS_DAEMON, GS_GPU_ALL);
  msg.daemon.uptime_ns = now_ns - daemon->started_ns;
  msg.daemon.default_tq_ns = daemon->scheduler.defaults.tq_ns;
  msg.daemon.host_memory_bytes = daemon->scheduler.host_memory_bytes;
  msg.daemon.grace_ns = daemon->scheduler.grace_ns;
  msg.daemon.gpus = daemon->gpu_count;
  msg.daemon.jobs = daemon->client_count;
  msg.daemon.pid = getpid();
  msg.daemon.mps = !spatial_is_on(&daemon->spatial) ? GS_MPS_OFF
                   : mps_is_ready(&daemon->mps)     ? GS_MPS_RUNS
                                                    : GS_MPS_DOWN;
  msg.daemon.mps_programs = daemon->spatial.programs;
  msg.daemon.mps_uid = daemon->spatial.uid;
  msg.daemon.presence = daemon->presence;
  msg.daemon.last_job = daemon->last_job_id;
  strncpy(msg.daemon.release, GPUSHARE_VERSION, sizeof msg.daemon.release - 1);
  return msg;
}

static struct gs_msg describe_gpu(const struct daemon *daemon, const struct sched_gpu *gpu, uint32_t index) {
  struct gs_msg msg = wire_msg(GS_STATUS_GPU, index);
  memcpy(msg.gpu_status.uuid, gpu->uuid, GS_UUID_SIZE);
  msg.gpu_status.total_bytes = gpu->total_bytes;
  msg.gpu_status.capacity_bytes = sched_gpu_capacity_bytes(gpu);
  msg.gpu_status.used_bytes = gpu->used_bytes;
  msg.gpu_status.tq_ns = sched_gpu_tq_ns(gpu);
  msg.gpu_status.handovers = gpu->handovers;
  msg.gpu_status.moved_bytes = gpu->moved_bytes;
  msg.gpu_status.jobs = gpu->job_count;
  msg.gpu_status.waiting = gpu->waiting_count;
  msg.gpu_status.holders = (uint16_t)(gpu->holder_count < UINT16_MAX ? gpu->holder_count : UINT16_MAX);
  msg.gpu_status.mode = (uint8_t)gpu->settings.mode;
  msg.gpu_status.policy = (uint8_t)gpu->settings.policy;
  if (gpu->serialized)
    msg.gpu_status.flags |= GS_GPU_SERIALIZED;
  if (sched_gpu_runs_together(gpu))
    msg.gpu_status.flags |= GS_GPU_TOGETHER;
  if (gpu->settings.tq_ns == SCHED_TQ_AUTO)
    msg.gpu_status.flags |= GS_GPU_TQ_AUTO;
  if (spatial_has(&daemon->spatial, gpu->uuid))
    msg.gpu_status.flags |= GS_GPU_MPS;
  memcpy(msg.gpu_status.name, gpu->name, sizeof msg.gpu_status.name - 1);
  return msg;
}

static struct gs_msg describe_handovers(const struct sched_gpu *gpu, uint32_t index, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_STATUS_HANDOVER, index);
  const struct sched_cost *sum = &gpu->handover.sum, *last = &gpu->handover.last;
  msg.handover_status.drain_ns = sum->drain_ns;
  msg.handover_status.move_ns = sum->move_ns;
  msg.handover_status.evicted_bytes = sum->evicted_bytes;
  msg.handover_status.restored_bytes = sum->restored_bytes;
  msg.handover_status.hidden_bytes = gpu->handover.hidden_bytes;
  msg.handover_status.drain_last_ns = last->drain_ns;
  msg.handover_status.move_last_ns = last->move_ns;
  msg.handover_status.evicted_last_bytes = last->evicted_bytes;
  msg.handover_status.restored_last_bytes = last->restored_bytes;
  msg.handover_status.overhead_bytes = gpu->overhead_bytes + gpu->away_bytes;
  msg.handover_status.left_ns = sched_gpu_left_ns(gpu, now_ns);
  msg.handover_status.occupied_bytes = sched_gpu_occupied_bytes(gpu);
  return msg;
}

static struct gs_msg describe_card(const struct daemon *daemon, const struct sched_gpu *gpu, uint32_t index,
                                   uint64_t now_ns) {
  static const uint32_t facts[][2] = {{NVML_TEMPERATURE, GS_CARD_TEMPERATURE},
                                      {NVML_POWER, GS_CARD_POWER},
                                      {NVML_UTILIZATION, GS_CARD_UTILIZATION},
                                      {NVML_ENERGY, GS_CARD_ENERGY}};
  struct gs_msg msg = wire_msg(GS_STATUS_CARD, index);
  const struct card_reading *reading = card_query_find_reading(&daemon->card_query, gpu->uuid, now_ns);
  if (!reading)
    return msg;
  msg.card_status.facts = GS_CARD_ANSWERS | (reading->processes_known ? GS_CARD_PROCESSES : 0);
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    msg.card_status.facts |= reading->does.known & facts[i][0] ? facts[i][1] : 0;
  msg.card_status.temperature_c = reading->does.temperature_c;
  msg.card_status.power_mw = reading->does.power_mw;
  msg.card_status.gpu_percent = reading->does.gpu_percent;
  msg.card_status.memory_percent = reading->does.memory_percent;
  msg.card_status.unshared = reading->unshared;
  msg.card_status.unshared_bytes = reading->unshared_bytes;
  msg.card_status.energy_mj = reading->does.energy_mj;
  return msg;
}

static struct gs_msg describe_job(const struct sched_job *job, uint32_t index, uint64_t now_ns) {
  const struct peer *peer = attachment_of(job)->peer;
  struct gs_msg msg = wire_msg(GS_STATUS_JOB, index);
  msg.job_status.job = job->id;
  msg.job_status.pid = peer->pid;
  msg.job_status.uid = peer->uid;
  msg.job_status.state = (uint8_t)job->state;
  msg.job_status.flags = (uint8_t)(sched_job_flags(job) | (peer->uses_mps ? GS_STATE_MPS : 0) |
                                   (peer->stopped ? GS_STATE_STOPPED : 0) | attachment_of(job)->abilities);
  msg.job_status.queue = (uint16_t)(job->place < UINT16_MAX ? job->place : UINT16_MAX);
  msg.job_status.used_bytes = job->used_bytes;
  msg.job_status.resident_bytes = job->resident_bytes;
  msg.job_status.held_ns = sched_job_held_ns(job, now_ns);
  msg.job_status.waited_ns = sched_job_waited_ns(job, now_ns);
  msg.job_status.turns = job->turns;
  msg.job_status.moved_bytes = job->moved_bytes;
  msg.job_status.drain_max_ns = job->drain_max_ns;
  memcpy(msg.job_status.name, peer->name, sizeof msg.job_status.name);
  return msg;
}

static struct gs_msg describe_terms(const struct sched_job *job, uint32_t index, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_STATUS_TERMS, index);
  uint64_t had_ns = sched_job_gpu_ns(job, now_ns), expected_ns = job->terms.expected_ns;
  msg.terms_status.job = job->id;
  msg.terms_status.weight = job->terms.weight;
  msg.terms_status.priority = job->terms.priority;
  msg.terms_status.gpu_ns = had_ns;
  msg.terms_status.remaining_ns = expected_ns > had_ns ? expected_ns - had_ns : 0;
  msg.terms_status.limit_bytes = job->terms.limit_bytes;
  msg.terms_status.soft_limit_bytes = job->terms.soft_limit_bytes;
  msg.terms_status.paused = job->terms.paused;
  msg.terms_status.class = job->terms.class;
  msg.terms_status.rate = job->terms.rate_percent;
  if (attachment_of(job)->gang)
    memcpy(msg.terms_status.gang, attachment_of(job)->gang->shown, sizeof msg.terms_status.gang);
  return msg;
}

static struct gs_msg describe_wait(const struct sched_job *job, uint32_t index, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_STATUS_WAIT, index);
  struct sched_reason reason = sched_job_reason(job, now_ns);
  msg.wait_status.job = job->id;
  msg.wait_status.reason = reason.why;
  msg.wait_status.awaited = reason.who ? reason.who->id : 0;
  bool stopped = reason.who && attachment_of(reason.who)->peer->stopped;
  msg.wait_status.expected_ns = stopped ? SCHED_NEVER : reason.expected_ns;
  msg.wait_status.lacking_bytes = sched_job_lacking_bytes(job);
  msg.wait_status.expected_bytes = sched_job_expected_bytes(job);
  msg.wait_status.rule = sched_job_rule(job);
  msg.wait_status.room_bytes = job->room_bytes;
  msg.wait_status.planned_bytes = job->gpu->roomy ? job->reach_bytes : job->want_bytes;
  msg.wait_status.need_bytes = job->need_bytes;
  msg.wait_status.pinned_bytes = job->pinned_bytes;
  struct rates_limit limit = rates_limit(&gpu_of(job->gpu)->rates, &attachment_of(job)->rates);
  msg.wait_status.limited = limit.why;
  msg.wait_status.limit = limit.limit;
  msg.wait_status.limited_for = limit.production;
  return msg;
}

static struct gs_msg describe_origin(const struct sched_job *job, uint32_t index) {
  const struct peer *peer = attachment_of(job)->peer;
  struct gs_msg msg = wire_msg(GS_STATUS_ORIGIN, index);
  msg.origin_status.job = job->id;
  msg.origin_status.own_pid = peer->own_pid;
  msg.origin_status.kind = peer->origin.kind;
  memcpy(msg.origin_status.name, peer->origin.name, sizeof msg.origin_status.name);
  memcpy(msg.origin_status.container, peer->origin.container, sizeof msg.origin_status.container);
  return msg;
}

static struct gs_msg describe_command(const struct sched_job *job, uint32_t index) {
  const struct peer *peer = attachment_of(job)->peer;
  struct gs_msg msg = wire_msg(GS_STATUS_COMMAND, index);
  msg.command_status.job = job->id;
  msg.command_status.uid = peer->uid;
  memcpy(msg.command_status.text, peer->command, sizeof msg.command_status.text);
  return msg;
}

static struct gs_msg describe_memory(const struct sched_job *job, uint32_t index) {
  struct gs_msg msg = wire_msg(GS_STATUS_MEMORY, index);
  msg.memory_status.job = job->id;
  msg.memory_status.copies_bytes = attachment_of(job)->copies_bytes;
  msg.memory_status.clean_bytes = sched_job_clean_bytes(job);
  msg.memory_status.left_copied_bytes = job->left.copied_bytes;
  msg.memory_status.left_spared_bytes = job->left.spared_bytes;
  attachment_pinned(attachment_of(job), msg.memory_status.kind_bytes);
  return msg;
}

/* ---- the making ---- */

#define MESSAGES_PER_JOB 6 /* as `describe` puts them; of a GPU it puts fewer */

static bool provide_room(struct status *status, size_t count) {
  if (status->count + count <= status->room)
    return true;
  size_t room = 2 * status->room + count;
  struct gs_msg *grown = realloc(status->msgs, room * sizeof *grown);
  if (!grown)
    return false;
  status->msgs = grown;
  status->room = room;
  return true;
}

static void put(struct status *status, struct gs_msg msg) { status->msgs[status->count++] = msg; }

static void start_over(struct daemon *daemon) { walk_begin(&daemon->status.walk, &daemon->scheduler.gpus); }

/* Without memory it goes on, and has no messages in the end. */
void status_begin(struct daemon *daemon, uint64_t now_ns) {
  struct status *status = &daemon->status;
  free(status->msgs);
  *status = (struct status){.looking = true, .looks = LOOKS, .number = status->number + 1, .room = 2};
  list_each(node, &daemon->scheduler.gpus) {
    status->room += 3 + MESSAGES_PER_JOB * (size_t)list_entry(node, struct sched_gpu, link)->job_count;
  }
  status->msgs = malloc(status->room * sizeof *status->msgs);
  start_over(daemon);
  card_query_want_readings(&daemon->card_query, now_ns, CARD_READ_WANTED_NS);
  if (status->msgs)
    put(status, describe_daemon(daemon, now_ns));
}

static void describe(struct daemon *daemon, struct sched_gpu *gpu, const struct sched_job *job,
                     uint64_t now_ns) {
  struct status *status = &daemon->status;
  uint32_t index = gpu_of(gpu)->number;
  if (job) {
    put(status, describe_job(job, index, now_ns));
    put(status, describe_terms(job, index, now_ns));
    put(status, describe_wait(job, index, now_ns));
    put(status, describe_origin(job, index));
    if (*attachment_of(job)->peer->command)
      put(status, describe_command(job, index));
    put(status, describe_memory(job, index));
  } else {
    scheduler_number_queue(gpu);
    put(status, describe_gpu(daemon, gpu, index));
    put(status, describe_handovers(gpu, index, now_ns));
    if (gpu_of(gpu)->known && card_query_has_readings(&daemon->card_query, now_ns))
      put(status, describe_card(daemon, gpu, index, now_ns));
  }
}

bool status_go_on(struct daemon *daemon, uint64_t now_ns, uint64_t until_ns) {
  struct status *status = &daemon->status;
  struct sched_gpu *gpu;
  struct sched_job *job;
  for (unsigned i = 1; status->msgs; i++) {
    bool more = walk_next(&status->walk, &gpu, &job);
    if (!more && !status->looking)
      break;
    if (!more) {
      status->looking = false;
      start_over(daemon);
    } else if (status->looking && job) {
      look_at(status, job);
    } else if (!status->looking && provide_room(status, MESSAGES_PER_JOB + 1)) {
      describe(daemon, gpu, job, now_ns);
    } else if (!status->looking) {
      free(status->msgs);
      status->msgs = NULL;
    }
    if ((status->looking || i % DESCRIBES_PER_LOOK == 0) && clock_now_ns() >= until_ns)
      return false;
  }
  if (status->msgs)
    put(status, wire_msg(GS_STATUS_END, GS_GPU_ALL));
  return true;
}

struct gs_msg *status_take(struct daemon *daemon, size_t *count) {
  struct status *status = &daemon->status;
  struct gs_msg *msgs = status->msgs;
  *count = status->count;
  *status = (struct status){.number = status->number};
  return msgs;
}

struct gs_msg *status_collect(struct daemon *daemon, uint64_t now_ns, size_t *count) {
  status_begin(daemon, now_ns);
  status_go_on(daemon, now_ns, UINT64_MAX);
  return status_take(daemon, count);
}

/* ---- what goes meanwhile ---- */

void status_on_detach(struct daemon *daemon, const struct sched_job *job) {
  walk_on_detach(&daemon->status.walk, job);
  walk_on_detach(&daemon->metrics_walk, job);
  walk_on_detach(&daemon->bounds_walk, job);
  walk_on_detach(&daemon->usage_walk, job);
}

void status_on_forget(struct daemon *daemon, const struct sched_gpu *gpu) {
  walk_on_forget(&daemon->status.walk, gpu);
  walk_on_forget(&daemon->metrics_walk, gpu);
  walk_on_forget(&daemon->bounds_walk, gpu);
  walk_on_forget(&daemon->usage_walk, gpu);
}

void status_on_order(struct daemon *daemon, uint64_t now_ns) {
  if (daemon->status.msgs)
    status_begin(daemon, now_ns);
  walk_begin(&daemon->bounds_walk, &daemon->scheduler.gpus);
  walk_begin(&daemon->usage_walk, &daemon->scheduler.gpus);
}
