/* list.c - the plants. What they lose and leave is as measured, or between what was: a ResNet-50 training is
 * full, and leaves 0.75 % (H100; bench/RESULTS.md); a launch-bound one loses 7 % to slices of 200 us, and 12
 * % to equal ones of 2 ms (H200). */
#include "plants/plant.h"

#include <string.h>

#define TRAINING .iteration_s = 0.060, .jitter = 0.01, .sync = true, .full = true
#define LAUNCHES .iteration_s = 0.012, .jitter = 0.03, .loss_least = 0.07, .loss_most = 0.09
#define LEAVES 0.0075
#define SERVER                                                                                               \
  .iteration_s = 0.005, .jitter = 0.1, .requests_per_s = 40, .loss_least = 0.07, .loss_most = 0.11

const struct plant plants[] = {
    {.name = "training", .workers = {{TRAINING}}, .gain_least = LEAVES, .gain_most = LEAVES},
    {.name = "launches", .workers = {{LAUNCHES}}, .gain_least = 0.226, .gain_most = 0.4},
    {.name = "server", .workers = {{SERVER}}, .gain_least = 0.2, .gain_most = 0.35},
    {.name = "bursts",
     .workers = {{TRAINING, .work_s = 2, .rest_s = 2}},
     .gain_least = LEAVES,
     .gain_most = LEAVES},
    {.name = "phases",
     .workers = {{TRAINING, .change_s = 20, .change = 2}},
     .gain_least = LEAVES,
     .gain_most = LEAVES},
    {.name = "gaps", /* its host has a third of each iteration */
     .workers =
         {{.iteration_s = 0.060, .jitter = 0.01, .sync = true, .loss_least = 0.002, .loss_most = 0.015}},
     .gain_least = 0.3,
     .gain_most = 0.4},
    {.name = "large_steps",
     .workers = {{.iteration_s = 0.7, .jitter = 0.01, .sync = true, .full = true}},
     .gain_least = LEAVES,
     .gain_most = LEAVES},
    {.name = "wanders", /* its host's speed does, by 8 % */
     .workers = {{LAUNCHES, .wander = 0.08}},
     .gain_least = 0.226,
     .gain_most = 0.4},
    {.name = "busy_server",
     .workers =
         {{.iteration_s = 0.02, .jitter = 0.1, .requests_per_s = 35, .loss_least = 0.05, .loss_most = 0.11}},
     .gain_least = 0.1,
     .gain_most = 0.3},
    {.name = "both", .workers = {{TRAINING}, {SERVER}}, .gain_least = LEAVES, .gain_most = LEAVES},
};
const unsigned plant_count = sizeof plants / sizeof *plants;

const struct plant *plant_find(const char *name) {
  for (unsigned i = 0; i < plant_count; i++)
    if (strcmp(plants[i].name, name) == 0)
      return &plants[i];
  return NULL;
}
