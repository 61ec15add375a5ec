/* user_limits.c - what single users have and may. */
#include "server/user_limits.h"

struct user_limit *user_limits_provide(struct user_limits *limits, uid_t uid) {
  for (size_t i = 0; i < limits->count; i++)
    if (limits->list[i].uid == uid)
      return &limits->list[i];
  if (limits->count == USER_LIMITS_MAX)
    return NULL;
  struct user_limit *added = &limits->list[limits->count++];
  *added = (struct user_limit){.uid = uid};
  return added;
}

struct user_limit user_limits_of(const struct user_limits *limits, uid_t uid,
                                 const struct user_limit *general) {
  struct user_limit given = *general;
  given.uid = uid;
  for (size_t i = 0; i < limits->count; i++) {
    const struct user_limit *own = &limits->list[i];
    if (own->uid != uid)
      continue;
    if (own->fields & USER_LIMIT_WEIGHT)
      given.weight = own->weight;
    if (own->fields & USER_LIMIT_JOBS)
      given.max_jobs = own->max_jobs;
    if (own->fields & USER_LIMIT_MEMORY)
      given.max_memory_bytes = own->max_memory_bytes;
    if (own->fields & USER_LIMIT_PRODUCTION)
      given.bounds.production_privileged = own->bounds.production_privileged;
    if (own->fields & USER_LIMIT_MAX_WEIGHT)
      given.bounds.max_weight = own->bounds.max_weight;
    if (own->fields & USER_LIMIT_MAX_PRIORITY)
      given.bounds.max_priority = own->bounds.max_priority;
  }
  return given;
}
