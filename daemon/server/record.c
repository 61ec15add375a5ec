/*
 * record.c - see record.h.
 *
 * Entries stay where they are. Their order is that of their places in blocks: to find one takes two binary
 * searches, and to take one out of the middle moves no more than a block's places, or the blocks.
 *
 * Invariant: two neighbours among the blocks have more places than fit in one. So there are few.
 */
#include "server/record.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256

struct record_block {
  uint32_t count;
  uint32_t places[BLOCK]; /* of entries */
};

struct position {
  size_t block, place;
};

void record_init(struct record *record, size_t room) {
  size_t blocks = 2 * room / BLOCK + 3; /* one event more than there is room for, and the last block */
  *record = (struct record){.entries = calloc(room + 1, sizeof(struct record_entry)),
                            .blocks = calloc(blocks, sizeof(struct record_block *)),
                            .memory = calloc(blocks, sizeof(struct record_block)),
                            .room = room,
                            .next_seq = 1};
  user_shares_init(&record->shares, room + 1);
  if (!record->entries || !record->blocks || !record->memory) {
    record_end(record);
    return;
  }
  for (size_t i = 0; i < blocks; i++)
    record->blocks[i] = &record->memory[i];
}

void record_end(struct record *record) {
  user_shares_end(&record->shares);
  free(record->entries);
  free(record->blocks);
  free(record->memory);
  record->entries = NULL;
  record->blocks = NULL;
  record->memory = NULL;
  record->block_count = record->count = 0;
}

/* ---- in their order ---- */

static bool is_before_seq(const struct record_entry *entry, uint64_t seq) {
  return entry->msg.event.seq < seq;
}

static bool is_older(const struct record_entry *entry, uint64_t from_ns) {
  return (int64_t)entry->msg.event.at_ns < (int64_t)from_ns; /* of runs before the boot */
}

static struct record_entry *entry_at(const struct record *record, struct position at) {
  return &record->entries[record->blocks[at.block]->places[at.place]];
}

/* The first that is not before; in the block after the last one: there is none. */
static struct position search(const struct record *record,
                              bool (*is_before)(const struct record_entry *, uint64_t), uint64_t value) {
  struct position at = {0};
  size_t high = record->block_count;
  while (at.block < high) {
    size_t middle = at.block + (high - at.block) / 2;
    struct position last = {middle, record->blocks[middle]->count - 1};
    if (is_before(entry_at(record, last), value))
      at.block = middle + 1;
    else
      high = middle;
  }
  high = at.block < record->block_count ? record->blocks[at.block]->count : 0;
  while (at.place < high) {
    struct position middle = {at.block, at.place + (high - at.place) / 2};
    if (is_before(entry_at(record, middle), value))
      at.place = middle.place + 1;
    else
      high = middle.place;
  }
  return at;
}

static void append(struct record *record, size_t place) {
  struct record_block *last = record->block_count ? record->blocks[record->block_count - 1] : NULL;
  if (!last || last->count == BLOCK) {
    last = record->blocks[record->block_count++];
    last->count = 0;
  }
  last->places[last->count++] = (uint32_t)place;
}

/* With the next one, if both fit in it. */
static bool join(struct record *record, size_t block) {
  if (block + 1 >= record->block_count)
    return false;
  struct record_block *into = record->blocks[block], *from = record->blocks[block + 1];
  if (into->count + from->count > BLOCK)
    return false;
  memcpy(into->places + into->count, from->places, from->count * sizeof *from->places);
  into->count += from->count;
  record->block_count--;
  memmove(&record->blocks[block + 1], &record->blocks[block + 2],
          (record->block_count - block - 1) * sizeof *record->blocks);
  record->blocks[record->block_count] = from;
  return true;
}

static void take_out(struct record *record, struct position at) {
  struct record_block *block = record->blocks[at.block];
  block->count--;
  memmove(block->places + at.place, block->places + at.place + 1,
          (block->count - at.place) * sizeof *block->places);
  if (at.block == 0 || !join(record, at.block - 1))
    join(record, at.block);
}

/* ---- adding ---- */

/* For the last one, which stays: so there is one behind it. */
static void give_up_one(struct record *record) {
  struct record_entry *entry = list_entry(user_shares_surplus(&record->shares), struct record_entry, owned);
  struct position at = search(record, is_before_seq, entry->msg.event.seq), next = {at.block, at.place + 1};
  if (next.place == record->blocks[at.block]->count)
    next = (struct position){at.block + 1, 0};
  entry_at(record, next)->displaced_by = record->next_seq - 1;
  take_out(record, at);
  user_shares_remove(&record->shares, &entry->owned);
  record->spare = (size_t)(entry - record->entries);
  record->count--;
}

void record_add(struct record *record, const struct gs_msg *event) {
  if (!record->entries)
    return;
  struct record_entry *entry = &record->entries[record->spare];
  uid_t owner = event->event.job ? event->event.uid : UINT32_MAX - event->event.kind;
  if (user_shares_add(&record->shares, owner, &entry->owned) < 0)
    return;
  entry->msg = *event;
  entry->msg.event.seq = record->next_seq++;
  entry->displaced_by = 0;
  append(record, record->spare);
  if (record->count++ < record->room)
    record->spare = record->count;
  else
    give_up_one(record);
}

/* ---- reading ---- */

static const struct record_entry *entry_or_none(const struct record *record, struct position at) {
  return at.block < record->block_count ? entry_at(record, at) : NULL;
}

static uint64_t seq_or_next(const struct record *record, const struct record_entry *entry) {
  return entry ? entry->msg.event.seq : record->next_seq;
}

const struct record_entry *record_next(const struct record *record, uint64_t seq) {
  return entry_or_none(record, search(record, is_before_seq, seq));
}

uint64_t record_first_seq(const struct record *record) { return seq_or_next(record, record_next(record, 0)); }

uint64_t record_find(const struct record *record, uint64_t from_ns) {
  return seq_or_next(record, entry_or_none(record, search(record, is_older, from_ns)));
}
