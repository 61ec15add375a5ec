/*
 * work.h - one piece of work that a stream does or a graph node records: what, with all its parameters by
 * value.
 */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include "cuda_all.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum work_kind {
  WORK_EMPTY, /* a marker; no work of the GPU */
  WORK_KERNEL,
  WORK_COPY,
  WORK_SET,
  WORK_HOST_FUNCTION,
  WORK_CALLBACK,
  WORK_WAIT_VALUE,
  WORK_WRITE_VALUE,
  WORK_PREFETCH,
  WORK_DISCARD,
  WORK_ALLOC, /* in graphs only: its memory has its address before, and its room from the first launch on */
  WORK_FREE,
  WORK_GRAPH
};

enum { KERNEL_ARGS = 4 };

struct work_side { /* one end of a copy */
  uintptr_t at;
  size_t pitch, slice; /* bytes from row to row, from layer to layer */
};

struct work_list { /* the works of a launched graph, in an order that respects its edges; reference counted */
  _Atomic unsigned references;
  size_t count;
  struct work *works;
};

struct work {
  enum work_kind kind;
  unsigned gpu;
  union {
    struct {
      const struct kernel *kernel;
      uint64_t args[KERNEL_ARGS];
      unsigned grid[3];
    } kernel;
    struct {
      struct work_side from, to;
      size_t width, height, depth;
      void *staged; /* malloc'ed copy of the source, freed after the copy; or NULL */
    } copy;
    struct {
      uintptr_t at;
      size_t pitch, width, height; /* width in elements */
      uint32_t value;
      unsigned element_bytes;
    } set;
    struct {
      CUhostFn function;
      void *data;
    } host;
    struct {
      CUstreamCallback function;
      CUstream stream;
      void *data;
    } callback;
    struct {
      uintptr_t at;
      uint64_t value;
      unsigned bytes, flags;
    } value;
    struct {
      CUdeviceptr at;
      size_t bytes;
      int to; /* a card or PREFER_HOST */
    } range;
    struct {
      CUdeviceptr at;
    } free;
    struct work_list *graph;
  };
};

/* Do it. due_ns: what the stream owes from costs too small to sleep for; returns what it owes afterwards. */
uint64_t work_run(struct work *work, uint64_t due_ns);
/* Give back what the work holds (staged bytes, a graph). */
void work_release(struct work *work);
/* A copy or set of memory that is to be mapped by hand, and is not: nodes of it are refused. */
bool work_lacks_memory(const struct work *work);
/* Is its end told by the channel? What unified memory does, the kernel module does by channels of its own. */
bool work_in_channel(const struct work *work);
/* Does it keep the process "in flight"? */
bool work_counts(const struct work *work);

struct work_list *work_list_create(size_t count);
void work_list_release(struct work_list *list);

uint64_t copy_run(const struct work *work, uint64_t due_ns);
uint64_t set_run(const struct work *work, uint64_t due_ns);
uint64_t kernel_run(const struct work *work, uint64_t due_ns);

#endif
