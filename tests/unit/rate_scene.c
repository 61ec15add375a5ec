/* rate_scene.c - counters that follow the limits. */
#include "rate_scene.h"

#include <math.h>
#include <string.h>

#include "common/splitmix.h"

void scene_init(struct scene *scene, uint64_t seed) {
  memset(scene, 0, sizeof *scene);
  scene->random = seed;
  scene->now_ns = 1000000000;
  rate_gpu_init(&scene->gpu);
}

struct scene_producer *scene_add_producer(struct scene *scene) {
  struct scene_producer *producer = &scene->producers[scene->producer_count++];
  producer->per_s = 10000;
  producer->sampled_part = 0.1;
  producer->slowdown = 1;
  producer->leftover = 0.4;
  producer->host = producer->cost = 1;
  rate_job_add(&scene->gpu, &producer->job, RATE_PRODUCTION);
  return producer;
}

struct scene_guest *scene_add_guest(struct scene *scene, double demand) {
  struct scene_guest *guest = &scene->guests[scene->guest_count++];
  guest->demand = demand;
  rate_job_add(&scene->gpu, &guest->job, RATE_OPPORTUNISTIC);
  return guest;
}

static double part_of(uint64_t limit) { return limit == RATE_NO_LIMIT ? 1 : (double)limit / 1e9; }

static double use(const struct scene_guest *guest) { return fmin(part_of(guest->job.limit), guest->demand); }

static double use_of_all(const struct scene *scene) {
  double sum = 0;
  for (unsigned i = 0; i < scene->guest_count; i++)
    sum += use(&scene->guests[i]);
  return sum;
}

/* Mean 1. */
static double regularity(struct scene *scene, double irregular) {
  double chance = (double)(splitmix_next(&scene->random) >> 11) / 0x1p53;
  return 1 - irregular + 2 * irregular * chance;
}

static double speed_beside(const struct scene *scene, double leftover, double cost) {
  return fmax(1 - cost * fmax(use_of_all(scene) - leftover, 0), 0.1);
}

/* What guests cost it, it waits for; nothing is over while it submits nothing. Returns its speed. */
static double wait_beside(struct scene_producer *producer, double beside, double wave, double even,
                          double ns) {
  double waits = producer->waits / even + 1 / beside - 1;
  double host = (1 - producer->waits) * producer->host / wave / even, speed = 1 / (waits + host);
  if (producer->per_s > 0)
    producer->counters.waited_ns += (uint64_t)(waits * speed * ns);
  return speed;
}

static void producer_go_on(struct scene *scene, struct scene_producer *producer, double ns) {
  double speed = speed_beside(scene, producer->leftover, producer->cost), kernels = speed;
  if (producer->kernels_leftover > 0)
    kernels = speed_beside(scene, producer->kernels_leftover, producer->cost);
  if (producer->kernels_slowdown_with_guests > 0 && use_of_all(scene) > 0)
    kernels /= producer->kernels_slowdown_with_guests;
  double wave = 1 + producer->wander * sin((double)scene->now_ns / 0.4e9);
  double even = producer->jitter > 0 ? regularity(scene, producer->jitter) : 1;
  double busy = producer->idle ? 0 : regularity(scene, producer->irregular);
  speed = producer->waits > 0 ? wait_beside(producer, speed, wave, even, producer->served * busy * ns)
                              : speed * wave * even;
  struct rate_counters *counters = &producer->counters;
  counters->idle = producer->idle;
  if (!producer->idle) {
    double sampled_ns = producer->sampled_part * ns;
    counters->submissions += (uint64_t)(producer->per_s * speed * busy * ns / 1e9);
    counters->served = producer->waits > 0 ? counters->submissions : 0;
    counters->service_ns += (uint64_t)(producer->served * busy * ns);
    counters->sampled_ns += (uint64_t)sampled_ns;
    counters->expected_ns += (uint64_t)(sampled_ns * kernels / producer->slowdown);
    counters->busy_ns += (uint64_t)(0.75 * ns);
  }
  rate_job_tell(&producer->job, counters);
}

static void guest_go_on(struct scene_guest *guest, double ns) {
  guest->counters.busy_ns += (uint64_t)(use(guest) * ns);
  guest->counters.throttled_ns += part_of(guest->job.limit) < guest->demand ? (uint64_t)ns : 0;
  guest->counters.idle = guest->demand <= 0;
  rate_job_tell(&guest->job, &guest->counters);
}

void scene_tick(struct scene *scene) {
  uint64_t next_ns = scene->gpu.next_ns > scene->now_ns ? scene->gpu.next_ns : scene->now_ns + 1;
  double ns = (double)(next_ns - scene->now_ns);
  for (unsigned i = 0; i < scene->producer_count; i++)
    scene->producers[i].counters.at_ns = next_ns;
  for (unsigned i = 0; i < scene->producer_count; i++)
    producer_go_on(scene, &scene->producers[i], ns);
  for (unsigned i = 0; i < scene->guest_count; i++)
    guest_go_on(&scene->guests[i], ns);
  scene->now_ns = next_ns;
  rate_tick(&scene->gpu, next_ns);
}

void scene_run(struct scene *scene, double seconds) {
  uint64_t end_ns = scene->now_ns + (uint64_t)(seconds * 1e9);
  while (scene->now_ns < end_ns)
    scene_tick(scene);
}

bool scene_run_until(struct scene *scene, enum rate_state state) {
  uint64_t end_ns = scene->now_ns + UINT64_C(20000000000);
  while (scene->gpu.state != state && scene->now_ns < end_ns)
    scene_tick(scene);
  return scene->gpu.state == state;
}

double scene_limit(const struct scene *scene) {
  double sum = 0;
  for (unsigned i = 0; i < scene->guest_count; i++)
    sum += part_of(scene->guests[i].job.limit);
  return sum;
}
