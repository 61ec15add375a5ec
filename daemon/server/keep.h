/*
 * keep.h - what the daemon is told that must outlive it is kept (state.h), and given back to the next one:
 * settings, what was set for jobs and which numbers they have, what runs have taken and been.
 *
 * A decision is in the kernel's hands before whoever has made it is told that it counts; so is a job's number
 * before its program knows it. Where the disk does not answer within a second, nobody waits any longer. The
 * rest follows within a tenth of a second.
 */
#ifndef GS_KEEP_H
#define GS_KEEP_H

#include "server/daemon.h"

/* Before anybody can connect, once the daemon is alone on its socket: what has been kept comes back. */
void keep_open(struct daemon *daemon, const char *folder, uint64_t now_ns);

/* The daemon ends: that programs lose their connections now is not their end. */
void keep_stop(struct daemon *daemon);

/* The configuration is this: with what persons have decided since it makes the settings. */
void keep_configure(struct daemon *daemon, const struct sched_settings *general,
                    const struct overrides *overrides, uint64_t now_ns);

/* Somebody sets this (SET_TQ and its like); uuid NULL: for all GPUs. */
void keep_setting(struct daemon *daemon, const uint8_t *uuid, unsigned type, uint64_t value, uint64_t now_ns);
unsigned keep_field(unsigned type); /* of a decision */

/* The peer registers: it gets its number, and if the process had one before, that one; and what was set for
 * the process. */
void keep_register(struct daemon *daemon, struct peer *peer, uint64_t now_ns);

/* A term of it, and of all clients of its process, has been set: so it is for those that may come back. */
void keep_term(struct daemon *daemon, const struct peer *peer, enum gs_term term, uint64_t now_ns);

/* A job of it is in the gang that it has named. */
void keep_gang(struct daemon *daemon, struct peer *peer, uint64_t now_ns);

/* It has been set for all members of the gang: those that may come back have it as well, whether they have
 * left this daemon or have yet to come to it after a restart. */
void keep_gang_term(struct daemon *daemon, uid_t uid, uint64_t gang, const struct gs_msg *msg, bool by_owner,
                    uint64_t now_ns);

/* It has ended, and if its process has not, it may come back as that job; its COMMAND or ENDED of the list of
 * runs, or USAGE. */
void keep_end_of(struct daemon *daemon, struct peer *peer, uint64_t now_ns);
void keep_record(struct daemon *daemon, const struct gs_msg *event, uint64_t now_ns);

/* Answer the peer once what has been added by now is in the kernel's hands, or after HELD_NS. */
#define HELD_NS NS_PER_S
void keep_answer(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns);

/* The peer is gone: it is answered no more. */
void keep_drop_answer(struct peer *peer);

/* Some has been written (state_fd). */
void keep_on_written(struct daemon *daemon);

uint64_t keep_deadline_ns(const struct daemon *daemon);
void keep_on_time(struct daemon *daemon, uint64_t now_ns);

#endif
