/* cancelled_beside.c - the same while the program has to wait for its turns, and for room. */
#include "cancelled.c"
