/*
 * rate.h - how much of a GPU opportunistic jobs may use: what production jobs leave over, found by additive
 * increase and multiplicative decrease (after TGS, NSDI 2023), and shared fairly. docs/RATE.md has the rules.
 *
 * Pure: no clock, no allocation, no I/O. The caller owns the structs, tells each job's counters, and calls
 * rate_tick() at gpu->next_ns, more or less, and reads the limits. Counters are sums since any moment, as
 * a client tells them, and not believed: one that goes backwards or leaps costs a tick's worth of knowledge.
 */
#ifndef GS_RATE_H
#define GS_RATE_H

#include "core/list.h"
#include "core/rate_signal.h"

/* From tick to tick: never the same twice in a row, or what production does in step with them (iterations of
 * a half or two thirds of a period) would look steadier, and other, than it is. */
#define RATE_PERIOD_LEAST_NS UINT64_C(20000000)
/* While production is: when it comes back it must not wait. */
#define RATE_PERIOD_IDLE_NS UINT64_C(5000000)
#define RATE_PERIOD_MOST_NS UINT64_C(60000000)

#define RATE_NO_LIMIT UINT64_MAX

/* Beside more production jobs than that opportunistic jobs wait while any of these works: so one tick costs
 * no more than a millisecond, whatever the number of jobs. */
#define RATE_WATCHED_MOST 64

struct rate_counters {
  uint64_t at_ns;        /* when they were brought up to date; the tick's time if nobody knows */
  uint64_t submissions;  /* calls let through */
  uint64_t sampled_ns;   /* what sampled kernels took on the GPU */
  uint64_t expected_ns;  /* what the same take undisturbed */
  uint64_t busy_ns;      /* time in which the GPU had work of the job */
  uint64_t service_ns;   /* time in which the job had something to do; never growing: not known */
  uint64_t served;       /* submissions of the service that is over, or was for long under way */
  uint64_t waited_ns;    /* of that service: waiting for the GPU; never growing: not known */
  uint64_t throttled_ns; /* time that threads waited at their limit */
  bool idle;             /* nothing is queued, and nobody submits */
};

enum rate_class { RATE_PRODUCTION, RATE_OPPORTUNISTIC };

/* What the controller is doing. */
enum rate_state {
  RATE_FREE,       /* no limit: nobody would lose */
  RATE_CHECKING,   /* paused, to see whether production does what it did undisturbed */
  RATE_MEASURING,  /* paused, to learn what production does undisturbed */
  RATE_SLOW_START, /* the limit grows by factors until production loses */
  RATE_STEADY,     /* additive increase, multiplicative decrease */
};

/* Why it is in that state, or why the limit has changed the last time. */
enum rate_reason {
  RATE_NO_PRODUCTION,
  RATE_NO_OPPORTUNISTIC,
  RATE_PRODUCTION_IDLE,
  RATE_PRODUCTION_BACK, /* after having been idle */
  RATE_PRODUCTION_NEW,  /* nothing is known of it yet */
  RATE_LEFT_BAND,       /* undisturbed, it does not do what it did: another phase */
  RATE_FASTER,          /* than ever undisturbed, or than its kernels allow: another phase? */
  RATE_WANDERS,         /* production's speed, by itself: is what its kernels lose felt? */
  RATE_LACKS_WORK,      /* it submits less, but its kernels take no longer: another phase? */
  RATE_LOSES_ALWAYS,    /* whatever the limit */
  RATE_NO_SIGNAL,       /* neither signal can tell yet: opportunistic jobs wait */
  RATE_UNDECIDED,       /* more ticks are needed */
  RATE_QUIET,           /* production has paused: nothing to judge by */
  RATE_NO_DEMAND,       /* the limit is not used: more would change nothing */
  RATE_KEEPS,           /* production keeps its speed: increase */
  RATE_LOSES,           /* it does not: decrease */
  RATE_DISTURBED,       /* by others than those whose limits are found here */
  RATE_CROWD,           /* more production jobs than RATE_WATCHED_MOST: none is measured */
};

struct rate_job {
  struct list link;
  enum rate_class class;
  struct rate_counters now, last; /* as told; as of the last tick */
  bool told;                      /* `last` means something */
  struct rate_growth growth;      /* in the last tick */
  double used;                    /* opportunistic: GPU ns per s, smoothed */
  unsigned hungry;                /* ticks for which it counts as wanting more */
  bool settled;                   /* share.c: has its share */
  double share;                   /* GPU ns per s */
  uint64_t limit;                 /* the same; 0: nothing passes; RATE_NO_LIMIT. Output */
  struct rate_signal signal;      /* production; large, so it comes last */
};

struct rate_gpu {
  struct list production, opportunistic;
  unsigned production_count, opportunistic_count;
  enum rate_state state;
  enum rate_reason reason;
  double limit;           /* of all opportunistic jobs together, GPU ns per s; kept while paused and free */
  unsigned calm;          /* windows in a row in which production has lost nothing */
  unsigned tries;         /* decreases by half, one after the other */
  unsigned falls;         /* decreases in a row that have not been enough */
  bool falling;           /* the last step was one */
  unsigned sure;          /* ticks in a row that said the same of the limit */
  unsigned ticks;         /* since the limit or the state changed: what windows may look back on */
  unsigned unchecked;     /* ticks since a check has found nothing */
  unsigned wait;          /* so many must pass until production that is too fast is checked again */
  bool undisturbed;       /* no opportunistic job runs: what kernels take now is what they take. Output */
  bool wide;              /* who has no limit may queue more: production has rested for long. Output */
  bool started;           /* slow start is over */
  uint64_t free_since_ns; /* RATE_FREE */
  uint64_t last_ns;
  uint64_t next_ns; /* when the next tick should be. Output */
  uint32_t dither;
};

void rate_gpu_init(struct rate_gpu *gpu);

/* The job's counters begin with what is told next. */
void rate_job_add(struct rate_gpu *gpu, struct rate_job *job, enum rate_class class);
void rate_job_remove(struct rate_gpu *gpu, struct rate_job *job);
void rate_job_tell(struct rate_job *job, const struct rate_counters *counters);

/* Production has been, or will be, disturbed by others than these opportunistic jobs: what it has done since
 * the last tick says nothing of them, and it is looked at before they go on. */
void rate_disturb(struct rate_gpu *gpu);

/* What has been told since the last tick becomes limits. */
void rate_tick(struct rate_gpu *gpu, uint64_t now_ns);

#endif
