/* gang_table.c - the gangs that there are. Looked through when a job comes, which is seldom: a list will do.
 */
#include "gang_table.h"

#include <stdlib.h>
#include <string.h>

#include "printable.h"

static struct gang *find(const struct list *gangs, uid_t uid, const char *name) {
  list_each(node, gangs) {
    struct gang *gang = list_entry(node, struct gang, link);
    if (gang->uid == uid && strcmp(gang->name, name) == 0)
      return gang;
  }
  return NULL;
}

static struct gang *create(struct list *gangs, uid_t uid, const char *name) {
  struct gang *gang = calloc(1, sizeof *gang);
  if (!gang)
    return NULL;
  gang_init(&gang->sched);
  gang->uid = uid;
  strncpy(gang->name, name, sizeof gang->name - 1);
  printable_copy(gang->shown, name, sizeof gang->shown);
  list_append(gangs, &gang->link);
  return gang;
}

struct gang *gang_table_enter(struct list *gangs, uid_t uid, const char *name) {
  struct gang *gang = find(gangs, uid, name);
  if (!gang)
    gang = create(gangs, uid, name);
  if (gang)
    gang->jobs++;
  return gang;
}

void gang_table_leave(struct gang *gang) {
  if (--gang->jobs > 0)
    return;
  list_remove(&gang->link);
  free(gang);
}
