/*
 * history.h - what programs have needed before: for each user and command line, how much GPU time a run
 * takes.
 *
 * Bounded: of the user that has most, what has not been asked for or added to for the longest time is
 * forgotten first. A user's programs teach nothing about another's. One thread.
 */
#ifndef GS_HISTORY_H
#define GS_HISTORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/list.h"
#include "server/users.h"

#define HISTORY_MAX 4096
/* Shorter runs say nothing: they have failed early, or do not matter. */
#define HISTORY_RUN_MIN_NS UINT64_C(1000000000)

#define HISTORY_BUCKETS 1024

struct history_entry {
  struct list used_link, bucket_link;
  struct user_item owned;
  uid_t uid;
  uint64_t command_hash;
  uint64_t expected_ns;
};

struct history {
  struct list used; /* all entries, the longest unused first */
  struct list buckets[HISTORY_BUCKETS];
  size_t count;
  struct user_shares shares;
};

void history_init(struct history *history);
void history_end(struct history *history);

/* A run has ended after so much GPU time. command_hash 0, an unknown command, is passed over. */
void history_add(struct history *history, uid_t uid, uint64_t command_hash, uint64_t gpu_ns);

/* It is known from elsewhere what a run takes. */
void history_put(struct history *history, uid_t uid, uint64_t command_hash, uint64_t expected_ns);

/* What a run takes, the last ones counting most; 0: unknown. */
uint64_t history_expected_ns(struct history *history, uid_t uid, uint64_t command_hash);

#endif
