/*
 * record.h - a bounded record of what has happened: the last so many events, numbered, in memory.
 *
 * Each is the message that its readers get (GS_EVENT), so a reader is no more than a number: that of the next
 * event that it has not had. Who is too slow misses the oldest, and is told how many; nothing grows for it.
 * One thread.
 */
#ifndef GS_RECORD_H
#define GS_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "gpushare/protocol.h"

struct record {
  struct gs_msg *entries; /* NULL: there is no memory, and nothing is kept */
  size_t room;
  uint64_t next_seq; /* from 1 */
};

/* Pages are taken as they are filled. */
void record_init(struct record *record, size_t room);
void record_end(struct record *record);

/* A GS_EVENT, not older than the one before. It gets its number. */
void record_add(struct record *record, const struct gs_msg *event);

/* The oldest that is kept; next_seq: there is none. */
uint64_t record_first_seq(const struct record *record);

/* The first that is kept and not older. */
uint64_t record_find(const struct record *record, uint64_t from_ns);

/* From record_first_seq to before next_seq. */
const struct gs_msg *record_at(const struct record *record, uint64_t seq);

#endif
