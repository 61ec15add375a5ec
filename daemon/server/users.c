/* users.c - see users.h. */
#include "server/users.h"

#include <errno.h>
#include <stdlib.h>

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

/* What programs and gpusharectl cost is told by the costs in peers.c and wiring.c: 64 MiB are 2,048 programs
 * on two GPUs each. */
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

static void set_busy(struct user *user) {
  if (list_empty(&user->idle_link))
    return;
  list_remove(&user->idle_link);
  user->users->idle_count--;
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

static bool may_have(const struct user *user, enum user_resource resource, uint64_t amount) {
  uint64_t share = user_share(user, resource), used = user->used[resource];
  return amount == 0 || (used <= share && amount <= share - used);
}

/* The reserve has its own, which counts for nobody. */
static void add(struct user *user, enum user_resource resource, uint64_t amount) {
  user->used[resource] += amount;
  if (user != &user->users->reserve)
    user->users->used[resource] += amount;
}

int user_charge_all(struct user *user, const struct user_cost *cost) {
  for (int i = 0; i < USER_RESOURCES; i++)
    if (!may_have(user, i, cost->of[i]))
      return -EDQUOT;
  for (int i = 0; i < USER_RESOURCES; i++)
    add(user, i, cost->of[i]);
  set_busy(user);
  return 0;
}

void user_release_all(struct user *user, const struct user_cost *cost) {
  for (int i = 0; i < USER_RESOURCES; i++)
    add(user, i, -cost->of[i]);
  if (has_nothing(user) && list_empty(&user->idle_link))
    set_idle(user);
}

static struct user_cost cost_of(enum user_resource resource, uint64_t amount) {
  struct user_cost cost = {0};
  cost.of[resource] = amount;
  return cost;
}

int user_charge(struct user *user, enum user_resource resource, uint64_t amount) {
  struct user_cost cost = cost_of(resource, amount);
  return user_charge_all(user, &cost);
}

void user_release(struct user *user, enum user_resource resource, uint64_t amount) {
  struct user_cost cost = cost_of(resource, amount);
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
