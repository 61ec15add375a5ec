/* bucket.c - see bucket.h. */
#include "gate/bucket.h"

/* More can't be submitted to a GPU however much of it runs at once; and the arithmetic holds. */
#define LIMIT_MAX (16 * NS_PER_S)

/* It is filled by so much at least, or the rest that each division leaves would be lost. */
#define FILL_NS 1000

#define KEPT_S_PART 1000 /* of a second's limit: what is kept beyond a burst */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

void bucket_begin(struct bucket *bucket, uint64_t burst_ns, uint64_t limit, uint64_t now_ns) {
  *bucket = (struct bucket){.burst_ns = burst_ns,
                            .limit = least(limit, LIMIT_MAX),
                            .level_ns = (int64_t)burst_ns,
                            .filled_ns = now_ns};
}

static int64_t most_ns(const struct bucket *bucket) {
  return (int64_t)least(bucket->burst_ns + bucket->limit / KEPT_S_PART, BUCKET_MOST_NS);
}

/* Eleven days are for ever. */
static uint64_t comes_ns(uint64_t limit, uint64_t elapsed_ns) {
  uint64_t seconds = least(elapsed_ns / NS_PER_S, 1000000);
  return seconds * limit + elapsed_ns % NS_PER_S * limit / NS_PER_S;
}

static void fill(struct bucket *bucket, uint64_t now_ns) {
  uint64_t elapsed_ns = now_ns > bucket->filled_ns ? now_ns - bucket->filled_ns : 0;
  int64_t most = most_ns(bucket), missing_ns = most > bucket->level_ns ? most - bucket->level_ns : 0;
  uint64_t come_ns = comes_ns(bucket->limit, elapsed_ns);
  if (come_ns < least(FILL_NS, (uint64_t)missing_ns) && elapsed_ns < NS_PER_S)
    return;
  bucket->filled_ns += elapsed_ns;
  bucket->level_ns += (int64_t)least(come_ns, (uint64_t)missing_ns);
}

void bucket_limit(struct bucket *bucket, uint64_t limit, uint64_t now_ns) {
  limit = least(limit, LIMIT_MAX);
  if (limit == bucket->limit)
    return;
  fill(bucket, now_ns);
  bucket->filled_ns = now_ns;
  bucket->limit = limit;
}

bool bucket_take(struct bucket *bucket, uint64_t ns, uint64_t now_ns) {
  fill(bucket, now_ns);
  bucket->spent = bucket->level_ns <= 0 || (bucket->spent && bucket->level_ns < (int64_t)bucket->burst_ns);
  if (bucket->limit == 0 || bucket->spent)
    return false;
  bucket_correct(bucket, (int64_t)least(ns, BUCKET_OWED_NS));
  return true;
}

void bucket_correct(struct bucket *bucket, int64_t ns) {
  const int64_t bound_ns = (int64_t)(2 * BUCKET_OWED_NS);
  ns = ns > bound_ns ? bound_ns : ns < -bound_ns ? -bound_ns : ns;
  bucket->level_ns -= ns;
  if (bucket->level_ns < -(int64_t)BUCKET_OWED_NS)
    bucket->level_ns = -(int64_t)BUCKET_OWED_NS;
  if (bucket->level_ns > most_ns(bucket))
    bucket->level_ns = most_ns(bucket);
}

void bucket_expect(struct bucket *bucket, uint64_t ns) {
  bucket->spent |= (int64_t)least(ns, BUCKET_MOST_NS) > bucket->level_ns;
}

uint64_t bucket_wait_ns(const struct bucket *bucket) {
  if (bucket->limit == 0)
    return UINT64_MAX;
  int64_t enough_ns = bucket->spent ? (int64_t)bucket->burst_ns : 1, lacks_ns = enough_ns - bucket->level_ns;
  uint64_t lacking_ns = lacks_ns > FILL_NS ? (uint64_t)lacks_ns : FILL_NS;
  return lacking_ns <= NS_PER_S ? lacking_ns * NS_PER_S / bucket->limit + 1
                                : lacking_ns / bucket->limit * NS_PER_S + NS_PER_S;
}
