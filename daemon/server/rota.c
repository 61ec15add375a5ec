/* rota.c - see rota.h. */
#include "server/rota.h"

/* What a user owes is forgotten beyond this: nobody shall be shut out for good by one expensive event. */
#define DEBT_MAX_NS INT64_C(10000000000)

void rota_init(struct rota *rota) { list_init(&rota->users); }

void rota_user_init(struct rota_user *user) {
  *user = (struct rota_user){0};
  list_init(&user->link);
  list_init(&user->ready);
}

/* Invariant: whoever is placed at the end has just been given a quantum. */
static void enter(struct rota *rota, struct rota_user *user) {
  if (!list_empty(&user->link))
    return;
  user->credit_ns += ROTA_QUANTUM_NS;
  list_append(&rota->users, &user->link);
}

static void leave(struct rota_user *user) {
  list_remove(&user->link);
  if (user->credit_ns > 0)
    user->credit_ns = 0; /* nothing is saved up */
}

void rota_add(struct rota *rota, struct rota_user *user, struct list *node) {
  if (list_empty(node))
    list_append(&user->ready, node);
  enter(rota, user);
}

void rota_add_first(struct rota *rota, struct rota_user *user, struct list *node) {
  list_remove(node);
  list_append(user->ready.next, node); /* before the first one */
  enter(rota, user);
}

static struct rota_user *user_of(struct list *node) { return list_entry(node, struct rota_user, link); }

/* Quanta that the user lacks until it may be served. */
static int64_t lacking(const struct rota_user *user) {
  return user->credit_ns > 0 ? 0 : -user->credit_ns / ROTA_QUANTUM_NS + 1;
}

/* All owe: the rounds in which nobody would be served. */
static void skip_rounds(struct rota *rota) {
  int64_t rounds = INT64_MAX;
  list_each(node, &rota->users) {
    if (lacking(user_of(node)) < rounds)
      rounds = lacking(user_of(node));
  }
  list_each(node, &rota->users) {
    if (rounds > 1)
      user_of(node)->credit_ns += (rounds - 1) * ROTA_QUANTUM_NS;
  }
}

struct rota_user *rota_next(struct rota *rota) {
  const struct rota_user *passed_over = NULL; /* the first one */
  struct list *node;
  while ((node = list_first(&rota->users))) {
    struct rota_user *user = user_of(node);
    if (list_empty(&user->ready)) {
      leave(user);
    } else if (user->credit_ns > 0) {
      return user;
    } else {
      if (user == passed_over)
        skip_rounds(rota);
      passed_over = passed_over ? passed_over : user;
      list_remove(&user->link);
      enter(rota, user);
    }
  }
  return NULL;
}

void rota_spend(struct rota_user *user, uint64_t took_ns) {
  user->handled_ns += took_ns;
  user->credit_ns -= took_ns < DEBT_MAX_NS ? (int64_t)took_ns : DEBT_MAX_NS;
  if (user->credit_ns < -DEBT_MAX_NS)
    user->credit_ns = -DEBT_MAX_NS;
}
