/*
 * bucket.h - a bucket of GPU time: it fills at the rate of a limit, and who submits takes out of it what that
 * costs. Rules only; limit.c has the waiting.
 *
 * Once it is empty, nobody may take anything until a burst has come together: were each kernel let through by
 * itself, the GPU would change from one process to the other and back for each (0.15 to 0.25 ms on an H200,
 * where a limit of 1 % then cost the others 7 %). What a submission costs may turn out to be more than was in
 * the bucket: it then owes that, and the burst comes on top. Of what nobody takes a burst is kept, and a
 * millisecond of the limit: so that who wakes late has lost nothing, and small limits stay small.
 *
 * Threading: none; the caller serializes.
 */
#ifndef GS_BUCKET_H
#define GS_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"

#define BUCKET_BURST_NS (3 * NS_PER_MS / 4) /* where processes take turns on the GPU */
#define BUCKET_SMALL_BURST_NS                                                                                \
  (NS_PER_MS / 10)                     /* where they run at the same time: no others wait meanwhile          \
                                        */
#define BUCKET_MOST_NS (2 * NS_PER_MS) /* it never holds more */
#define BUCKET_OWED_NS (10 * NS_PER_S) /* nor does it owe more */

struct bucket {
  uint64_t burst_ns;
  uint64_t limit;     /* ns per s of time; 0: nobody may take anything */
  int64_t level_ns;   /* less than 0: owed */
  bool spent;         /* the burst is over, and the next one has not come together */
  uint64_t filled_ns; /* when */
};

/* With a burst in it. */
void bucket_begin(struct bucket *bucket, uint64_t burst_ns, uint64_t limit, uint64_t now_ns);

/* From now on it fills so fast. */
void bucket_limit(struct bucket *bucket, uint64_t limit, uint64_t now_ns);

/* Take so much if anything may be taken: true. */
bool bucket_take(struct bucket *bucket, uint64_t ns, uint64_t now_ns);

/* What has been taken was too little, by so much (or too much). */
void bucket_correct(struct bucket *bucket, int64_t ns);

/* The next one will cost so much: if that is more than is left, it begins the next burst instead of ending
 * this one too late. */
void bucket_expect(struct bucket *bucket, uint64_t ns);

/* After how long something may be taken, at this limit; UINT64_MAX: never. */
uint64_t bucket_wait_ns(const struct bucket *bucket);

#endif
