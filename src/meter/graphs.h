/*
 * graphs.h - what a launch of an executable graph submits: counted when it is instantiated, or a node of it
 * is changed; after an update, a few nodes at a time.
 *
 * Threading: any thread.
 */
#ifndef GS_GRAPHS_H
#define GS_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/physical.h"
#include "meter/meter.h"

/* Of a graph that was made in a way that we don't hook: nothing but the launch. */
struct meter_work graphs_work(CUgraphExec graph);

/* The card memory of a graph whose nodes allocate: the driver takes it with a launch, and keeps it until it
 * is trimmed (memory/reserves.h). Begins as {0}, one for each launch. */
struct graph_memory {
  uint64_t bytes; /* reserved for it */
  CUdevice device;
  uint64_t trims;
  struct physical_patience patience;
};

/* Some graph of this process allocates. */
extern _Atomic bool graphs_allocate;

/* Before a launch, outside of the gate: reserve and await what the graph will take, unless it has it. */
void graphs_take_memory(CUgraphExec graph, struct graph_memory *memory);

/* After it. True: the driver had no memory for it, and is to be asked once more. */
bool graphs_again(CUresult result, CUgraphExec graph, struct graph_memory *memory);

void graphs_fork_child(void);

#endif
