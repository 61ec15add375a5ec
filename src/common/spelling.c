/* spelling.c - see spelling.h. */
#include "common/spelling.h"

#include <string.h>

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

unsigned spelling_distance(const char *a, size_t a_size, const char *b, size_t b_size) {
  unsigned rows[3][SPELLING_MOST + 1] = {{0}}, *before = rows[0], *last = rows[1], *row = rows[2];
  for (unsigned j = 0; j <= b_size; j++)
    last[j] = j;
  for (size_t i = 1; i <= a_size; i++) {
    row[0] = (unsigned)i;
    for (size_t j = 1; j <= b_size; j++) {
      row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = least(row[j], before[j - 2] + 1);
    }
    unsigned *free_row = before;
    before = last;
    last = row;
    row = free_row;
  }
  return last[b_size];
}

bool spelling_is_nearer(const char *word, const char *name, unsigned *best) {
  size_t size = strlen(word), name_size = strlen(name), longer = size > name_size ? size : name_size;
  unsigned far = longer <= SPELLING_MOST ? spelling_distance(word, size, name, name_size) : *best;
  if (far >= *best || far > (longer + 1) / 3)
    return false;
  *best = far;
  return true;
}
