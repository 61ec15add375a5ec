/*
 * graphs.h - executable graphs whose nodes allocate: the driver takes that memory with a launch, and keeps it
 * until it is trimmed (reserves.h).
 *
 * Threading: any thread.
 */
#ifndef GS_GRAPHS_H
#define GS_GRAPHS_H

/* Caller must: be the child of a fork. */
void graphs_fork_child(void);

#endif
