/* faulted_contexts_beside.c - the same, beside another job. */
#include "faulted_contexts.c"
