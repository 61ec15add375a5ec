/* users.c - how many connections each user has. A host has few users with GPU programs: a list will do. */
#include "users.h"

#include <stdlib.h>

static struct user *find(const struct list *users, uid_t uid) {
  list_each(node, users) {
    struct user *user = list_entry(node, struct user, link);
    if (user->uid == uid)
      return user;
  }
  return NULL;
}

struct user *users_enter(struct list *users, uid_t uid) {
  struct user *user = find(users, uid);
  if (!user) {
    user = calloc(1, sizeof *user);
    if (!user)
      return NULL;
    user->uid = uid;
    list_append(users, &user->link);
  }
  user->connections++;
  return user;
}

void users_leave(struct user *user) {
  if (--user->connections > 0)
    return;
  list_remove(&user->link);
  free(user);
}
