/* history.c - what programs have needed before. */
#include "server/history.h"

#include <stdbool.h>
#include <stdlib.h>

static struct list *bucket_of(struct history *history, uid_t uid, uint64_t command_hash) {
  uint64_t mixed = (command_hash ^ uid) * UINT64_C(0x9e3779b97f4a7c15);
  return &history->buckets[(mixed >> 32) % HISTORY_BUCKETS];
}

static struct history_entry *find(struct history *history, uid_t uid, uint64_t command_hash) {
  list_each(node, bucket_of(history, uid, command_hash)) {
    struct history_entry *entry = list_entry(node, struct history_entry, bucket_link);
    if (entry->uid == uid && entry->command_hash == command_hash)
      return entry;
  }
  return NULL;
}

static void touch(struct history *history, struct history_entry *entry) {
  list_remove(&entry->used_link);
  list_append(&history->used, &entry->used_link);
  user_shares_renew(&entry->owned);
}

static void forget(struct history *history, struct history_entry *entry) {
  list_remove(&entry->used_link);
  list_remove(&entry->bucket_link);
  user_shares_remove(&history->shares, &entry->owned);
  free(entry);
  history->count--;
}

/* Without memory nothing is learnt: that is no error. */
static void begin(struct history *history, uid_t uid, uint64_t command_hash, uint64_t gpu_ns) {
  struct history_entry *entry = malloc(sizeof *entry);
  if (!entry)
    return;
  *entry = (struct history_entry){.uid = uid, .command_hash = command_hash, .expected_ns = gpu_ns};
  if (user_shares_add(&history->shares, uid, &entry->owned) < 0) {
    free(entry);
    return;
  }
  list_append(&history->used, &entry->used_link);
  list_append(bucket_of(history, uid, command_hash), &entry->bucket_link);
  if (++history->count > HISTORY_MAX)
    forget(history, list_entry(user_shares_surplus(&history->shares), struct history_entry, owned));
}

void history_init(struct history *history) {
  history->count = 0;
  user_shares_init(&history->shares, HISTORY_MAX + 1);
  list_init(&history->used);
  for (size_t i = 0; i < HISTORY_BUCKETS; i++)
    list_init(&history->buckets[i]);
}

void history_end(struct history *history) {
  while (history->count > 0)
    forget(history, list_entry(list_first(&history->used), struct history_entry, used_link));
  user_shares_end(&history->shares);
}

static void learn(struct history *history, uid_t uid, uint64_t command_hash, uint64_t ns, bool added) {
  struct history_entry *entry = find(history, uid, command_hash);
  if (!entry) {
    begin(history, uid, command_hash, ns);
    return;
  }
  entry->expected_ns = added ? entry->expected_ns / 2 + ns / 2 : ns;
  touch(history, entry);
}

void history_add(struct history *history, uid_t uid, uint64_t command_hash, uint64_t gpu_ns) {
  if (command_hash != 0 && gpu_ns > HISTORY_RUN_MIN_NS)
    learn(history, uid, command_hash, gpu_ns, true);
}

void history_put(struct history *history, uid_t uid, uint64_t command_hash, uint64_t expected_ns) {
  learn(history, uid, command_hash, expected_ns, false);
}

uint64_t history_expected_ns(struct history *history, uid_t uid, uint64_t command_hash) {
  struct history_entry *entry = command_hash ? find(history, uid, command_hash) : NULL;
  if (!entry)
    return 0;
  touch(history, entry);
  return entry->expected_ns;
}
