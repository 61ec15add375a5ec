/* record.c - a bounded record of what has happened. */
#include "record.h"

#include <stdlib.h>

void record_init(struct record *record, size_t room) {
  *record = (struct record){.entries = calloc(room, sizeof(struct gs_msg)), .room = room, .next_seq = 1};
}

void record_end(struct record *record) {
  free(record->entries);
  record->entries = NULL;
}

static struct gs_msg *place(const struct record *record, uint64_t seq) {
  return &record->entries[seq % record->room];
}

void record_add(struct record *record, const struct gs_msg *event) {
  if (!record->entries)
    return;
  struct gs_msg *entry = place(record, record->next_seq);
  *entry = *event;
  entry->event.seq = record->next_seq++;
}

uint64_t record_first_seq(const struct record *record) {
  return record->next_seq > record->room ? record->next_seq - record->room : 1;
}

uint64_t record_find(const struct record *record, uint64_t from_ns) {
  uint64_t low = record_first_seq(record), high = record->next_seq;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if ((int64_t)place(record, middle)->event.at_ns < (int64_t)from_ns) /* of runs before the boot */
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const struct gs_msg *record_at(const struct record *record, uint64_t seq) { return place(record, seq); }
