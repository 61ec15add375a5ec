/* claims.c - see claims.h. */
#include "server/claims.h"

#include <string.h>

static struct claim *find(struct claims *claims, uid_t uid) {
  for (uint32_t i = 0; i < claims->count; i++)
    if (claims->list[i].uid == uid)
      return &claims->list[i];
  return NULL;
}

static unsigned count_size(const struct claims *claims, uint64_t total_bytes) {
  unsigned count = 0;
  for (uint32_t i = 0; i < claims->count; i++)
    count += claims->list[i].total_bytes == total_bytes;
  return count;
}

static unsigned count_name(const struct claims *claims, const char *name) {
  unsigned count = 0;
  for (uint32_t i = 0; i < claims->count; i++)
    count += strcmp(claims->list[i].name, name) == 0;
  return count;
}

/* Of two with the same number of votes, the one that is there for longer counts. */
static void decide(struct claims *claims) {
  unsigned size_votes = count_size(claims, claims->total_bytes),
           name_votes = count_name(claims, claims->name);
  for (uint32_t i = 0; i < claims->count; i++) {
    const struct claim *claim = &claims->list[i];
    unsigned votes = count_size(claims, claim->total_bytes);
    if (votes > size_votes) {
      claims->total_bytes = claim->total_bytes;
      size_votes = votes;
    }
    votes = count_name(claims, claim->name);
    if (votes > name_votes) {
      memcpy(claims->name, claim->name, sizeof claims->name);
      name_votes = votes;
    }
  }
}

void claims_enter(struct claims *claims, uid_t uid, uint64_t total_bytes, const char *name) {
  struct claim *claim = find(claims, uid);
  claims->jobs++;
  if (claim) {
    claim->jobs++;
    return;
  }
  if (claims->count == CLAIMS_MAX)
    return;
  claim = &claims->list[claims->count++];
  *claim = (struct claim){.uid = uid, .jobs = 1, .total_bytes = total_bytes};
  strncpy(claim->name, name, sizeof claim->name - 1);
  decide(claims);
}

/* Users without a vote go by what has counted, also when the last one with a vote has gone. */
void claims_leave(struct claims *claims, uid_t uid) {
  struct claim *claim = find(claims, uid);
  if (--claims->jobs == 0) {
    *claims = (struct claims){0};
    return;
  }
  if (!claim || --claim->jobs > 0)
    return;
  claims->count--;
  memmove(claim, claim + 1, (claims->count - (size_t)(claim - claims->list)) * sizeof *claim);
  if (claims->count > 0)
    decide(claims);
}
