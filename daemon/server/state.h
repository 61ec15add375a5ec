/*
 * state.h - the folder in which a daemon keeps what outlives it (kept.h): its file, written behind its end.
 *
 * A line is in the kernel's hands once it has been tried: so it outlives the daemon, however that ends. To
 * outlive the machine as well it must get to the disk, which may take seconds. Any call of a file may wait
 * for the disk, or for a network. So one thread writes, and another one sees to the disk, and writes the file
 * anew when much of it is out of date. The caller never waits for a file once the folder is open, unless no
 * thread can be started: then it writes itself.
 *
 * Doubt: the folder must be the daemon's own (or root's), and nobody else's to write to; another daemon that
 * lives there keeps it. What can't be used is put aside, and what is right of it is used. When the disk is
 * full, lines wait in memory, up to a bound, and are tried again. A start never fails for any of that.
 *
 * All of these are called by one thread; state may be NULL: nothing is kept.
 */
#ifndef GS_STATE_H
#define GS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/kept.h"

struct state;

/* Read what is kept in the folder, which is made if its parent is there, into kept, which is empty. NULL,
 * after a line in the log: what comes is not kept. */
struct state *state_open(const char *folder, struct kept *kept);

/* Keep a line: within STATE_SOON_NS. */
#define STATE_SOON_NS UINT64_C(100000000)
void state_add(struct state *state, const char *line, size_t length, uint64_t now_ns);

/* What has been added is given to the kernel by the writer, from now on. lasting: and gets to the disk before
 * long. */
void state_write(struct state *state, bool lasting, uint64_t now_ns);

/* Bytes of all lines that have been added so far; it has not been heard yet that all have been tried. */
uint64_t state_added(const struct state *state);
bool state_waits(const struct state *state);

/* Readable once the writer has tried some: state_hear tells how many of these bytes have been written by now,
 * or could not be, which is in the log. -1: there is none. */
int state_fd(const struct state *state);
uint64_t state_hear(struct state *state);

/* Waits until the writer has tried all that was to be written, but not beyond that time. False: it has not.
 */
bool state_await(struct state *state, uint64_t until_ns);

/* Lines have been lost since this was asked last, as too many waited, and there is room for more now: for all
 * that counts to be added again, until that is done. */
bool state_take_loss(struct state *state);
void state_end_loss(struct state *state);

uint64_t state_deadline_ns(const struct state *state);
void state_on_time(struct state *state, uint64_t now_ns);

/* All of it is on the disk, if that takes it. */
void state_close(struct state *state);

#endif
