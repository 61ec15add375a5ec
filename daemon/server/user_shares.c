/* user_shares.c - see user_shares.h. */
#include "server/user_shares.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

struct user_share {
  struct user_share *next; /* of its bucket */
  struct list link;        /* of the users with as many */
  struct list items;
  uid_t uid;
  size_t count;
};

void user_shares_init(struct user_shares *shares, size_t room) {
  *shares = (struct user_shares){.buckets = calloc(room, sizeof(struct user_share *)),
                                 .by_count = calloc(room + 1, sizeof(struct list)),
                                 .room = room};
  if (!shares->buckets || !shares->by_count)
    user_shares_end(shares);
}

void user_shares_end(struct user_shares *shares) {
  for (size_t i = 0; shares->buckets && shares->most > 0 && i < shares->room; i++)
    for (struct user_share *share = shares->buckets[i], *next; share; share = next) {
      next = share->next;
      free(share);
    }
  free(shares->buckets);
  free(shares->by_count);
  *shares = (struct user_shares){0};
}

static struct user_share **bucket_of(struct user_shares *shares, uid_t uid) {
  return &shares->buckets[(uid * UINT64_C(0x9e3779b97f4a7c15) >> 32) % shares->room];
}

static struct list *users_with(struct user_shares *shares, size_t count) {
  struct list *users = &shares->by_count[count];
  if (!users->next)
    list_init(users);
  return users;
}

/* It is one more, or one less. */
static void set_count(struct user_shares *shares, struct user_share *share, size_t count) {
  list_remove(&share->link);
  list_append(users_with(shares, count), &share->link);
  if (count > shares->most || list_empty(users_with(shares, shares->most)))
    shares->most = count;
  share->count = count;
}

static struct user_share *provide(struct user_shares *shares, uid_t uid) {
  struct user_share **bucket = bucket_of(shares, uid), *share;
  for (share = *bucket; share; share = share->next)
    if (share->uid == uid)
      return share;
  share = malloc(sizeof *share);
  if (!share)
    return NULL;
  *share = (struct user_share){.next = *bucket, .uid = uid};
  list_init(&share->link);
  list_init(&share->items);
  *bucket = share;
  return share;
}

static void forget(struct user_shares *shares, struct user_share *share) {
  struct user_share **at = bucket_of(shares, share->uid);
  while (*at != share)
    at = &(*at)->next;
  *at = share->next;
  list_remove(&share->link);
  free(share);
}

int user_shares_add(struct user_shares *shares, uid_t uid, struct user_item *item) {
  struct user_share *share = shares->buckets ? provide(shares, uid) : NULL;
  if (!share)
    return -ENOMEM;
  item->share = share;
  list_append(&share->items, &item->link);
  set_count(shares, share, share->count + 1);
  return 0;
}

void user_shares_remove(struct user_shares *shares, struct user_item *item) {
  struct user_share *share = item->share;
  list_remove(&item->link);
  set_count(shares, share, share->count - 1);
  if (share->count == 0)
    forget(shares, share);
}

void user_shares_renew(struct user_item *item) {
  list_remove(&item->link);
  list_append(&item->share->items, &item->link);
}

struct user_item *user_shares_surplus(const struct user_shares *shares) {
  if (shares->most == 0)
    return NULL;
  const struct user_share *share =
      list_entry(list_first(&shares->by_count[shares->most]), struct user_share, link);
  return list_entry(list_first(&share->items), struct user_item, link);
}
