/*
 * worker.h - the processes of bench_handover and bench_turns that use the card, each with a role
 * of its own. They get what they are to do as arguments, and tell what came of it in packets over the socket
 * that is their standard input: one short text each.
 */
#ifndef GS_BENCH_WORKER_H
#define GS_BENCH_WORKER_H

#include "probe/probe.h"

#define WORKER_TEXT_SIZE 128

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
int job_run(size_t bytes, bool busy);
int paging_run(size_t bytes);
int rush_run(uint64_t spin_ns); /* role rush:DURATION */
/* Role launches: empty kernels. From "filled" on it tells of each slice of some 20 ms: how many it has
 * launched, when it began and when it ended (CLOCK_MONOTONIC, ns), and how often the GPU was so far behind
 * that it waited. */
int launches_run(void);
int checkpoint_run(size_t bytes);

#endif
