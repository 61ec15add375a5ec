/* user_limits.h - what single users have and may, in place of the general settings: [user NAME]. */
#ifndef GS_USER_LIMITS_H
#define GS_USER_LIMITS_H

#include <stddef.h>
#include <sys/types.h>

#include "server/terms.h"

#define USER_LIMITS_MAX 256

enum {
  USER_LIMIT_WEIGHT = 1,
  USER_LIMIT_JOBS = 2,
  USER_LIMIT_MEMORY = 4,
  USER_LIMIT_PRODUCTION = 8,
  USER_LIMIT_MAX_WEIGHT = 16,
  USER_LIMIT_MAX_PRIORITY = 32,
};

struct user_limit {
  uid_t uid;
  unsigned fields; /* USER_LIMIT_*: what of the following counts */
  uint32_t weight; /* of its share (policy.c) */
  uint64_t max_jobs;
  uint64_t max_memory_bytes; /* of its jobs together, on each GPU; 0: as much as there is */
  struct terms_bounds bounds;
};

struct user_limits {
  size_t count;
  struct user_limit list[USER_LIMITS_MAX];
};

/* That of the user, a new one if there is none; NULL: there are too many. */
struct user_limit *user_limits_provide(struct user_limits *limits, uid_t uid);

/* The user's: the general ones, but for what it has of its own. */
struct user_limit user_limits_of(const struct user_limits *limits, uid_t uid,
                                 const struct user_limit *general);

#endif
