/* fork.h - the child of a fork is a fresh process. */
#ifndef GS_FORK_H
#define GS_FORK_H

/* See to it that the child of a fork becomes one, unless that is done already: when the library is loaded,
 * and, should memory have been out then, again before the first thing that a child must not inherit. */
void fork_watch(void);

#endif
