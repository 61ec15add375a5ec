/*
 * graphs.h - what a launch of an executable graph submits: counted when it is instantiated, or a node of it
 * is changed; after an update, a few nodes at a time.
 *
 * Threading: any thread.
 */
#ifndef GS_GRAPHS_H
#define GS_GRAPHS_H

#include "meter/meter.h"

/* Of a graph that was made in a way that we don't hook: nothing but the launch. */
struct meter_work graphs_work(CUgraphExec graph);

void graphs_fork_child(void);

#endif
