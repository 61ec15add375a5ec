/* check.c - memory compared with its model: on the host after a copy of some kind, or by a kernel. */
#include <stdio.h>
#include <string.h>

#include "worker.h"

enum { SHOWN = 4, PART_BYTES_MAX = 8 << 20 };

/* ---- what differs ---- */

/* Where the first byte is that differs. */
static uint64_t print_difference(const struct buffer *buffer, uint64_t at, const unsigned char *got,
                                 const unsigned char *expected, uint64_t bytes) {
  uint64_t first = bytes, last = 0, wrong = 0;
  for (uint64_t i = 0; i < bytes; i++) {
    if (got[i] == expected[i])
      continue;
    first = first < i ? first : i;
    last = i;
    wrong++;
  }
  printf("mismatch in %llu bytes of %s at %#llx: %llu of the bytes %llu to %llu (addresses %#llx to %#llx)\n",
         (unsigned long long)buffer->bytes, buffer_kind_name(buffer->kind), (unsigned long long)buffer->at,
         (unsigned long long)wrong, (unsigned long long)(at + first), (unsigned long long)(at + last),
         (unsigned long long)(buffer->at + at + first), (unsigned long long)(buffer->at + at + last));
  for (uint64_t i = first, shown = 0; i < bytes && shown < SHOWN; i += 8, shown++) {
    uint64_t is = 0, should = 0, length = bytes - i < 8 ? bytes - i : 8;
    memcpy(&is, got + i, length);
    memcpy(&should, expected + i, length);
    printf("  byte %llu: %016llx, not %016llx\n", (unsigned long long)(at + i), (unsigned long long)is,
           (unsigned long long)should);
  }
  return at + first;
}

static void compare(struct worker *worker, const struct buffer *buffer, uint64_t at, uint64_t bytes,
                    const char *got) {
  model_words(&buffer->model, at / 8, (at % 8 + bytes + 7) / 8, worker->expected);
  const char *expected = (const char *)worker->expected + at % 8;
  worker->tally.checks++;
  worker->tally.checked_bytes += bytes;
  if (memcmp(expected, got, bytes) == 0)
    return;
  uint64_t wrong =
      print_difference(buffer, at, (const unsigned char *)got, (const unsigned char *)expected, bytes);
  const struct run *run = model_run(&buffer->model, wrong / 8);
  printf("  thread %d; a run of words %llu to %llu, %s, seed %#llx, base %llu, added %#llx\n", worker->index,
         (unsigned long long)run->first, (unsigned long long)(run->first + run->words),
         run->constant ? "constant" : "hashed", (unsigned long long)run->seed, (unsigned long long)run->base,
         (unsigned long long)run->added);
  give_up();
}

/* ---- on the host ---- */

/* At most CHUNK_BYTES. Where they are. */
static const char *download(struct worker *worker, struct buffer *buffer, uint64_t at, uint64_t bytes) {
  enum lane_name lane = lane_random(worker);
  char *to = one_in(worker, 2) ? worker->pinned : worker->pageable;
  lane_take(worker, lane, buffer);
  if (lane == LANE_LEGACY) {
    MUST(cuMemcpyDtoH(to, buffer->at + at, bytes));
    return to;
  }
  MUST(cuMemcpyDtoHAsync(to, buffer->at + at, bytes, worker->lanes[lane].stream));
  lane_wait(worker, lane);
  return to;
}

void check_range(struct worker *worker, struct buffer *buffer, uint64_t at, uint64_t bytes) {
  for (uint64_t end = at + bytes, some; at < end; at += some) {
    some = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
    compare(worker, buffer, at, some, download(worker, buffer, at, some));
  }
}

void check_buffer(struct worker *worker, struct buffer *buffer) {
  check_range(worker, buffer, 0, buffer->bytes);
}

void check_all(struct worker *worker) {
  for (int i = 0; i < worker->count; i++)
    check_buffer(worker, worker->buffers[i]);
}

/* ---- by a kernel ---- */

static uint64_t count_mismatches(struct worker *worker, CUdeviceptr at, uint64_t words, uint64_t seed,
                                 CUstream stream) {
  uint64_t found = 0;
  MUST(cuMemsetD8Async(worker->counter, 0, sizeof found, stream));
  MUST(cuLaunchKernel(worker->place->check, grid_of(words), 1, 1, BLOCK_THREADS, 1, 1, 0, stream,
                      (void *[]){&at, &words, &seed, &worker->counter}, NULL));
  MUST(cuMemcpyDtoHAsync(&found, worker->counter, sizeof found, stream));
  MUST(cuStreamSynchronize(stream));
  return found;
}

/* The kernel knows of no addition, so it is undone and done again. */
static void run_check(struct worker *worker, struct buffer *buffer, const struct run *run) {
  struct operation add = {.kind = OPERATION_ADD, .to = buffer, .rows = 1};
  CUstream stream = worker->lanes[LANE_SECOND].stream;
  add.to_at = run->first * 8;
  add.bytes = run->words * 8;
  add.value = 0 - run->added;
  lane_take(worker, LANE_SECOND, buffer);
  operation_submit(worker, &add, stream);
  uint64_t found = count_mismatches(worker, buffer->at + add.to_at, run->words, run->seed, stream);
  add.value = run->added;
  operation_submit(worker, &add, stream);
  worker->tally.checks++;
  worker->tally.checked_bytes += add.bytes;
  if (found == 0)
    return;
  printf("mismatch seen by a kernel: %llu words\n", (unsigned long long)found);
  check_buffer(worker, buffer);
  give_up();
}

static bool run_is_hashed(const struct run *run, uint64_t bytes) {
  return !run->constant && run->base == 0 && (run->first + run->words) * 8 <= bytes;
}

void check_something(struct worker *worker) {
  struct buffer *buffer = buffer_random(worker);
  const struct run *run = model_run(&buffer->model, random_below(worker, buffer->model.words));
  if (run_is_hashed(run, buffer->bytes) && one_in(worker, 2)) {
    run_check(worker, buffer, run);
    return;
  }
  uint64_t most = buffer->bytes < PART_BYTES_MAX ? buffer->bytes : PART_BYTES_MAX;
  uint64_t bytes = one_in(worker, 4) ? most : random_size(worker, most);
  check_range(worker, buffer, random_below(worker, buffer->bytes - bytes + 1), bytes);
}
