/* users.h - how many connections each user has. */
#ifndef GS_USERS_H
#define GS_USERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/list.h"

struct user {
  struct list link;
  uid_t uid;
  uint32_t connections;
  uint32_t clients; /* of these, registered */
  uint32_t readers; /* that read a record */
  bool looked_for;  /* presence.c: one of its processes is being looked at */
};

/* Count a connection of this user. NULL: no memory. */
struct user *users_enter(struct list *users, uid_t uid);

void users_leave(struct user *user);

#endif
