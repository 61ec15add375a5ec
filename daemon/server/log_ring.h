/*
 * log_ring.h - the log never holds the event loop up: lines wait in a ring of bounded size for a thread that
 * alone writes to stderr, and alone waits for it.
 *
 * Why a thread: whoever holds the other end of a pipe or a terminal may stop reading, a file may be on a
 * network, and stderr's O_NONBLOCK is shared with the shell and others. Nothing but another thread makes each
 * of these harmless.
 *
 * Threading: all but the thread itself is for the event loop's thread.
 */
#ifndef GS_LOG_RING_H
#define GS_LOG_RING_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_RING_LINES 1024u

/* Lines go through the ring from now on. One that finds it full is lost, and the next one says how many were.
 * Where no thread can be started, lines are written as before, after one that says so. */
void log_ring_start(void);

/* Waits until all lines are written, but not beyond that time (clock.h). False: they are not. */
bool log_ring_flush(uint64_t end_ns);

/* Likewise; then lines are written as before, if all were. */
void log_ring_end(uint64_t end_ns);

#endif
