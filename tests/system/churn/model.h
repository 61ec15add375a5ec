/*
 * model.h - what memory should hold, without holding it: runs of 8-byte words whose values follow from a seed
 * and from what was done to them since.
 *
 * Offsets and lengths are bytes from the start of the memory, except where words are named. Ranges of a copy
 * must not overlap. Not for use by several threads at once.
 */
#ifndef TEST_CHURN_MODEL_H
#define TEST_CHURN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/kernels.h"

/* Word i of the run is gs_hash(seed, base + i) + added, or seed + added where it is constant. */
struct run {
  uint64_t first, words;
  uint64_t seed, base, added;
  bool constant;
};

struct model {
  struct run *runs; /* in order, without gaps */
  size_t count, room;
  uint64_t words;
};

enum { MODEL_LITERAL_BYTES = 512 };

/* All words are unknown: a constant that nobody writes. */
void model_create(struct model *model, uint64_t bytes);
void model_destroy(struct model *model);

void model_fill(struct model *model, uint64_t first, uint64_t words, uint64_t seed);
void model_add(struct model *model, uint64_t first, uint64_t words, uint64_t delta);
/* `pattern` is what a whole word then holds. */
void model_set(struct model *model, uint64_t at, uint64_t bytes, uint64_t pattern);
/* At most MODEL_LITERAL_BYTES. */
void model_write(struct model *model, uint64_t at, uint64_t bytes, const void *data);
/* Where the two offsets differ modulo 8, at most MODEL_LITERAL_BYTES. */
void model_copy(struct model *to, uint64_t to_at, const struct model *from, uint64_t from_at, uint64_t bytes);

void model_words(const struct model *model, uint64_t first, uint64_t words, uint64_t *out);
/* The run that holds this word. */
const struct run *model_run(const struct model *model, uint64_t word);

#endif
