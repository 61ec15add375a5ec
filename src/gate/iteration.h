/*
 * iteration.h - when a program's next iteration will end, learnt from things that it does once in each. Rules
 * only; ends.c knows what these things are.
 *
 * Threading: none; the caller serializes.
 */
#ifndef GS_ITERATION_H
#define GS_ITERATION_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is known. */
struct iteration {
  uint64_t last_ns, last_calls; /* at the last end; last_ns 0: there was a pause since */
  uint64_t period_ns,
      spread_ns; /* moving averages: of the time between two ends, and of how much it differs */
  uint64_t calls, calls_spread; /* likewise, of submissions */
  unsigned seen;                /* periods */
};

/* An iteration has ended, if anything was submitted since the last end: so many submissions so far. */
void iteration_end(struct iteration *iteration, uint64_t now_ns, uint64_t calls);

/* The program could not go on for a while. */
void iteration_pause(struct iteration *iteration);

/* Whether its iterations are so regular that the next end can be told. */
bool iteration_is_known(const struct iteration *iteration);

/* When the next end is expected: now at the earliest, as one may be a little late. UINT64_MAX: that can't be
 * told. */
uint64_t iteration_next_ns(const struct iteration *iteration, uint64_t now_ns);

#endif
