/*
 * worker.h - the parts of churn: a worker is one thread with its own memory, streams and graphs, and a model
 * of what its memory holds.
 *
 * Everything of a worker is its thread's alone, but for the place (context), which it shares. Work goes to
 * lanes: streams of several kinds, put in order by events wherever two touch the same buffer.
 */
#ifndef TEST_CHURN_WORKER_H
#define TEST_CHURN_WORKER_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "model.h"

enum { BUFFERS_MAX = 96, RECORDINGS_MAX = 6, RECORDED_MAX = 6, RUNS_MAX = 400 };
#define CHUNK_BYTES ((uint64_t)4 << 20)

enum lane_name { LANE_LEGACY, LANE_PER_THREAD, LANE_BLOCKING, LANE_FIRST, LANE_SECOND, LANES };

struct place { /* a context and what is in it */
  CUdevice device;
  CUcontext context;
  CUfunction fill, add, check, spin;
  CUmemoryPool pool;
};

struct lane {
  CUstream stream;
  CUevent event;
};

enum buffer_kind { BUFFER_PLAIN, BUFFER_PITCHED, BUFFER_ASYNC, BUFFER_POOL, BUFFER_MANAGED, BUFFER_KINDS };

struct buffer {
  enum buffer_kind kind;
  CUdeviceptr at;
  uint64_t bytes;
  enum lane_name lane; /* that touched it last */
  struct model model;
};

enum operation_kind { OPERATION_FILL, OPERATION_ADD, OPERATION_SET, OPERATION_COPY };

struct operation { /* one change of memory, which may be done again and again */
  enum operation_kind kind;
  struct buffer *to, *from;
  uint64_t to_at, from_at, bytes;      /* of each row */
  uint64_t rows, to_pitch, from_pitch; /* of sets and copies */
  uint64_t value;                      /* seed, delta or pattern */
  unsigned element;                    /* bytes of one set */
};

struct recording { /* an executable graph with the addresses in it */
  CUgraph graph;   /* NULL: destroyed after it was instantiated */
  CUgraphExec exec;
  CUgraphNode nodes[RECORDED_MAX]; /* of one that was built by hand */
  struct operation operations[RECORDED_MAX];
  int count;
};

struct tally {
  uint64_t operations, allocations, frees, refused, recordings, launches, checks, checked_bytes;
};

struct worker {
  int index;
  pthread_t thread;
  const struct place *place;
  uint64_t random;
  struct lane lanes[LANES];
  struct buffer *buffers[BUFFERS_MAX];
  int count;
  uint64_t used_bytes, share_bytes, largest_bytes;
  struct recording recordings[RECORDINGS_MAX];
  int recorded;
  char *pinned, *pageable; /* CHUNK_BYTES each */
  uint64_t *expected;      /* a little more than that */
  CUdeviceptr counter;
  uint64_t called, called_back; /* host functions handed to the lanes, and run */
  struct tally tally;
};

/* ---- churn.c ---- */

#define MUST(call) must(call, #call)
void must(CUresult result, const char *call);
/* What went wrong has been said: print the sums and end the process. */
_Noreturn void give_up(void);
uint64_t random_number(struct worker *worker);
uint64_t random_below(struct worker *worker, uint64_t limit);
bool one_in(struct worker *worker, uint64_t cases);
/* From 1 to `most`, each order of magnitude as likely. */
uint64_t random_size(struct worker *worker, uint64_t most);
/* Waiting for a whole context breaks the captures in it: shared while capturing, exclusive while waiting. */
extern pthread_rwlock_t capture_lock;

/* ---- lanes.c ---- */

void lanes_open(struct worker *worker);
void lanes_close(struct worker *worker);
enum lane_name lane_random(struct worker *worker);
/* What `to` gets from now on runs after what `from` has got so far. */
void lane_follow(struct worker *worker, enum lane_name to, enum lane_name from);
/* The same for whoever touched the buffer last; the lane is its last one now. */
void lane_take(struct worker *worker, enum lane_name lane, struct buffer *buffer);
void lane_wait(struct worker *worker, enum lane_name lane);
/* Wait for something, in one of many ways. */
void lanes_wait_somehow(struct worker *worker);

/* ---- buffers.c ---- */

/* NULL if there is no memory for it. Its contents are unknown. */
struct buffer *buffer_create(struct worker *worker);
void buffer_destroy(struct worker *worker, struct buffer *buffer);
/* NULL if there is none. */
struct buffer *buffer_random(struct worker *worker);
const char *buffer_kind_name(enum buffer_kind kind);
/* What the driver says of an address within. */
void buffer_check_address(struct worker *worker, const struct buffer *buffer);

/* ---- operation.c ---- */

/* Some change of a random range. */
struct operation operation_random(struct worker *worker);
/* What a word holds that has been set by elements of this size. */
uint64_t pattern_random(struct worker *worker, unsigned element);
/* Another copy or kernel on the same buffers, in one dimension; perhaps something else where that is too
 * short. */
struct operation operation_like(struct worker *worker, const struct operation *operation);
/* All of the buffer gets known contents. */
void buffer_fill_all(struct worker *worker, struct buffer *buffer);
/* Submit it; in a capture, on the stream given and nowhere else. */
void operation_submit(struct worker *worker, const struct operation *operation, CUstream stream);
/* It has been submitted: the model follows. */
void operation_apply(const struct operation *operation);
/* All of it: order, submit, apply. */
void operation_do(struct worker *worker, const struct operation *operation);
/* From the host's memory. */
void buffer_upload(struct worker *worker, struct buffer *buffer);
/* The shape of a kernel's launch. */
unsigned grid_of(uint64_t words);
enum { BLOCK_THREADS = 256 };

/* ---- recording.c ---- */

void recording_make(struct worker *worker);
void recording_launch(struct worker *worker);
/* Destroy those that have this buffer's address; NULL: all. */
void recordings_drop(struct worker *worker, const struct buffer *buffer);

/* ---- check.c ---- */

void check_range(struct worker *worker, struct buffer *buffer, uint64_t at, uint64_t bytes);
void check_buffer(struct worker *worker, struct buffer *buffer);
void check_all(struct worker *worker);
/* Some part of some buffer, in some way. */
void check_something(struct worker *worker);

#endif
