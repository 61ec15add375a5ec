/*
 * cache.h - what PyTorch's allocator keeps, and nobody uses, need not move at the end of a turn. Before a
 * turn ends, as foreseen, the cache is emptied where the program has least, which is between two iterations
 * of a training, and the turn ends there: later the program would take the memory again.
 *
 * By a setting (GPUSHARE_EMPTY_CACHE): it runs torch.cuda.memory_allocated and torch.cuda.empty_cache in the
 * main thread of the program's interpreter, by pending calls (Py_AddPendingCall). A program without PyTorch,
 * whose main thread does not run Python then, or that captures, keeps what it has.
 */
#ifndef GS_CACHE_H
#define GS_CACHE_H

#include <stdint.h>

struct gpu;

/* A timer of the connection thread: when to call again, UINT64_MAX: when something has changed. The client's
 * lock is held. */
uint64_t cache_check(struct gpu *gpu, uint64_t now_ns);

#endif
