/* faulted_ends.c - the same, on another card: see cases.def. */
#include "faulted.c"
