/*
 * worker.h - a production job in virtual time: a training (iterations of CPU time and kernels, one after the
 * other), perhaps in bursts, or a server of requests that come at random.
 */
#ifndef GS_PLANTS_WORKER_H
#define GS_PLANTS_WORKER_H

#include "core/rate.h"

struct worker_kind {
  double cpu_s, gpu_s;     /* of an iteration or a request */
  unsigned kernels;        /* of an iteration or a request, all as long */
  double jitter;           /* of iterations and requests: standard deviation, relative */
  double requests_per_s;   /* 0: a training */
  double burst_s, pause_s; /* a training that works for about burst_s, rests for about pause_s; 0: never */
  double sample_noise;     /* standard deviation, relative */
  double wander;  /* of its host's speed, by itself: standard deviation; forgotten in WORKER_WANDER_S */
  double warm_up; /* by so much its host is faster after WORKER_WARM_UP_S than at first */
  bool ahead;     /* its host launches ahead: the GPU works behind it, and is waited for only at the end */
};

#define WORKER_WANDER_S 1.5
#define WORKER_WARM_UP_S 20.0

struct worker {
  struct worker_kind kind;
  uint64_t random, sampling;
  enum { WORKER_RESTS, WORKER_ON_CPU, WORKER_ON_GPU } state;
  double until_s;     /* resting, on the CPU */
  double burst_end_s; /* by its own time: bursts are so much work, however long that takes */
  double next_request_s;
  unsigned queued; /* requests */
  unsigned kernels_left;
  double kernel_s, left_s; /* the present kernel: its length, what is left of it */
  double begun_s;          /* when it began */
  double waits_from_s;     /* since when the host waits for the GPU, or will wait */
  unsigned until_sample;   /* kernels */
  double launched_from_s;  /* by a host that launches ahead: since when, up to until_s; kernels, at its end */
  uint64_t launched;
  double strayed, strayed_at_s; /* what its host's speed is beside the usual, relative; since when */
  double own_s, worked_s;       /* what it has done, in undisturbed time; the time that this has taken */
  struct rate_counters counters;
};

void worker_init(struct worker *worker, const struct worker_kind *kind, uint64_t seed);

/* From now on it is of another kind. */
void worker_change(struct worker *worker, const struct worker_kind *kind);

static inline bool worker_wants_gpu(const struct worker *worker) { return worker->state == WORKER_ON_GPU; }

static inline bool worker_rests(const struct worker *worker) { return worker->state == WORKER_RESTS; }

/* Time goes from now_s to now_s + step_s, in which the GPU works for it at this speed, 0 to 1. */
void worker_advance(struct worker *worker, double now_s, double step_s, double speed);

#endif
