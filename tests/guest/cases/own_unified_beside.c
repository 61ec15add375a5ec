/* own_unified_beside.c - the same while the GPU is taken in turns. */
#include "own_unified.c"
