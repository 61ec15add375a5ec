/* scratch.h - memory for one answer: taken piece by piece, given back all at once. */
#ifndef GS_PLUGIN_SCRATCH_H
#define GS_PLUGIN_SCRATCH_H

#include <stddef.h>

struct scratch_piece;

/* Begins zeroed. */
struct scratch {
  struct scratch_piece *last;
};

/* Zeroed, for `count` things of `size` bytes (count may be 0); NULL without memory. */
void *scratch_take(struct scratch *scratch, size_t count, size_t size);

/* NULL without memory. */
char *scratch_print(struct scratch *scratch, const char *format, ...) __attribute__((format(printf, 2, 3)));

void scratch_free(struct scratch *scratch);

#endif
