/* gang_table.c - the gangs that there are, by user and name: a user may make as many as it has jobs. */
#include "server/gang_table.h"

#include <stdlib.h>
#include <string.h>

#include "shared/printable.h"

void gang_table_init(struct gang_table *gangs) {
  gangs->count = 0;
  for (size_t i = 0; i < GANG_BUCKETS; i++)
    list_init(&gangs->buckets[i]);
}

/* FNV-1a, 64 bits. Who makes names with the same number has one gang in place of two. */
uint64_t gang_key(const char *name) {
  uint64_t key = UINT64_C(0xcbf29ce484222325);
  if (!*name)
    return 0;
  for (; *name; name++)
    key = (key ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
  return key ? key : 1;
}

/* Who makes names that meet in one bucket has gangs that are slow to find, and others have few there. */
static struct list *bucket_of(struct gang_table *gangs, uid_t uid, uint64_t key) {
  uint64_t mixed = key ^ uid;
  return &gangs->buckets[(mixed ^ mixed >> 32) % GANG_BUCKETS];
}

struct gang *gang_table_find(struct gang_table *gangs, uid_t uid, uint64_t key) {
  list_each(node, bucket_of(gangs, uid, key)) {
    struct gang *gang = list_entry(node, struct gang, link);
    if (gang->uid == uid && gang->key == key)
      return gang;
  }
  return NULL;
}

static struct gang *create(struct gang_table *gangs, uid_t uid, const char *name, uint64_t key) {
  struct gang *gang = calloc(1, sizeof *gang);
  if (!gang)
    return NULL;
  gang_init(&gang->sched);
  gang->uid = uid;
  gang->key = key;
  strncpy(gang->name, name, sizeof gang->name - 1);
  printable_copy(gang->shown, name, sizeof gang->shown);
  gang->table = gangs;
  gangs->count++;
  list_append(bucket_of(gangs, uid, key), &gang->link);
  return gang;
}

struct gang *gang_table_enter(struct gang_table *gangs, uid_t uid, const char *name) {
  uint64_t key = gang_key(name);
  struct gang *gang = gang_table_find(gangs, uid, key);
  if (!gang)
    gang = create(gangs, uid, name, key);
  if (gang)
    gang->jobs++;
  return gang;
}

void gang_table_leave(struct gang *gang) {
  if (--gang->jobs > 0)
    return;
  gang->table->count--;
  list_remove(&gang->link);
  free(gang);
}
