/* faulted_told_beside.c - the same, on a card whose driver tells of the fault when a context ends. */
#include "faulted_contexts.c"
