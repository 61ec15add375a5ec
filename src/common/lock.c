/* lock.c - see lock.h. */
#include "common/lock.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/log.h"

__thread struct lock_held lock_held;

void lock_complain(enum lock_rank rank) {
  static _Atomic bool said;
  bool strict = getenv("GPUSHARE_STRICT");
  if (strict || !atomic_exchange(&said, true))
    log_line(strict ? LOG_LEVEL_ERROR : LOG_LEVEL_DEBUG,
             "a lock of rank %d is taken over those of the ranks %x", (int)rank, lock_held.ranks);
  if (strict)
    abort();
}
