/* top_model.c - gpusharectl top: what is shown of GPUs and jobs, from one status and the one before. */
#include "ctl/top_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

static double less(uint64_t now, uint64_t before) { return now > before ? (double)(now - before) : 0; }

static double at_most_one(double share) { return share < 1 ? share : 1; }

/* By the daemon's clock; 0: they have nothing to do with each other. */
static double elapsed_ns(const struct top_model *now, const struct top_model *before) {
  if (!now->daemon || !before->daemon || now->daemon->daemon.pid != before->daemon->daemon.pid)
    return 0;
  return less(now->daemon->daemon.uptime_ns, before->daemon->daemon.uptime_ns);
}

static size_t count_type(const struct gs_msg *msgs, const struct gs_msg *end, unsigned type) {
  size_t count = 0;
  for (const struct gs_msg *msg = msgs; msg < end; msg++)
    count += msg->type == type;
  return count;
}

/* ---- what it was before ---- */

static const struct top_gpu *find_gpu(const struct top_model *model, const struct gs_msg *gpu) {
  for (size_t i = 0; i < model->gpu_count; i++)
    if (memcmp(model->gpus[i].figures.gpu->gpu_status.uuid, gpu->gpu_status.uuid, GS_UUID_SIZE) == 0)
      return &model->gpus[i];
  return NULL;
}

static const struct gs_msg *find_job(const struct top_model *model, const struct top_job *job) {
  const struct top_gpu *gpu = find_gpu(model, job->gpu->figures.gpu);
  for (size_t i = 0; i < model->job_count; i++)
    if (model->jobs[i].gpu == gpu &&
        model->jobs[i].figures.job->job_status.job == job->figures.job->job_status.job)
      return model->jobs[i].figures.job;
  return NULL;
}

static double handover_ns(const struct gs_msg *handover) {
  return (double)(handover->handover_status.drain_ns + handover->handover_status.move_ns);
}

static void rate_gpu(struct top_gpu *gpu, const struct top_gpu *before, double ns) {
  const struct gs_msg *now = gpu->figures.gpu, *then = before->figures.gpu;
  double lost_ns = handover_ns(gpu->figures.handover) - handover_ns(before->figures.handover);
  gpu->rated = true;
  gpu->handovers_per_s = less(now->gpu_status.handovers, then->gpu_status.handovers) * 1e9 / ns;
  gpu->moved_per_s = less(now->gpu_status.moved_bytes, then->gpu_status.moved_bytes) * 1e9 / ns;
  gpu->lost_share = lost_ns > 0 ? at_most_one(lost_ns / ns) : 0;
}

/* A job that was not there had nothing. */
static void rate_job(struct top_job *job, const struct gs_msg *before, double ns) {
  const struct gs_msg *now = job->figures.job;
  job->rated = true;
  job->held_share = at_most_one(less(now->job_status.held_ns, before ? before->job_status.held_ns : 0) / ns);
  job->waited_share =
      at_most_one(less(now->job_status.waited_ns, before ? before->job_status.waited_ns : 0) / ns);
}

static void rate_all(struct top_model *model, const struct top_model *before) {
  double ns = elapsed_ns(model, before);
  if (ns <= 0)
    return;
  for (size_t i = 0; i < model->gpu_count; i++) {
    const struct top_gpu *then = find_gpu(before, model->gpus[i].figures.gpu);
    if (then)
      rate_gpu(&model->gpus[i], then, ns);
  }
  for (size_t i = 0; i < model->job_count; i++)
    rate_job(&model->jobs[i], find_job(before, &model->jobs[i]), ns);
}

/* ---- what it is ---- */

static void add_gpu(struct top_model *model, const struct gs_msg *msg) {
  model->gpus[model->gpu_count++] = (struct top_gpu){.figures = figures_of_gpu(msg, model->end)};
}

static void add_job(struct top_model *model, const struct gs_msg *msg) {
  struct top_gpu *gpu = &model->gpus[model->gpu_count - 1];
  struct top_job *job = &model->jobs[model->job_count++];
  uint64_t used_bytes = msg->job_status.used_bytes, resident_bytes = msg->job_status.resident_bytes;
  char number[16];
  *job = (struct top_job){.figures = figures_of_job(msg, model->end), .gpu = gpu};
  snprintf(job->user, sizeof job->user, "%s", figures_user_name(msg->job_status.uid, number));
  figures_from(job->figures.origin, job->from);
  job->away_bytes = used_bytes > resident_bytes ? used_bytes - resident_bytes : 0;
  job->waits_for_room = figures_waits_for_room(&gpu->figures, msg);
  gpu->card_bytes += resident_bytes;
  gpu->away_bytes += job->away_bytes;
}

static void add_all(struct top_model *model) {
  for (const struct gs_msg *msg = model->msgs; msg < model->end; msg++)
    if (msg->type == GS_STATUS_DAEMON)
      model->daemon = msg;
    else if (msg->type == GS_STATUS_GPU)
      add_gpu(model, msg);
    else if (msg->type == GS_STATUS_JOB && model->gpu_count)
      add_job(model, msg);
}

int top_model_make(struct top_model *model, struct gs_msg *msgs, size_t count,
                   const struct top_model *before) {
  const struct gs_msg *end = msgs + count;
  *model = (struct top_model){.msgs = msgs, .end = end};
  model->gpus = calloc(count_type(msgs, end, GS_STATUS_GPU) + 1, sizeof *model->gpus);
  model->jobs = calloc(count_type(msgs, end, GS_STATUS_JOB) + 1, sizeof *model->jobs);
  if (!model->gpus || !model->jobs) {
    top_model_clear(model);
    return -ENOMEM;
  }
  add_all(model);
  rate_all(model, before);
  return 0;
}

void top_model_clear(struct top_model *model) {
  free(model->msgs);
  free(model->gpus);
  free(model->jobs);
  *model = (struct top_model){0};
}
