/*
 * record.h - a bounded record of what has happened: the last events, numbered, in memory.
 *
 * Each is the message that its readers get (GS_EVENT), so a reader is no more than a number: that of the next
 * event that it has not had. Who is too slow misses some, and is told how many; nothing grows for it.
 *
 * A full record gives up the oldest event of the user that has most (shares): what one user does
 * displaces nothing of another one that has less. So numbers may be missing, also in the middle. The daemon's
 * own events (of no job) are those of as many users as there are kinds of them.
 *
 * One thread.
 */
#ifndef GS_RECORD_H
#define GS_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "gpushare/protocol.h"
#include "server/users.h"

struct record_entry {
  struct gs_msg msg;
  uint64_t
      displaced_by; /* the last event for which one directly before this one has been given up; 0: none */
  struct user_item owned;
};

struct record {
  struct record_entry *entries; /* NULL: there is no memory, and nothing is kept */
  struct record_block **blocks; /* what is kept, in order; those that are not used follow */
  struct record_block *memory;
  size_t block_count;
  size_t room, count;
  size_t spare; /* the entry that is filled next */
  struct user_shares shares;
  uint64_t next_seq; /* from 1 */
};

/* Pages are taken as they are filled. */
void record_init(struct record *record, size_t room);
void record_end(struct record *record);

/* A GS_EVENT, not older than the one before. It gets its number. */
void record_add(struct record *record, const struct gs_msg *event);

/* The first that is kept with this number or a later one; NULL: there is none. */
const struct record_entry *record_next(const struct record *record, uint64_t seq);

/* The number of the oldest that is kept, and of the first that is not older; next_seq: there is none. */
uint64_t record_first_seq(const struct record *record);
uint64_t record_find(const struct record *record, uint64_t from_ns);

#endif
