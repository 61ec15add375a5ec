/* wrappers.h - the exported wrappers, one per hooked row of hooks.def, in its order. */
#ifndef GS_WRAPPERS_H
#define GS_WRAPPERS_H

#include <stddef.h>

struct wrapper {
  const char *name;
  void *function; /* ours */
  void **real;    /* the driver's: a field of `driver` */
};

extern const struct wrapper wrappers[];
extern const size_t wrapper_count;

#endif
