/* lock.c - see lock.h. */
#include "common/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__thread struct lock_held lock_held;

void lock_complain(enum lock_rank rank) {
  if (!getenv("GPUSHARE_STRICT"))
    return;
  dprintf(STDERR_FILENO, "gpushare: a thread that holds locks of the ranks %x takes one of rank %d\n",
          lock_held.ranks, (int)rank);
  abort();
}
