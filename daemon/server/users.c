/* users.c - see users.h. */
#include "server/users.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- rota ---- */

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
      list_remove(&user->link);
      user->credit_ns = user->credit_ns > 0 ? 0 : user->credit_ns; /* nothing is saved up */
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

/* ---- shares ---- */

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

static struct user_share **share_bucket(struct user_shares *shares, uid_t uid) {
  return &shares->buckets[(uid * UINT64_C(0x9e3779b97f4a7c15) >> 32) % shares->room];
}

static struct list *users_with(struct user_shares *shares, size_t count) {
  struct list *users = &shares->by_count[count];
  if (!users->next)
    list_init(users);
  return users;
}

/* As many steps as there are users and as one of them has things, not as there is room. */
void user_shares_end(struct user_shares *shares) {
  struct list *first;
  for (size_t count = 1; count <= shares->most; count++)
    while ((first = list_first(users_with(shares, count)))) {
      list_remove(first);
      free(list_entry(first, struct user_share, link));
    }
  free(shares->buckets);
  free(shares->by_count);
  *shares = (struct user_shares){0};
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
  struct user_share **bucket = share_bucket(shares, uid), *share;
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
  if (share->count > 0)
    return;
  struct user_share **at = share_bucket(shares, share->uid);
  while (*at != share)
    at = &(*at)->next;
  *at = share->next;
  list_remove(&share->link);
  free(share);
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

/* ---- users ---- */

/* gpusharectl, programs about to register, users of MPS. */
#define CONNECTIONS_BESIDE_CLIENTS 128
#define CLIENTS 2048
#define READERS 16 /* each event is sent to every one of them */

/* The daemon's own: the loop's, the metrics' readers, the state's files, the lookout's, what it opens to
 * read. Of the reserve; and of a full process one more must be free to turn a connection away. */
#define DESCRIPTORS_OWN 64
#define DESCRIPTORS_RESERVE 32

/* Each attachment is a mapping. A process may have 65530 (vm.max_map_count), and malloc needs some. */
#define ATTACHMENTS_OF_ALL 49152

/* What programs and gpusharectl cost is told by the costs in peers.c and messages.c: 64 MiB are 2,048
 * programs on two GPUs each. */
#define BYTES_OF_ONE (UINT64_C(64) << 20)
#define BYTES_OF_ALL (UINT64_C(1) << 30)

#define IDLE_MAX 256

static const uint64_t reserve[USER_RESOURCES] = {[USER_CONNECTIONS] = 16,
                                                 [USER_READERS] = READERS,
                                                 [USER_DESCRIPTORS] = DESCRIPTORS_RESERVE,
                                                 [USER_BYTES] = UINT64_C(16) << 20};

/* ---- coming and going ---- */

static void init_user(struct user *user, struct users *users, uid_t uid) {
  *user = (struct user){.users = users, .uid = uid};
  rota_user_init(&user->rota);
  rota_user_init(&user->leaving);
  list_init(&user->link);
  list_init(&user->idle_link);
  list_init(&user->looks);
  list_init(&user->looks_link);
}

void users_init(struct users *users, uint64_t descriptors) {
  uint64_t own = DESCRIPTORS_OWN + DESCRIPTORS_RESERVE;
  *users =
      (struct users){.limits = {
                         [USER_READERS] = {READERS, USERS_UNBOUNDED},
                         [USER_ATTACHMENTS] = {USERS_UNBOUNDED, ATTACHMENTS_OF_ALL},
                         [USER_DESCRIPTORS] = {USERS_UNBOUNDED, descriptors > own ? descriptors - own : 0},
                         [USER_BYTES] = {BYTES_OF_ONE, BYTES_OF_ALL},
                     }};
  for (size_t i = 0; i < USERS_BUCKETS; i++)
    list_init(&users->buckets[i]);
  list_init(&users->idle);
  init_user(&users->reserve, users, 0);
  users_bound_clients(users, CLIENTS);
}

void users_bound_clients(struct users *users, uint64_t clients) {
  users->limits[USER_CLIENTS] = (struct users_limit){clients, USERS_UNBOUNDED};
  users->limits[USER_CONNECTIONS] =
      (struct users_limit){clients + CONNECTIONS_BESIDE_CLIENTS, USERS_UNBOUNDED};
}

static struct list *bucket_of(struct users *users, uid_t uid) {
  return &users->buckets[(uid * UINT32_C(0x9e3779b1)) >> 24];
}

static void forget(struct users *users, struct user *user) {
  list_remove(&user->rota.link);
  list_remove(&user->leaving.link);
  list_remove(&user->link);
  list_remove(&user->idle_link);
  users->idle_count--;
  free(user);
}

static void set_idle(struct user *user) {
  struct users *users = user->users;
  if (user == &users->reserve)
    return;
  list_append(&users->idle, &user->idle_link);
  if (++users->idle_count > IDLE_MAX)
    forget(users, list_entry(list_first(&users->idle), struct user, idle_link));
}

static bool has_nothing(const struct user *user) {
  for (int i = 0; i < USER_RESOURCES; i++)
    if (user->used[i] > 0)
      return false;
  return true;
}

struct user *users_find(struct users *users, uid_t uid) {
  list_each(node, bucket_of(users, uid)) {
    struct user *user = list_entry(node, struct user, link);
    if (user->uid == uid)
      return user;
  }
  struct user *user = malloc(sizeof *user);
  if (!user)
    return NULL;
  init_user(user, users, uid);
  list_append(bucket_of(users, uid), &user->link);
  set_idle(user);
  return user;
}

/* Nothing is charged any more. */
void users_end(struct users *users) {
  while (!list_empty(&users->idle))
    forget(users, list_entry(list_first(&users->idle), struct user, idle_link));
}

bool users_are_clear(const struct users *users) {
  for (int i = 0; i < USER_RESOURCES; i++)
    if (users->used[i] > 0)
      return false;
  return has_nothing(&users->reserve);
}

/* ---- accounts ---- */

uint64_t user_share(const struct user *user, enum user_resource resource) {
  const struct users *users = user->users;
  const struct users_limit *limit = &users->limits[resource];
  if (user == &users->reserve)
    return reserve[resource];
  uint64_t others = users->used[resource] - user->used[resource];
  uint64_t half = others < limit->total ? (limit->total - others) / 2 : 0;
  return half < limit->most ? half : limit->most;
}

/* The reserve has its own, which counts for nobody. */
static void add(struct user *user, enum user_resource resource, uint64_t amount) {
  user->used[resource] += amount;
  if (user != &user->users->reserve)
    user->users->used[resource] += amount;
}

int user_charge_all(struct user *user, const struct user_cost *cost) {
  for (int i = 0; i < USER_RESOURCES; i++) {
    uint64_t share = user_share(user, i), used = user->used[i];
    if (cost->of[i] > 0 && (used > share || cost->of[i] > share - used))
      return -EDQUOT;
  }
  for (int i = 0; i < USER_RESOURCES; i++)
    add(user, i, cost->of[i]);
  if (!list_empty(&user->idle_link)) {
    list_remove(&user->idle_link);
    user->users->idle_count--;
  }
  return 0;
}

void user_release_all(struct user *user, const struct user_cost *cost) {
  for (int i = 0; i < USER_RESOURCES; i++)
    add(user, i, -cost->of[i]);
  if (has_nothing(user) && list_empty(&user->idle_link))
    set_idle(user);
}

int user_charge(struct user *user, enum user_resource resource, uint64_t amount) {
  struct user_cost cost = {0};
  cost.of[resource] = amount;
  return user_charge_all(user, &cost);
}

void user_release(struct user *user, enum user_resource resource, uint64_t amount) {
  struct user_cost cost = {0};
  cost.of[resource] = amount;
  user_release_all(user, &cost);
}

/* ---- pictures ---- */

/* Which of the user's it is; NULL: none of them. */
static int find_picture(const struct user *user, const void *picture) {
  for (int i = 0; i < USER_PICTURES; i++)
    if (user->pictures[i].picture == picture)
      return i;
  return -1;
}

int user_hold_picture(struct user *user, const void *picture, uint64_t bytes) {
  int i = find_picture(user, picture);
  if (i < 0) {
    i = find_picture(user, NULL);
    if (i < 0 || user_charge(user, USER_BYTES, bytes) < 0)
      return -EDQUOT;
    user->pictures[i].picture = picture;
  }
  user->pictures[i].readers++;
  return 0;
}

void user_drop_picture(struct user *user, const void *picture, uint64_t bytes) {
  int i = find_picture(user, picture);
  if (--user->pictures[i].readers > 0)
    return;
  user->pictures[i].picture = NULL;
  user_release(user, USER_BYTES, bytes);
}
