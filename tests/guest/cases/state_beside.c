/* state_beside.c - the same while the program has to wait for its turns. */
#include "state.c"
