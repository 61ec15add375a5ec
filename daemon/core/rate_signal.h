/*
 * rate_signal.h - what a production job's counters say: whether it works, and how much it loses.
 *
 * Two gauges: arrivals (submissions per time) and kernels (what sampled ones take undisturbed, per what they
 * take). docs/RATE.md says which rules when, and why.
 */
#ifndef GS_RATE_SIGNAL_H
#define GS_RATE_SIGNAL_H

#include <stdint.h>

#include "core/rate_gauge.h"

/* Of its speed that a production job may lose, and what is steered for. */
#define RATE_TOLERANCE 0.02
#define RATE_AIM 0.0197

/* What happened in one tick; sane: the counters can be believed. */
struct rate_growth {
  double submissions, sampled_ns, expected_ns, busy_ns, throttled_ns;
  double told_ns, elapsed_ns; /* the time that they tell of, by the job; between the ticks */
  bool idle, sane;
};

enum rate_ruler { RATE_RULED_BY_NOTHING, RATE_RULED_BY_ARRIVALS, RATE_RULED_BY_KERNELS };

struct rate_signal {
  struct rate_gauge arrivals, kernels;
  enum rate_ruler ruler;
  bool measured;     /* what it does undisturbed is known */
  unsigned patience; /* ticks of work that a measurement may take at most */
  unsigned worked;   /* ticks of work since the measurement began */
  uint64_t quiet_ns; /* for so long it has submitted nothing and had nothing queued */
  double credit_ns;  /* of GPU time that it may yet lose to jobs that it finds unlimited when it comes back */
  double delayed_ns, delayed_squared; /* of sampled kernels: how long others delay them, sums over ticks */
  double sampled_ns, busy_ns;         /* sums over the same ticks */
  double debt_s; /* what it has lost beyond what is steered for, in seconds of its work */
};

/* What it loses, as a part of its speed, and the standard error of that; in so many ticks (0: can't say). */
struct rate_loss {
  double loss, error;
  unsigned ticks;
};

void signal_init(struct rate_signal *signal);
void signal_take(struct rate_signal *signal, const struct rate_growth *growth);

/* It has something to do; it has had nothing for so long that others may have the whole GPU. */
bool signal_works(const struct rate_signal *signal);
bool signal_is_idle(const struct rate_signal *signal);

/* It was idle, and others had no limit when it came back, in a period of that length. */
void signal_surprise(struct rate_signal *signal, double period_ns);

/* What it does undisturbed: forget it and measure; it has gone idle meanwhile, so be quicker the next time;
 * whether what has been seen is enough. */
void signal_measure(struct rate_signal *signal);
void signal_interrupt(struct rate_signal *signal);
bool signal_suffices(const struct rate_signal *signal, unsigned ticks_most);

/* Take what has been seen as undisturbed. False: neither signal could tell a loss. */
bool signal_learn(struct rate_signal *signal);

/* ---- rate_loss.c ---- */

/* In the last ticks, by what rules it; positive: it is slower than undisturbed. And with what it is to get
 * back for earlier losses. */
struct rate_loss signal_loss(const struct rate_signal *signal, unsigned ticks);
struct rate_loss signal_loss_due(const struct rate_signal *signal, unsigned ticks);

/* Fewer arrivals than undisturbed, though its kernels take no longer: it has less to do. */
bool signal_lacks_work(const struct rate_signal *signal, unsigned ticks);

/* Its account: a tick; a loss that the signals can't see. */
void signal_take_loss(struct rate_signal *signal, const struct rate_growth *growth);
void signal_owe(struct rate_signal *signal, double lost_ns);

#endif
