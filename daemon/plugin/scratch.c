/* scratch.c - a list of pieces of memory that end together. */
#include "plugin/scratch.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct scratch_piece {
  struct scratch_piece *before;
  max_align_t bytes[];
};

void *scratch_take(struct scratch *scratch, size_t count, size_t size) {
  if (count > (SIZE_MAX - sizeof(struct scratch_piece)) / size)
    return NULL;
  struct scratch_piece *piece = calloc(1, sizeof *piece + count * size);
  if (!piece)
    return NULL;
  piece->before = scratch->last;
  scratch->last = piece;
  return piece->bytes;
}

char *scratch_print(struct scratch *scratch, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = length < 0 ? NULL : scratch_take(scratch, (size_t)length + 1, 1);
  if (text)
    vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

void scratch_free(struct scratch *scratch) {
  while (scratch->last) {
    struct scratch_piece *piece = scratch->last;
    scratch->last = piece->before;
    free(piece);
  }
}
