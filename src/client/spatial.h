/*
 * spatial.h - whether this process uses MPS, as decided at its first cuInit: the daemon is asked, and the
 * driver told by its environment.
 *
 * Any thread.
 */
#ifndef GS_SPATIAL_H
#define GS_SPATIAL_H

#include <stdbool.h>

/* It does. */
bool spatial_is_on(void);

/* In the child of a fork: nothing is decided. */
void spatial_fork_child(void);

#endif
