/*
 * pieces.h - a range of addresses whose memory comes and goes piece by piece, and what the sections on it
 * share.
 */
#ifndef GS_PROBE_PIECES_H
#define GS_PROBE_PIECES_H

#include <sys/types.h>

#include "probe.h"

struct piece {
  CUmemGenericAllocationHandle handle;
  bool created, mapped;
};

struct pieces {
  CUdeviceptr at;
  size_t size; /* of one piece */
  size_t count;
  struct piece *piece;
  CUmemLocation location;
};

CUresult pieces_reserve(struct pieces *s, const struct probe *p, size_t size, size_t bytes);
/* Everything goes: mappings, memory, addresses. */
void pieces_drop(struct pieces *s);
CUdeviceptr piece_at(const struct pieces *s, size_t i);

CUresult piece_create(struct pieces *s, size_t i);
CUresult piece_map(struct pieces *s, size_t i);
CUresult piece_access(struct pieces *s, size_t i, size_t run);
CUresult piece_unmap(struct pieces *s, size_t i, size_t run);
CUresult piece_release(struct pieces *s, size_t i);
/* All of them created, mapped and accessible. */
CUresult pieces_fill(struct pieces *s);

/* Does the card have that much free, with a GiB to spare? If not, a line that tells. */
bool card_fits(const char *what, size_t bytes);

/* Anonymous memory in huge pages, written by that many threads; NULL if there is none. */
void *slab_map(size_t bytes, int threads);

/* A child that dies with its parent; 0 in the child. */
pid_t child_fork(void);

static inline double ms_since(uint64_t start_ns) { return (double)(clock_now_ns() - start_ns) / 1e6; }
static inline double gb_per_s(size_t bytes, uint64_t ns) { return (double)bytes / (double)(ns ? ns : 1); }

#endif
