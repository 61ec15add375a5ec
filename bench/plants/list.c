/* list.c - the plants. What they lose and leave is as measured on an H200 or between what was, beside slices
 * of production of 100 ms (shared/design/preemption.md): a ResNet-50 training loses 1 % to slices of 200 us
 * and half to equal ones, a launch-bound one 7 and 12 %. */
#include "plants/plant.h"

#include <string.h>

#define TRAINING .iteration_s = 0.060, .jitter = 0.01, .sync = true, .loss_least = 0.01, .loss_most = 0.5
#define LAUNCHES .iteration_s = 0.012, .jitter = 0.03, .loss_least = 0.07, .loss_most = 0.12
#define SERVER                                                                                               \
  .iteration_s = 0.005, .jitter = 0.1, .requests_per_s = 40, .loss_least = 0.07, .loss_most = 0.16

const struct plant plants[] = {
    {.name = "training", .workers = {{TRAINING}}, .gain_least = 0.024, .gain_most = 0.5},
    {.name = "launches", .workers = {{LAUNCHES}}, .gain_least = 0.226, .gain_most = 0.611},
    {.name = "server", .workers = {{SERVER}}, .gain_least = 0.2, .gain_most = 0.5},
    {.name = "bursts",
     .workers = {{TRAINING, .work_s = 2, .rest_s = 2}},
     .gain_least = 0.024,
     .gain_most = 0.5},
    {.name = "phases",
     .workers = {{TRAINING, .change_s = 20, .change = 2}},
     .gain_least = 0.024,
     .gain_most = 0.5},
    {.name = "gaps", /* its host has a third of each iteration */
     .workers =
         {{.iteration_s = 0.060, .jitter = 0.01, .sync = true, .loss_least = 0.002, .loss_most = 0.03}},
     .gain_least = 0.3,
     .gain_most = 0.45},
    {.name = "large_steps",
     .workers = {{.iteration_s = 0.7, .jitter = 0.01, .sync = true, .loss_least = 0.01, .loss_most = 0.5}},
     .gain_least = 0.024,
     .gain_most = 0.5},
    {.name = "wanders", /* its host's speed does, by 8 % */
     .workers = {{LAUNCHES, .wander = 0.08}},
     .gain_least = 0.226,
     .gain_most = 0.611},
    {.name = "busy_server",
     .workers =
         {{.iteration_s = 0.02, .jitter = 0.1, .requests_per_s = 35, .loss_least = 0.05, .loss_most = 0.16}},
     .gain_least = 0.1,
     .gain_most = 0.5},
    {.name = "both", .workers = {{TRAINING}, {SERVER}}, .gain_least = 0.024, .gain_most = 0.4},
};
const unsigned plant_count = sizeof plants / sizeof *plants;

const struct plant *plant_find(const char *name) {
  for (unsigned i = 0; i < plant_count; i++)
    if (strcmp(plants[i].name, name) == 0)
      return &plants[i];
  return NULL;
}
