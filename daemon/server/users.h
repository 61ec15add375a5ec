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
#include "server/rota.h"

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
/* Pictures of the daemon's state that a user may be reading at the same time (pictures.h). */
#define USER_PICTURES 8

/* Amounts of several resources, charged together or not at all. */
struct user_cost {
  uint64_t of[USER_RESOURCES];
};

struct user {
  struct rota_user rota;    /* what its connections have to do, first: a rota's user is a user */
  struct rota_user leaving; /* what those have to do that leave a GPU (peers.h) */
  struct list link;         /* of its bucket; of the idle ones, if nothing is charged: */
  struct list idle_link;
  struct users *users;
  uid_t uid;
  uint64_t used[USER_RESOURCES];
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
  struct list idle; /* with nothing charged, the longest first: kept for what they owe (rota.h) */
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
