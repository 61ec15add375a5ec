/* gang_table.c - the gangs that there are, by user and name: a user may make as many as it has jobs. */
#include "gang_table.h"

#include <stdlib.h>
#include <string.h>

#include "printable.h"

void gang_table_init(struct gang_table *gangs) {
  gangs->count = 0;
  for (size_t i = 0; i < GANG_BUCKETS; i++)
    list_init(&gangs->buckets[i]);
}

/* FNV-1a. Who makes names that meet in one bucket has gangs that are slow to find, and others have few there.
 */
static struct list *bucket_of(struct gang_table *gangs, uid_t uid, const char *name) {
  uint32_t hash = UINT32_C(2166136261) ^ uid;
  for (; *name; name++)
    hash = (hash ^ (uint8_t)*name) * UINT32_C(16777619);
  return &gangs->buckets[(hash ^ hash >> 16) % GANG_BUCKETS];
}

static struct gang *find(const struct list *bucket, uid_t uid, const char *name) {
  list_each(node, bucket) {
    struct gang *gang = list_entry(node, struct gang, link);
    if (gang->uid == uid && strcmp(gang->name, name) == 0)
      return gang;
  }
  return NULL;
}

static struct gang *create(struct gang_table *gangs, uid_t uid, const char *name) {
  struct gang *gang = calloc(1, sizeof *gang);
  if (!gang)
    return NULL;
  gang_init(&gang->sched);
  gang->uid = uid;
  strncpy(gang->name, name, sizeof gang->name - 1);
  printable_copy(gang->shown, name, sizeof gang->shown);
  gang->table = gangs;
  gangs->count++;
  list_append(bucket_of(gangs, uid, name), &gang->link);
  return gang;
}

struct gang *gang_table_enter(struct gang_table *gangs, uid_t uid, const char *name) {
  struct gang *gang = find(bucket_of(gangs, uid, name), uid, name);
  if (!gang)
    gang = create(gangs, uid, name);
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
