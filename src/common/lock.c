/* lock.c - see lock.h. */
#include "common/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__thread struct lock_held lock_held;

void lock_complain(uint32_t held, enum lock_rank rank) {
  char text[96];
  if (!getenv("GS_STRICT"))
    return;
  int length = snprintf(text, sizeof text, "gpushare: over locks of the ranks %x one of rank %d is taken\n",
                        held, (int)rank);
  (void)!write(STDERR_FILENO, text, (size_t)length);
  __builtin_trap();
}
