/* model.c - see model.h. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN UINT64_C(0xbadbadbadbadbad1)

static uint64_t words_of(uint64_t bytes) { return (bytes + 7) / 8; }

static uint64_t run_word(const struct run *run, uint64_t i) {
  return (run->constant ? run->seed : gs_hash(run->seed, run->base + i)) + run->added;
}

void model_create(struct model *model, uint64_t bytes) {
  *model = (struct model){.words = words_of(bytes)};
  model->room = 16;
  model->runs = malloc(model->room * sizeof(struct run));
  if (!model->runs)
    abort();
  model->runs[model->count++] = (struct run){.words = model->words, .seed = UNKNOWN, .constant = true};
}

void model_destroy(struct model *model) {
  free(model->runs);
  *model = (struct model){.runs = NULL};
}

/* Index of the run that holds the word; `count` behind the end. */
static size_t run_index(const struct model *model, uint64_t word) {
  size_t low = 0, high = model->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (model->runs[middle].first + model->runs[middle].words <= word)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const struct run *model_run(const struct model *model, uint64_t word) {
  return &model->runs[run_index(model, word)];
}

/* Room for `wanted` runs in the place of `present` ones at the index. */
static void runs_resize(struct model *model, size_t index, size_t present, size_t wanted) {
  size_t behind = model->count - index - present;
  while (model->count + wanted - present > model->room) {
    model->room *= 2;
    model->runs = realloc(model->runs, model->room * sizeof(struct run));
    if (!model->runs)
      abort();
  }
  memmove(&model->runs[index + wanted], &model->runs[index + present], behind * sizeof(struct run));
  model->count = model->count + wanted - present;
}

/* The run without its first words. */
static struct run run_after(struct run run, uint64_t words) {
  run.first += words;
  run.base += words;
  run.words -= words;
  return run;
}

/* From now on a run starts at the word; its index. */
static size_t run_split(struct model *model, uint64_t word) {
  size_t index = run_index(model, word);
  if (index == model->count || model->runs[index].first == word)
    return index;
  uint64_t before = word - model->runs[index].first;
  runs_resize(model, index, 1, 2);
  model->runs[index + 1] = run_after(model->runs[index], before);
  model->runs[index].words = before;
  return index + 1;
}

static void runs_replace(struct model *model, uint64_t first, uint64_t words, const struct run *runs,
                         size_t count) {
  size_t from = run_split(model, first), to = run_split(model, first + words);
  runs_resize(model, from, to - from, count);
  memcpy(&model->runs[from], runs, count * sizeof(struct run));
}

void model_fill(struct model *model, uint64_t first, uint64_t words, uint64_t seed) {
  const struct run run = {.first = first, .words = words, .seed = seed};
  runs_replace(model, first, words, &run, 1);
}

void model_add(struct model *model, uint64_t first, uint64_t words, uint64_t delta) {
  size_t from = run_split(model, first), to = run_split(model, first + words);
  for (size_t i = from; i < to; i++)
    model->runs[i].added += delta;
}

void model_words(const struct model *model, uint64_t first, uint64_t words, uint64_t *out) {
  uint64_t end = first + words;
  for (size_t i = run_index(model, first); first < end; i++) {
    const struct run *run = &model->runs[i];
    uint64_t stop = run->first + run->words < end ? run->first + run->words : end;
    for (; first < stop; first++)
      *out++ = run_word(run, first - run->first);
  }
}

/* Whole words, as many runs; what is not written keeps its bytes. */
void model_write(struct model *model, uint64_t at, uint64_t bytes, const void *data) {
  uint64_t words[MODEL_LITERAL_BYTES / 8 + 2], first = at / 8, count = words_of(at % 8 + bytes);
  struct run runs[MODEL_LITERAL_BYTES / 8 + 2];
  if (bytes == 0)
    return;
  model_words(model, first, count, words);
  memcpy((char *)words + at % 8, data, bytes);
  for (uint64_t i = 0; i < count; i++)
    runs[i] = (struct run){.first = first + i, .words = 1, .seed = words[i], .constant = true};
  runs_replace(model, first, count, runs, count);
}

/* The bytes before the first whole word, and those in whole words. */
static uint64_t head_bytes(uint64_t at, uint64_t bytes) {
  uint64_t head = (8 - at % 8) % 8;
  return head < bytes ? head : bytes;
}

void model_set(struct model *model, uint64_t at, uint64_t bytes, uint64_t pattern) {
  uint64_t head = head_bytes(at, bytes), whole = (bytes - head) / 8, done = head + whole * 8;
  const struct run run = {.first = (at + head) / 8, .words = whole, .seed = pattern, .constant = true};
  model_write(model, at, head, (const char *)&pattern + at % 8);
  if (whole)
    runs_replace(model, run.first, whole, &run, 1);
  model_write(model, at + done, bytes - done, &pattern);
}

static void literal_copy(struct model *to, uint64_t to_at, const struct model *from, uint64_t from_at,
                         uint64_t bytes) {
  uint64_t words[MODEL_LITERAL_BYTES / 8 + 2];
  if (bytes == 0)
    return;
  model_words(from, from_at / 8, words_of(from_at % 8 + bytes), words);
  model_write(to, to_at, bytes, (const char *)words + from_at % 8);
}

/* The runs of the words, as they are to be in another place. */
static struct run *runs_copied(const struct model *from, uint64_t first, uint64_t words, uint64_t to_first,
                               size_t *count) {
  size_t start = run_index(from, first), end = run_index(from, first + words - 1) + 1;
  struct run *runs = malloc((end - start) * sizeof(struct run));
  if (!runs)
    abort();
  memcpy(runs, &from->runs[start], (end - start) * sizeof(struct run));
  *count = end - start;
  runs[0] = run_after(runs[0], first - runs[0].first);
  struct run *last = &runs[*count - 1];
  last->words = first + words - last->first;
  for (size_t i = 0; i < *count; i++)
    runs[i].first += to_first - first;
  return runs;
}

static void words_copy(struct model *to, uint64_t to_first, const struct model *from, uint64_t first,
                       uint64_t words) {
  size_t count;
  if (words == 0)
    return;
  struct run *runs = runs_copied(from, first, words, to_first, &count);
  runs_replace(to, to_first, words, runs, count);
  free(runs);
}

void model_copy(struct model *to, uint64_t to_at, const struct model *from, uint64_t from_at,
                uint64_t bytes) {
  if (to_at % 8 != from_at % 8) {
    literal_copy(to, to_at, from, from_at, bytes);
    return;
  }
  uint64_t head = head_bytes(to_at, bytes), whole = (bytes - head) / 8, done = head + whole * 8;
  literal_copy(to, to_at, from, from_at, head);
  words_copy(to, (to_at + head) / 8, from, (from_at + head) / 8, whole);
  literal_copy(to, to_at + done, from, from_at + done, bytes - done);
}
