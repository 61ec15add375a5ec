/*
 * meter.h - the meter page: what a job does on a GPU, and how much it may do there, in memory that the daemon
 * and the job share.
 *
 * One page per attachment (job x GPU). The daemon makes it: a memfd of GS_METER_SIZE bytes, sealed against
 * shrinking and growing, zeroed but for the fields that it writes. It goes with ATTACHED (SCM_RIGHTS).
 * Without one a job counts for nobody, and nothing limits it.
 *
 * Who writes what is said with the fields; each writes on cache lines of its own. All fields are read and
 * written with atomic operations; relaxed order is enough, as each is a figure by itself.
 *
 * The daemon changes `limit`, `undisturbed` or `wanted`, then adds 1 to `limit_seq`, then wakes all who wait
 * there (FUTEX_WAKE, not the private one: the job may live in another pid namespace). The job's threads wait
 * there, so they hear of it at once. The job adds to it as well, for reasons of its own: it says that
 * something has changed, not what.
 *
 * A limit also bounds what is queued on the GPU: to 4 ms, one of GS_LIMIT_WIDE or more to 10 ms;
 * GS_LIMIT_NONE bounds nothing. A job that may use all of the GPU for the moment, but must be able to stop
 * soon, has a limit of several seconds per second.
 *
 * What the job writes is its own word: it may be wrong in any way, and must only ever cost the job itself.
 */
#ifndef GPUSHARE_METER_H
#define GPUSHARE_METER_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define GS_METER_SIZE 4096
#define GS_METER_VERSION 1u
#define GS_LIMIT_NONE UINT64_MAX
#define GS_LIMIT_WIDE UINT64_C(10000000000)

struct gs_meter {
  /* The daemon, before the page is passed. */
  _Alignas(64) uint32_t version; /* GS_METER_VERSION; a job does without a page of another one */

  /* The job: sums since it got the page. Brought up to date every 10 ms while `wanted` and not `idle`, and
   * whenever limit_seq moves. */
  _Alignas(64) _Atomic uint64_t kernels; /* submitted to the GPU, those in graphs included */
  _Atomic uint64_t blocks;               /* CUDA blocks of these: the grid's x * y * z */
  _Atomic uint64_t bytes;                /* copied or set, by calls or in graphs */
  _Atomic uint64_t submissions;          /* calls that submitted a kernel, a graph, a copy or a set */
  _Atomic uint64_t throttled_ns;         /* that its threads have waited for the limit, all together */
  _Atomic uint64_t at_ns; /* CLOCK_MONOTONIC when these and those below were brought up to date */

  /* Likewise: measured on the GPU for one kernel or graph in some, each time by two events around it. What it
   * takes undisturbed is learnt while `undisturbed`, by function (or graph) and number of blocks; those of
   * which that is not known are left out. sampled_ns / expected_ns is how much slower the job's kernels are.
   */
  _Alignas(64) _Atomic uint64_t samples;
  _Atomic uint64_t sampled_ns;  /* what they took */
  _Atomic uint64_t expected_ns; /* what the same kernels take undisturbed */
  _Atomic uint64_t busy_ns;     /* estimate: time during which the GPU had work of this job */
  _Atomic uint64_t service_ns;  /* time in which the job had something to do: from each first submission after
                                   all before it had finished, until it has seen the last one finish */
  _Atomic uint64_t served; /* submissions of the part of that time that is accounted for: what ended because
                              a call had waited for it, or is over otherwise, or goes on and on */
  _Atomic uint64_t waited_ns; /* of the same part: time in such calls, if it ended so; else all of it */

  /* The job: how it is now. */
  _Alignas(64) _Atomic uint64_t in_flight_ns; /* estimate of what is queued: so long ago the oldest measured
                                                 submission was made that has not finished; 0: all have */
  _Atomic uint32_t idle;       /* 1: nothing is queued, and nobody submits or wants to. 0 from the
                                               first submission on */
  _Atomic uint32_t seen_limit; /* the value of limit_seq that the job has seen: it obeys what the daemon
                                  said before, but for calls that are being made */

  /* The daemon. */
  _Alignas(64) _Atomic uint64_t limit; /* GPU time that may be submitted, ns per s of wall time;
                                          GS_LIMIT_NONE: any; 0: nothing passes */
  _Atomic uint32_t limit_seq;          /* futex: see above */
  _Atomic uint32_t undisturbed;        /* 1: no opportunistic job has run lately */
  _Atomic uint32_t wanted;             /* 1: somebody reads the job's fields now and then. The job spends no
                                          time on them otherwise */
};

static_assert(sizeof(struct gs_meter) <= GS_METER_SIZE, "the page has place for it");

#endif
