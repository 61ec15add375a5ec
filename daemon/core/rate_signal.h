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
#define RATE_AIM 0.0195

/* What happened in one tick; sane: the counters can be believed. */
struct rate_growth {
  double submissions, sampled_ns, expected_ns, busy_ns, service_ns, served, waited_ns, throttled_ns;
  double told_ns, elapsed_ns; /* the time that they tell of, by the job; between the ticks */
  bool idle, sane;
};

/* What opportunistic jobs might do in it. */
enum rate_guests { RATE_GUESTS_FREE, RATE_GUESTS_PAUSED, RATE_GUESTS_LIMITED };

/* By waits: what it waits for the GPU stands for its arrivals. */
enum rate_ruler { RATE_RULED_BY_NOTHING, RATE_RULED_BY_ARRIVALS, RATE_RULED_BY_KERNELS, RATE_RULED_BY_WAITS };

struct rate_signal {
  struct rate_gauge arrivals, kernels;
  struct rate_gauge waits;    /* submissions for time waited, and host_ns for each */
  double host_ns;             /* what a submission took besides; 0: they don't rule */
  double service_ns, told_ns; /* since its measurement began: in which it had something to do, of all time */
  enum rate_ruler ruler;
  bool measured;     /* what it does undisturbed is known */
  bool rough;        /* its arrivals are neither steady nor even */
  bool serves;       /* its arrivals count by the time in which it had something to do */
  bool started;      /* it has been idle once */
  bool measuring;    /* it is being found out, with rests between */
  bool filled;       /* has queued as much as ever, since that began */
  bool rests;        /* has nothing to do, or not for the whole tick */
  unsigned pause;    /* ticks for which it has submitted nothing, while it does not rest yet */
  unsigned unseen;   /* ticks in a row with submissions, but without a sampled kernel that is known */
  unsigned worked;   /* ticks of work since the measurement began */
  uint64_t quiet_ns; /* for so long it has submitted nothing and had nothing queued */
  double credit_ns;  /* of GPU time that it may yet lose to jobs that it finds unlimited when it comes back */
  double delayed_ns, delayed_squared;  /* of sampled kernels: how long others delay them, sums over ticks */
  double sampled_ns, busy_ns, time_ns; /* sums over the same ticks */
  double lately_delayed_ns, lately_sampled_ns; /* the same of the last few ticks */
  double age_s;                                /* since it was measured, it has worked for so long */
  double wander;         /* its arrivals change by so much by themselves: standard deviation; 0: they don't */
  double before;         /* arrivals while others ran, just before they paused; 0: not known */
  double before_kernels; /* what it lost then by its kernels */
  double felt;           /* looks: sum of what it lost times what it lost by its kernels */
  double kernels_lost;   /* of the latter's squares */
  unsigned looks;
  double doubt;  /* how far its loss may be from what is steered for: standard error */
  double due;    /* what it was to get back at the last step */
  double debt_s; /* what it has lost beyond what is steered for, in seconds of its work */
};

/* What it loses, as a part of its speed; in so many ticks (0: can't say). Standard errors: all in all; what
 * differs from window to window, so without that of the undisturbed speed; the same if it loses as much as it
 * seems to, since of more delays the number is less certain. */
struct rate_loss {
  double loss, error, noise, spread;
  double grain;   /* times a loss: the square of the error that few delays make */
  double gain;    /* of the GPU for the whole of its speed: what it costs, or less */
  bool by_chance; /* waits rule, and requests come as they come: how many meet what guests do is chance */
  double due;     /* what of the loss is not lost, but to be given back */
  unsigned ticks;
  struct rate_signal *whose;
};

void signal_init(struct rate_signal *signal);
void signal_take(struct rate_signal *signal, const struct rate_growth *growth, enum rate_guests guests);

/* Windows begin no earlier than now; the last ticks have not been. */
void signal_mark(struct rate_signal *signal);
void signal_drop(struct rate_signal *signal, unsigned ticks);

/* It has something to do; it has had nothing for so long that others may have the whole GPU. */
bool signal_works(const struct rate_signal *signal);
bool signal_is_idle(const struct rate_signal *signal);

/* Its kernels rule, and for long it has run none of which is known what they take. */
bool signal_is_unseen(const struct rate_signal *signal);

/* It was idle, and others had no limit when it came back, in a period of that length; wide: they may have
 * queued more than usual. */
void signal_surprise(struct rate_signal *signal, double period_ns, uint64_t free_ns, bool wide);

/* What it does undisturbed: forget it and measure; whether what has been seen is enough. */
void signal_measure(struct rate_signal *signal);
bool signal_suffices(const struct rate_signal *signal, unsigned ticks_most);

/* Take what has been seen as undisturbed. False: neither signal could tell a loss. */
bool signal_learn(struct rate_signal *signal);

/* ---- rate_loss.c ---- */

/* In the last ticks, by what rules it; positive: it is slower than undisturbed. And with what it is to get
 * back for earlier losses. */
struct rate_loss signal_loss(const struct rate_signal *signal, unsigned ticks);
/* The error of a window of so many ticks, undisturbed, as one or the other gauge would tell it: by the delays
 * that have been seen, or as if others shared the GPU by slices. */
double signal_error(const struct rate_signal *signal, const struct rate_gauge *gauge, unsigned ticks,
                    bool slices);

struct rate_loss signal_loss_due(const struct rate_signal *signal, unsigned ticks, double due_most);

/* By one of the signals, whichever rules. By its kernels: of all its time, as an iteration's loss is. */
struct rate_loss signal_arrivals_loss(const struct rate_signal *signal, unsigned ticks);
struct rate_loss signal_kernels_loss(const struct rate_signal *signal, unsigned ticks);

/* Much faster than undisturbed, or than its kernels allow. */
bool signal_is_faster(const struct rate_signal *signal, unsigned ticks);

/* Fewer arrivals than undisturbed, though its kernels take no longer: it has less to do. */
bool signal_lacks_work(const struct rate_signal *signal, unsigned ticks);

/* Its account: a tick; a loss that the signals can't see. */
void signal_take_loss(struct rate_signal *signal, const struct rate_growth *growth, enum rate_guests guests);
void signal_owe(struct rate_signal *signal, double lost_ns);

/* ---- rate_look.c ---- */

/* Others are about to pause, after so many ticks at a limit; they have paused, for so many. The latter is
 * true if what it does undisturbed has to be measured anew. */
void signal_look_before(struct rate_signal *signal, unsigned ticks);
bool signal_look(struct rate_signal *signal, unsigned ticks);

/* In the last ticks it has not done what it did undisturbed. */
bool signal_is_outside(const struct rate_signal *signal, unsigned ticks);

/* It is much faster than undisturbed in the last ticks: so it is now, by itself. False: who can tell? */
bool signal_take_faster(struct rate_signal *signal, unsigned ticks);

/* Whether it is slower when its kernels take longer: believed until looks have shown that it is not. */
bool signal_feels(const struct rate_signal *signal);
bool signal_is_undecided(const struct rate_signal *signal);

#endif
