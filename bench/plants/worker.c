/* worker.c - how a production job goes on. */
#include "plants/worker.h"

#include <string.h>

#include "plants/chance.h"

#define SAMPLE_EVERY 16 /* kernels, on average: at even distances some would never be seen */

static double kernel_length_s(struct worker *worker) {
  return worker->kind.gpu_s / worker->kind.kernels * chance_around_one(&worker->random, worker->kind.jitter);
}

static void begin_kernel(struct worker *worker, double now_s) {
  worker->left_s = worker->kernel_s;
  worker->begun_s = now_s;
  if (!worker->kind.ahead)
    worker->counters.submissions++;
}

/* Wandering: an Ornstein-Uhlenbeck process, looked at once in an iteration. */
static double host_speed(struct worker *worker, double now_s) {
  double kept = exp((worker->strayed_at_s - now_s) / WORKER_WANDER_S), deviation = worker->kind.wander;
  if (deviation > 0)
    worker->strayed =
        worker->strayed * kept + deviation * sqrt(1 - kept * kept) * chance_normal(&worker->random);
  worker->strayed_at_s = now_s;
  double warm = fmin(now_s / WORKER_WARM_UP_S, 1);
  return (1 + worker->kind.warm_up * warm) * exp(worker->strayed);
}

static double host_s(struct worker *worker, double now_s) {
  return worker->kind.cpu_s * chance_around_one(&worker->random, worker->kind.jitter) /
         host_speed(worker, now_s);
}

/* The kernels of an iteration are drawn together: iterations differ, not only kernels. */
static void begin_gpu(struct worker *worker, double now_s) {
  worker->state = WORKER_ON_GPU;
  worker->waits_from_s = worker->kind.ahead ? worker->until_s : now_s;
  worker->kernels_left = worker->kind.kernels;
  worker->kernel_s = kernel_length_s(worker);
  begin_kernel(worker, now_s);
}

static void begin_cpu(struct worker *worker, double now_s) {
  worker->state = WORKER_ON_CPU;
  worker->until_s = now_s + host_s(worker, now_s);
}

/* The GPU has worked while the host did: only what is left of the host's time is waited for. */
static void begin_ahead(struct worker *worker, double now_s) {
  if (worker->until_s > now_s) {
    worker->state = WORKER_ON_CPU;
    return;
  }
  worker->launched_from_s = now_s;
  worker->until_s = now_s + host_s(worker, now_s);
  worker->launched += worker->kind.kernels;
  begin_gpu(worker, now_s);
}

/* The host launches at an even pace, whatever the GPU does. */
static void count_launches(struct worker *worker, double now_s) {
  double part = (now_s - worker->launched_from_s) / (worker->until_s - worker->launched_from_s);
  double ahead = worker->kind.kernels * fmax(1 - part, 0);
  worker->counters.submissions = worker->launched - (uint64_t)fmin(ahead, (double)worker->launched);
}

static void rest(struct worker *worker, double now_s) {
  worker->state = WORKER_RESTS;
  worker->until_s = now_s + worker->kind.pause_s * chance_around_one(&worker->random, 0.2);
}

static void begin_request(struct worker *worker, double now_s) {
  if (worker->kind.cpu_s > 0)
    begin_cpu(worker, now_s);
  else
    begin_gpu(worker, now_s);
}

static void count_wait(struct worker *worker, double now_s) {
  worker->counters.served = worker->kind.ahead ? worker->launched : worker->counters.submissions;
  worker->counters.waited_ns += (uint64_t)(fmax(now_s - worker->waits_from_s, 0) * 1e9);
}

static void end_iteration(struct worker *worker, double now_s) {
  count_wait(worker, now_s);
  if (worker->kind.requests_per_s > 0 && --worker->queued > 0)
    begin_request(worker, now_s);
  else if (worker->kind.requests_per_s > 0)
    worker->state = WORKER_RESTS;
  else if (worker->kind.pause_s > 0 && worker->own_s >= worker->burst_end_s)
    rest(worker, now_s);
  else if (worker->kind.ahead)
    begin_ahead(worker, now_s);
  else
    begin_cpu(worker, now_s);
}

static void count_sample(struct worker *worker, double took_s) {
  double noise = chance_around_one(&worker->random, worker->kind.sample_noise);
  if (worker->until_sample-- > 0)
    return;
  worker->until_sample = (unsigned)(splitmix_next(&worker->sampling) % (2 * SAMPLE_EVERY - 1));
  worker->counters.expected_ns += (uint64_t)(worker->kernel_s * 1e9);
  worker->counters.sampled_ns += (uint64_t)(took_s * noise * 1e9);
}

static void end_kernel(struct worker *worker, double now_s) {
  count_sample(worker, now_s - worker->begun_s);
  if (--worker->kernels_left > 0)
    begin_kernel(worker, now_s);
  else
    end_iteration(worker, now_s);
}

static void wake(struct worker *worker, double now_s) {
  worker->burst_end_s = worker->own_s + worker->kind.burst_s * chance_around_one(&worker->random, 0.2);
  begin_cpu(worker, now_s);
}

static void take_requests(struct worker *worker, double now_s) {
  while (worker->next_request_s <= now_s) {
    worker->next_request_s += chance_exponential(&worker->random, 1 / worker->kind.requests_per_s);
    if (worker->queued++ == 0)
      begin_request(worker, now_s);
  }
}

/* Of one whose host launches ahead: the host is what it waits for until the host is done. */
static double gpu_progress(const struct worker *worker, double now_s, double speed) {
  return !worker->kind.ahead ? speed : now_s < worker->until_s ? 1 : 0;
}

static double advance_on_gpu(struct worker *worker, double now_s, double step_s, double speed) {
  double used_s = speed > 0 ? fmin(step_s, worker->left_s / speed) : step_s;
  worker->left_s -= used_s * speed;
  worker->own_s += used_s * gpu_progress(worker, now_s, speed);
  worker->worked_s += used_s;
  worker->counters.busy_ns += (uint64_t)(used_s * 1e9);
  worker->counters.service_ns += (uint64_t)(used_s * 1e9);
  if (worker->left_s <= 1e-12)
    end_kernel(worker, now_s + used_s);
  return used_s;
}

static double advance_on_cpu(struct worker *worker, double now_s, double step_s) {
  double used_s = fmin(step_s, fmax(worker->until_s - now_s, 0));
  worker->own_s += used_s;
  worker->worked_s += used_s;
  worker->counters.service_ns += (uint64_t)(used_s * 1e9);
  if (used_s < step_s && worker->kind.ahead)
    begin_ahead(worker, now_s + used_s);
  else if (used_s < step_s)
    begin_gpu(worker, now_s + used_s);
  return used_s;
}

void worker_advance(struct worker *worker, double now_s, double step_s, double speed) {
  double end_s = now_s + step_s;
  if (worker->kind.requests_per_s > 0)
    take_requests(worker, now_s);
  else if (worker->state == WORKER_RESTS && worker->until_s <= now_s)
    wake(worker, now_s);
  while (end_s - now_s > 1e-12 && worker->state != WORKER_RESTS)
    now_s += worker->state == WORKER_ON_GPU ? advance_on_gpu(worker, now_s, end_s - now_s, speed)
                                            : advance_on_cpu(worker, now_s, end_s - now_s);
  if (worker->kind.ahead)
    count_launches(worker, end_s);
  worker->counters.idle = worker->state != WORKER_ON_GPU;
}

void worker_change(struct worker *worker, const struct worker_kind *kind) {
  worker->kind = *kind;
  if (worker->state == WORKER_ON_GPU && kind->kernels < worker->kernels_left)
    worker->kernels_left = kind->kernels;
}

void worker_init(struct worker *worker, const struct worker_kind *kind, uint64_t seed) {
  memset(worker, 0, sizeof *worker);
  worker->kind = *kind;
  worker->random = worker->sampling = seed;
  if (kind->requests_per_s > 0)
    worker->next_request_s = chance_exponential(&worker->random, 1 / kind->requests_per_s);
  else
    worker->until_s = kind->cpu_s * 10 * chance_uniform(&worker->random); /* not in step with the ticks */
}
