/*
 * rota.h - whom the event loop serves next: users with something to do, in turn, by the time that serving
 * them takes (deficit round robin). How many connections a user has, and what each of its messages costs,
 * makes no difference to the others.
 *
 * Pure: the caller measures the time.
 */
#ifndef GS_ROTA_H
#define GS_ROTA_H

#include <stdint.h>

#include "common/list.h"

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

#endif
