/*
 * mps_choice.h - whether this process uses MPS, as decided at its first cuInit: the daemon is asked, and the
 * driver told by its environment.
 *
 * Any thread.
 */
#ifndef GS_MPS_CHOICE_H
#define GS_MPS_CHOICE_H

#include <stdbool.h>

/* It does. */
bool mps_choice_is_on(void);

/* In the child of a fork: nothing is decided. */
void mps_choice_fork_child(void);

#endif
