/*
 * costs.h - what submissions take on the GPU: learnt from those that have been measured, for each kernel and
 * number of blocks, each graph, each way and size of a copy. A small table of fixed size; what is seldom
 * measured makes place. Rules only; samples.c measures.
 *
 * Threading: none; the caller serializes.
 */
#ifndef GS_COSTS_H
#define GS_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#define COSTS_SETS 64
#define COSTS_WAYS 4

/* The same kind of submission takes about the same time. */
struct cost_key {
  const void *what;
  uint64_t amount;
  int32_t device;
};

struct cost {
  struct cost_key key;
  uint64_t cost_ns;     /* what it takes of the GPU */
  uint64_t expected_ns; /* what it takes undisturbed; 0: not known */
  uint64_t next_ns;     /* what is submitted after it costs; 0: not known */
  uint64_t used;        /* when it was measured last, in samples */
  unsigned samples;     /* 0: the place is free */
};

struct costs {
  struct cost places[COSTS_SETS][COSTS_WAYS];
  uint64_t samples;
  uint64_t mean_ns; /* of all that was measured */
};

/* One has taken so long. undisturbed: while nobody else was there to make it longer. */
void costs_learn(struct costs *costs, const struct cost_key *key, uint64_t took_ns, bool undisturbed);

/* What is known of such; NULL: nothing. Until the next costs_learn. */
const struct cost *costs_find(const struct costs *costs, const struct cost_key *key);

/* After such a one another was submitted, which cost so much; what the next one is believed to cost, 0: not
 * known. */
void costs_follow(struct costs *costs, const struct cost_key *key, uint64_t next_ns);
uint64_t costs_next(const struct costs *costs, const struct cost_key *key);

/* What such a one is believed to cost: if nothing is known of it, the mean of the others. */
uint64_t costs_of(const struct costs *costs, const struct cost_key *key);

#endif
