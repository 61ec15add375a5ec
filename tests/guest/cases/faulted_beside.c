/* faulted_beside.c - the same, on another card: see cases.def. */
#include "faulted.c"
