/* futex.h - wait for a word to change, wake who waits for it. Private to one process. */
#ifndef GS_FUTEX_H
#define GS_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

static inline void futex_wait_by(int operation, _Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns) {
  struct timespec timeout = clock_timespec(timeout_ns);
  syscall(SYS_futex, word, operation, seen, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

/* Returns when woken, when *word is not `seen`, after timeout_ns (UINT64_MAX: never), or for no reason.
 * Changes errno. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns) {
  futex_wait_by(FUTEX_WAIT_PRIVATE, word, seen, timeout_ns);
}

static inline void futex_wake(_Atomic uint32_t *word, int32_t count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

#endif
