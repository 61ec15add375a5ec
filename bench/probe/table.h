/* table.h - the orders that one process gives to two holders (holder.h), and what copies between the card and
 * pinned memory reach at most. It never touches the driver itself. */
#ifndef GS_PROBE_TABLE_H
#define GS_PROBE_TABLE_H

#include "holder.h"

struct table {
  int out, in;                /* sockets of the holders */
  atomic_size_t *freed_bytes; /* holder.h */
  size_t bytes;               /* each holder's */
};

bool order_send(int fd, struct order order);
/* False, and a line: it failed, or is gone. */
bool report_get(int fd, struct report *report);
bool one_do(int fd, struct order order, struct report *report);
/* One order to each, obeyed at the same time. */
bool both_do(const struct table *t, struct order out, struct order in, struct report reports[2]);
/* From the start of the first to the end of the last. */
uint64_t whole_ns(const struct report reports[2]);

/* As much pinned host memory as the table says, for both. */
bool slabs_make(const struct table *t, struct report reports[2]);

/* ---- ceilings, in GB/s: no memory is made or given back ---- */

bool copies_prepare(const struct table *t);

/* One process; both at once where neither is 0. */
bool one_copy(int fd, size_t out_bytes, size_t in_bytes, double *rate);

struct copies {
  double out, in, both; /* both: bytes of one over the time until both are done */
};

/* Two processes, one out, one in. */
bool both_copy(const struct table *t, struct copies *copies);

#endif
