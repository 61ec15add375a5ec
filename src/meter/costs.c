/* costs.c - see costs.h. */
#include "meter/costs.h"

#include <stddef.h>

#include "common/clock.h"

/* Of a program of which nothing is known. */
#define FIRST_NS (NS_PER_MS / 20)

static unsigned set_of(const struct cost_key *key) {
  uint64_t mixed =
      ((uintptr_t)key->what ^ (key->amount << 20) ^ (uint64_t)key->device) * UINT64_C(0x9E3779B97F4A7C15);
  return (unsigned)(mixed >> 32) % COSTS_SETS;
}

static bool is_same(const struct cost_key *a, const struct cost_key *b) {
  return a->what == b->what && a->amount == b->amount && a->device == b->device;
}

const struct cost *costs_find(const struct costs *costs, const struct cost_key *key) {
  const struct cost *set = costs->places[set_of(key)];
  for (unsigned way = 0; way < COSTS_WAYS; way++)
    if (set[way].samples && is_same(&set[way].key, key))
      return &set[way];
  return NULL;
}

uint64_t costs_of(const struct costs *costs, const struct cost_key *key) {
  const struct cost *cost = costs_find(costs, key);
  return cost ? cost->cost_ns : costs->samples ? costs->mean_ns : FIRST_NS;
}

static struct cost *find(struct costs *costs, const struct cost_key *key) {
  return (struct cost *)(uintptr_t)costs_find(costs, key);
}

/* The one of its set that was not measured for longest makes place. */
static struct cost *take_place(struct costs *costs, const struct cost_key *key) {
  struct cost *set = costs->places[set_of(key)], *place = set;
  for (unsigned way = 1; way < COSTS_WAYS; way++)
    if (set[way].used < place->used)
      place = &set[way];
  *place = (struct cost){.key = *key};
  return place;
}

/* A part of the way from the one to the other. */
static uint64_t approach(uint64_t from, uint64_t to, unsigned part) {
  return to > from ? from + (to - from) / part : from - (from - to) / part;
}

/* Others on the GPU only ever make it longer: so what is shorter is nearer to what it costs. */
static uint64_t towards_shorter(uint64_t from, uint64_t to) { return approach(from, to, to < from ? 2 : 16); }

void costs_learn(struct costs *costs, const struct cost_key *key, uint64_t took_ns, bool undisturbed) {
  struct cost *cost = find(costs, key);
  if (!cost)
    cost = take_place(costs, key);
  cost->cost_ns = cost->samples++ ? towards_shorter(cost->cost_ns, took_ns) : took_ns;
  if (undisturbed && cost->samples > 1) /* the first one may wait for its code to be loaded */
    cost->expected_ns = cost->expected_ns ? approach(cost->expected_ns, took_ns, 8) : took_ns;
  costs->mean_ns = costs->samples++ ? approach(costs->mean_ns, took_ns, 16) : took_ns;
  cost->used = costs->samples;
}

/* The same kernel is followed by now a short one, now a long one: the mean of those lately. */
void costs_follow(struct costs *costs, const struct cost_key *key, uint64_t next_ns) {
  struct cost *cost = find(costs, key);
  if (cost)
    cost->next_ns = cost->next_ns ? approach(cost->next_ns, next_ns, 4) : next_ns;
}

uint64_t costs_next(const struct costs *costs, const struct cost_key *key) {
  const struct cost *cost = costs_find(costs, key);
  return cost ? cost->next_ns : 0;
}
