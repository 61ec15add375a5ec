/* refused_ends_beside.c - the same, beside another job. */
#include "refused_ends.c"
