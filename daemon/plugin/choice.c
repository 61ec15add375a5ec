/* choice.c - spread or pack, together or apart. */
#include "plugin/choice.h"

#include <errno.h>

void choice_add_free(struct choice *choice, size_t gpu, unsigned share) {
  choice->free_count[gpu] += !choice->free[gpu][share];
  choice->free[gpu][share] = true;
}

int choice_take(struct choice *choice, size_t gpu, unsigned share) {
  if (!choice->free[gpu][share])
    return -ENOENT;
  choice->free[gpu][share] = false;
  choice->free_count[gpu]--;
  choice->taken_count[gpu]++;
  return 0;
}

static int compare(unsigned a, unsigned b) { return a < b ? -1 : a > b; }

/* Above 0: a before b, for the placement's sake. */
static int compare_placement(const struct choice *choice, size_t a, size_t b) {
  int more_free = compare(choice->free_count[a], choice->free_count[b]);
  return choice->resource->terms->placement == PLACEMENT_PACK ? -more_free : more_free;
}

/* Above 0: a before b, so that the container's shares are of few GPUs. */
static int compare_together(const struct choice *choice, size_t a, size_t b, unsigned needed) {
  bool enough_a = choice->free_count[a] >= needed, enough_b = choice->free_count[b] >= needed;
  int order = compare(choice->taken_count[a] > 0, choice->taken_count[b] > 0);
  if (order == 0)
    order = compare(enough_a, enough_b);
  if (order == 0 && !enough_a)
    return compare(choice->free_count[a], choice->free_count[b]);
  return order;
}

static bool comes_before(const struct choice *choice, size_t a, size_t b, unsigned needed) {
  int order = choice->resource->terms->apart ? compare(choice->taken_count[b], choice->taken_count[a])
                                             : compare_together(choice, a, b, needed);
  return (order ? order : compare_placement(choice, a, b)) > 0;
}

static unsigned first_free(const bool *free) {
  unsigned share = 0;
  while (!free[share])
    share++;
  return share;
}

int choice_take_best(struct choice *choice, unsigned needed, size_t *gpu, unsigned *share) {
  size_t best = GPUS_MAX;
  for (size_t i = 0; i < choice->resource->gpus->count; i++)
    if (choice->free_count[i] > 0 && (best == GPUS_MAX || comes_before(choice, i, best, needed)))
      best = i;
  if (best == GPUS_MAX)
    return -ENOENT;
  *gpu = best;
  *share = first_free(choice->free[best]);
  return choice_take(choice, *gpu, *share);
}
