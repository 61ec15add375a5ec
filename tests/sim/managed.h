/*
 * managed.h - unified memory: what an access, a prefetch, a discard or an advice does to the pages of a
 * range.
 *
 * Places are card numbers or PREFER_HOST. Called by the threads that run the streams; what takes time sleeps
 * for it.
 */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

#include "memory.h"

/* Move the pages; `gpu` is the card that does the work. Returns what is still owed (engine.h). */
uint64_t managed_prefetch(CUdeviceptr address, size_t bytes, int to, unsigned gpu, uint64_t due_ns);
void managed_discard(CUdeviceptr address, size_t bytes, unsigned gpu);

struct managed_advice {
  CUmem_advise advice;
  int place;
};
void managed_advise(CUdeviceptr address, size_t bytes, struct managed_advice *advice);

/* What all pages of a range have in common. */
struct managed_range {
  uint64_t pages, resident_pages;
  int preferred, last_prefetch;
  unsigned accessed_by;
};
void managed_range(CUdeviceptr address, size_t bytes, struct managed_range *range);

#endif
