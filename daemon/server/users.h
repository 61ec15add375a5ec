/*
 * users.h - what each user has of what the daemon has for all: an account per user and resource.
 *
 * A user may have, of each resource, at most a fixed amount, and at most as much again as it leaves to the
 * others: half of what is free without it. So no number of users exhausts a resource, and the next one still
 * gets something. Beside these accounts there is a reserve, from which an administrator gets in when the
 * account of that user is full.
 *
 * Invariant: once all peers are gone, all accounts are zero.
 */
#ifndef GS_USERS_H
#define GS_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/list.h"

/*
 * ---- rota ----
 *
 * Whom the event loop serves next: users with something to do, in turn, by the time that serving them takes
 * (deficit round robin). How many connections a user has, and what each of its messages costs, makes no
 * difference to the others. Pure: the caller measures the time.
 */

/* What a user may take of each round. The last event of a user may take longer: the excess is owed. */
#define ROTA_QUANTUM_NS INT64_C(100000)

struct rota {
  struct list users; /* with something to do, the next first */
};

struct rota_user {
  struct list link;
  struct list ready; /* the caller's: what is to do, the next first */
  int64_t credit_ns; /* left of its turn; or, below 0, what it owes */
  uint64_t handled_ns;
};

void rota_init(struct rota *rota);
void rota_user_init(struct rota_user *user);

/* There is something to do for the user: after all that is there, or before it. A node that is in `ready`
 * already stays where it is. */
void rota_add(struct rota *rota, struct rota_user *user, struct list *node);
void rota_add_first(struct rota *rota, struct rota_user *user, struct list *node);

/* The user whose turn it is, which has something in `ready`. NULL: nobody has. */
struct rota_user *rota_next(struct rota *rota);

/* Serving the user has taken so long, in its turn or not. */
void rota_spend(struct rota_user *user, uint64_t took_ns);

/*
 * ---- shares ----
 *
 * Which user has how many of a bounded number of things, and whose oldest one makes way for a new one: that
 * of the user that has most. So a user that has no more than an even share loses nothing to others, whatever
 * they do and however many they are. Each call takes the same time, however many there are. Pure; one thread
 * at a time.
 */

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

/* ---- users ---- */

enum user_resource {
  USER_CONNECTIONS,
  USER_CLIENTS,     /* of these, registered */
  USER_READERS,     /* of these, that read a record */
  USER_ATTACHMENTS, /* clients on GPUs */
  USER_DESCRIPTORS, /* the daemon's */
  USER_BYTES,       /* of the daemon's memory, and of the kernel's for its sockets */
};
#define USER_RESOURCES 6

#define USERS_UNBOUNDED (UINT64_MAX / 4)
#define USERS_BUCKETS 256
/* Pictures of the daemon's state that a user may be reading at the same time (readers.c). */
#define USER_PICTURES 8

/* Amounts of several resources, charged together or not at all. */
struct user_cost {
  uint64_t of[USER_RESOURCES];
};

struct user {
  struct rota_user rota;    /* what its connections have to do, first: a rota's user is a user */
  struct rota_user leaving; /* what those have to do that leave a GPU (peers.c) */
  struct list link;         /* of its bucket; of the idle ones, if nothing is charged: */
  struct list idle_link;
  struct users *users;
  uid_t uid;
  uint64_t used[USER_RESOURCES];
  /* usage.c: what its jobs have had of GPUs since it came */
  uint64_t held_ns, waited_ns, moved_bytes, energy_mj;
  /* presence.c */
  struct list looks;      /* that wait */
  struct list looks_link; /* of the users that have some */
  struct {
    const void *picture; /* NULL: none */
    uint32_t readers;
  } pictures[USER_PICTURES];
};

struct users_limit {
  uint64_t most;  /* of one user */
  uint64_t total; /* of all together */
};

struct users {
  struct list buckets[USERS_BUCKETS];
  struct list idle; /* with nothing charged, the longest first: kept for what they owe (rota) */
  size_t idle_count;
  struct users_limit limits[USER_RESOURCES];
  uint64_t used[USER_RESOURCES];
  struct user reserve;
};

/* As many descriptors as the daemon may have. */
void users_init(struct users *users, uint64_t descriptors);
void users_end(struct users *users);

/* So many clients of one user, and some connections beside them. */
void users_bound_clients(struct users *users, uint64_t clients);

/* The account of this user, a new one if there is none. NULL: no memory. It lasts as long as something is
 * charged to it, and some time longer. */
struct user *users_find(struct users *users, uid_t uid);

/* 0, or -EDQUOT and nothing has changed. */
int user_charge(struct user *user, enum user_resource resource, uint64_t amount);
int user_charge_all(struct user *user, const struct user_cost *cost);

/* Caller must: have charged it. */
void user_release(struct user *user, enum user_resource resource, uint64_t amount);
void user_release_all(struct user *user, const struct user_cost *cost);

/* How much of it this user could have now, with what it has. */
uint64_t user_share(const struct user *user, enum user_resource resource);

/* One more connection of the user reads this picture, of so many bytes: charged once however many do. 0, or
 * -EDQUOT. */
int user_hold_picture(struct user *user, const void *picture, uint64_t bytes);
void user_drop_picture(struct user *user, const void *picture, uint64_t bytes);

/* Nothing is charged to anybody. */
bool users_are_clear(const struct users *users);

#endif
