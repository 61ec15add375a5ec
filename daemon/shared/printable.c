/* printable.c - texts from programs, for terminals and logs. */
#include "shared/printable.h"

void printable_copy(char *to, const char *from, size_t size) {
  size_t i = 0;
  for (; i < size - 1 && from[i]; i++)
    to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
  to[i] = '\0';
}
