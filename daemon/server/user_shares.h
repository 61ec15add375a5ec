/*
 * user_shares.h - which user has how many of a bounded number of things, and whose oldest one makes way for a
 * new one: that of the user that has most. So a user that has no more than an even share loses nothing to
 * others, whatever they do and however many they are.
 *
 * Each call takes the same time, however many there are. Pure; one thread at a time.
 */
#ifndef GS_USER_SHARES_H
#define GS_USER_SHARES_H

#include <stddef.h>
#include <sys/types.h>

#include "common/list.h"

struct user_share;

/* In each of the things. */
struct user_item {
  struct list link; /* of its user's, the oldest first */
  struct user_share *share;
};

struct user_shares {
  struct user_share **buckets; /* NULL: there is no memory, and nothing can be added */
  struct list *by_count;       /* users with so many; not yet used: zeros */
  size_t room, most;
};

/* So many things at most. Pages are taken as they are used. */
void user_shares_init(struct user_shares *shares, size_t room);
/* Things that are left are not looked at. */
void user_shares_end(struct user_shares *shares);

/* 0, or -ENOMEM. */
int user_shares_add(struct user_shares *shares, uid_t uid, struct user_item *item);
void user_shares_remove(struct user_shares *shares, struct user_item *item);

/* It counts as new again. */
void user_shares_renew(struct user_item *item);

/* The oldest of the user that has most; NULL: there is nothing. */
struct user_item *user_shares_surplus(const struct user_shares *shares);

#endif
