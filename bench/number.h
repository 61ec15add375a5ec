/* number.h - numbers in the options of benchmarks that take all of 64 bits, as seeds do. */
#ifndef GS_BENCH_NUMBER_H
#define GS_BENCH_NUMBER_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* False: it is none, or not in these bounds. */
static inline bool read_number(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
  char *rest;
  errno = 0;
  *number = strtoull(text, &rest, 10);
  return !errno && !*rest && rest != text && *text != '-' && *number >= least && *number <= most;
}

#endif
