/* list.c - the plants: the shapes that the loss may have over the limit, and the ways in which production
 * behaves. */
#include "plants/plant.h"

#include <string.h>

/* An iteration takes as long as one of resnet50 with batches of 64 on an H200; that the GPU is busy for three
 * quarters of it is assumed. */
#define TRAINING .cpu_s = 0.008, .gpu_s = 0.025, .kernels = 300, .jitter = 0.01, .sample_noise = 0.05
#define SERVER .gpu_s = 0.010, .kernels = 100, .jitter = 0.1, .requests_per_s = 20, .sample_noise = 0.05
/* A training that waits for its host: what its speed is changes by itself all the time. */
#define HOST_BOUND .sample_noise = 0.05, .wander = 0.08, .warm_up = 0.3

/* Kernels of one name and size that take now 4 us, now 1500, as seen on an H200: samples tell nothing. */
#define NO_SAMPLES .sample_noise = 3

/* As seen on an H200: the host takes most of a request's time, now more, now less, and waits at its end. */
#define HOST_SERVER                                                                                          \
  .cpu_s = 0.006, .gpu_s = 0.001, .kernels = 150, .jitter = 0.15, .requests_per_s = 40, NO_SAMPLES,          \
  .wander = 0.15

const struct plant plants[] = {
    {.name = "flat",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}}}}},
    {.name = "kinked",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}}, .leftover = 0.4, .slope = 1}}},
    {.name = "kinked_of_8",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 8,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}}, .leftover = 0.25, .slope = 0.8}}},
    {.name = "saturated",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 2,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}}, .slope = 1}}},
    /* As seen on an H200 with MPS: what guests use costs a quarter of that, from the first share on. */
    {.name = "diluted",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}}, .slope = 0.25}}},
    {.name = "diluted_graphs",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .kernel_s = 0.01,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}}, .slope = 0.25}}},
    {.name = "slices",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}}}}},
    {.name = "slices_of_4",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 4,
     .phase_count = 1,
     .phases =
         {{.workers =
               {{.cpu_s = 0.02, .gpu_s = 0.02, .kernels = 200, .jitter = 0.01, .sample_noise = 0.05}}}}},
    {.name = "noisy",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases =
         {{.workers = {{.cpu_s = 0.008, .gpu_s = 0.025, .kernels = 300, .jitter = 0.15, .sample_noise = 0.2}},
           .leftover = 0.35,
           .slope = 1}}},
    {.name = "phases",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 2,
     .phase_count = 3,
     .phases =
         {{.workers = {{TRAINING}}, .leftover = 0.4, .slope = 1},
          {.from_s = 20,
           .workers = {{.cpu_s = 0.03, .gpu_s = 0.03, .kernels = 300, .jitter = 0.01, .sample_noise = 0.05}},
           .leftover = 0.6,
           .slope = 1},
          {.from_s = 40,
           .workers =
               {{.cpu_s = 0.004, .gpu_s = 0.012, .kernels = 200, .jitter = 0.01, .sample_noise = 0.05}},
           .leftover = 0.15,
           .slope = 1}}},
    {.name = "leftovers",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 3,
     .phases = {{.workers = {{TRAINING}}, .leftover = 0.5, .slope = 1},
                {.from_s = 20, .workers = {{TRAINING}}, .leftover = 0.2, .slope = 1},
                {.from_s = 40, .workers = {{TRAINING}}, .leftover = 0.6, .slope = 1}}},
    {.name = "bursts",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING, .burst_s = 4, .pause_s = 3}}, .leftover = 0.4, .slope = 1}}},
    {.name = "bursts_slices",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 2,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING, .burst_s = 2, .pause_s = 3}}}}},
    {.name = "server",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{SERVER}}, .leftover = 0.5, .slope = 1}}},
    {.name = "server_slices",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{SERVER}}}}},
    {.name = "training_without_samples",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{.cpu_s = 0.008, .gpu_s = 0.025, .kernels = 300, .jitter = 0.01, NO_SAMPLES}}}}},
    {.name = "server_without_samples",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases =
         {{.workers = {{.gpu_s = 0.005, .kernels = 150, .jitter = 0.03, .requests_per_s = 40, NO_SAMPLES}}}}},
    {.name = "server_host_slices",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{HOST_SERVER}}}}},
    /* As seen on an H200, too: the GPU does little of a request, so guests cost it little, from their first
       share on. */
    {.name = "server_host",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{HOST_SERVER}}, .slope = 0.4}}},
    {.name = "two",
     .sharing = PLANT_TOGETHER,
     .workers = 2,
     .guests = 3,
     .phase_count = 1,
     .phases = {{.workers = {{TRAINING}, {SERVER}}, .leftover = 0.3, .slope = 1}}},
    /* Kernels take up to 1.4 times as long, and nobody waits for them. */
    {.name = "host_bound",
     .sharing = PLANT_TOGETHER,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{HOST_BOUND, .cpu_s = 0.030, .gpu_s = 0.012, .kernels = 160, .jitter = 0.01,
                              .ahead = true}},
                 .slope = 0.3}}},
    /* Each few kernels are waited for. */
    {.name = "host_bound_slices",
     .sharing = PLANT_SLICES,
     .workers = 1,
     .guests = 1,
     .phase_count = 1,
     .phases = {{.workers = {{HOST_BOUND, .cpu_s = 0.004, .gpu_s = 0.002, .kernels = 16, .jitter = 0.1}}}}},
};
const unsigned plant_count = sizeof plants / sizeof *plants;

const struct plant *plant_find(const char *name) {
  for (unsigned i = 0; i < plant_count; i++)
    if (strcmp(plants[i].name, name) == 0)
      return &plants[i];
  return NULL;
}
