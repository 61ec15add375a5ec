/* holder.h - a process that holds memory and moves it between card and host as the handover section orders.
 */
#ifndef GS_PROBE_HOLDER_H
#define GS_PROBE_HOLDER_H

#include <stdatomic.h>

#include "pieces.h"

enum op {
  HOLDER_OPEN, /* a context; the report tells how much each of two holders can hold (under a GiB: too little)
                */
  HOLDER_SLAB, /* bytes of pinned host memory, touched */
  HOLDER_PREPARE, /* as many pieces of that size, there (resident) or not */
  HOLDER_COPY,    /* out_bytes and in_bytes at once, pieces as they are */
  HOLDER_EVICT,   /* copy, unmap and release each piece, and count what is free */
  HOLDER_RESTORE, /* create, map and copy each piece, once there is room */
};

struct order {
  enum op op;
  size_t bytes, piece, out_bytes, in_bytes;
  int window; /* copies in flight at most */
  bool resident;
};

/* Where the time of a hand-over goes. */
enum phase { WAIT_ROOM, WAIT_COPY, CREATING, MAPPING, OPENING, UNMAPPING, RELEASING, PHASES };

struct report {
  CUresult result;
  size_t bytes;
  uint64_t start_ns, end_ns, spent_ns[PHASES];
};

/* A holder's life: orders from the socket, a report for each, until the other end closes. freed_bytes: in
 * memory that all holders share. */
void holder_run(int fd, atomic_size_t *freed_bytes);

#endif
