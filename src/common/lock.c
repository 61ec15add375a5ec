/* lock.c - see lock.h. */
#include "common/lock.h"

__thread struct lock_held lock_held;
