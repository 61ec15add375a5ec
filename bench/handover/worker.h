/*
 * worker.h - the processes of bench_handover, bench_turns, bench_react and bench_loops that use the card,
 * each with a role of its own. They get what they are to do as arguments, and tell what came of it in packets
 * over the socket that is their standard input: one short text each.
 */
#ifndef GS_BENCH_WORKER_H
#define GS_BENCH_WORKER_H

#include "probe.h"

#define WORKER_TEXT_SIZE 128

enum { GRAPH_NODES = 10000 };

/* False: whoever listened is gone. */
bool worker_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits for an order. False: there will be none. */
bool worker_hear(char text[WORKER_TEXT_SIZE]);
/* Without waiting: has one arrived? */
bool worker_has_order(void);

/* The number of words of [at, at + bytes) that a fill with this seed has not left there; -1: a line tells why
 * that can't be known. `counter`: 8 bytes on the card. */
int64_t worker_mismatches(const struct probe *p, CUdeviceptr at, size_t bytes, uint64_t seed,
                          CUdeviceptr counter);

/* Roles; 0 or an exit status. */
int job_run(size_t bytes);
int copier_run(size_t bytes);
int rush_run(uint64_t spin_ns); /* role rush:DURATION */
int graphs_run(void);           /* role graphs: of GRAPH_NODES kernels each, one behind the other */
int copies_run(size_t bytes);   /* role copies: of so much, both ways, between the card and pinned memory */
int flood_run(void);            /* role flood: millions of atomics on a word of the host's, again and again */
int ticks_run(uint64_t tick_ns); /* role ticks:DURATION: each kernel counts up board.h's ticks for so long */
int bursts_run(void);            /* role bursts: works when board.h's order says so */
int loops_run(void);             /* role loops: plays the loops that it is told to */

#endif
