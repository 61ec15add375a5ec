/*
 * rate_gauge.h - how fast something goes: what is done for what is spent (submissions for time, a kernel's
 * usual time for its present one), told tick by tick, against what it was undisturbed.
 *
 * How far windows of a length scatter by themselves is learnt together with the undisturbed speed. So a
 * figure always comes with its error, and a lively job needs longer windows than a calm one.
 */
#ifndef GS_RATE_GAUGE_H
#define GS_RATE_GAUGE_H

#include <stdbool.h>

#define GAUGE_TICKS 255 /* the longest window */
#define GAUGE_BESIDE 4
#define GAUGE_SCALES 5 /* windows of 1, 2, 4, 8 and 16 ticks */

struct rate_gauge {
  double done[GAUGE_TICKS + 1], spent[GAUGE_TICKS + 1]; /* sums at the end of the last ticks */
  unsigned last;                                        /* the place of the newest */
  unsigned ticks;                                       /* known, at most GAUGE_TICKS */
  unsigned marked;              /* of these, since gauge_mark: what windows consist of */
  double base;                  /* done / spent undisturbed; 0: not known */
  unsigned base_ticks;          /* from so many ticks */
  double scatter[GAUGE_SCALES]; /* standard deviation, relative to base */
  double decay;                 /* scatter falls with length to the power of -decay */
  bool independent;             /* what ticks say is: no iteration is begun in one and ended in the next */
  bool irregular;               /* its ticks have nothing to do with each other, as of requests */
  double unevenness;            /* variance for each unit that is spent, if independent */
  double base_error;            /* standard error of base, relative to it */
  double steady_error;          /* the same if what changes slowly is left out */
  double beside_error;          /* of GAUGE_BESIDE ticks beside as many others */
};

/* What went before counts no longer; the undisturbed speed stays known. */
void gauge_restart(struct rate_gauge *gauge);

/* Windows begin no earlier than now. */
void gauge_mark(struct rate_gauge *gauge);

/* The last ticks have not been. */
void gauge_drop(struct rate_gauge *gauge, unsigned ticks);

void gauge_push(struct rate_gauge *gauge, double done, double spent);

/* Of all that was pushed each unit that was done has cost so much more. */
void gauge_charge(struct rate_gauge *gauge, double spent_per_done);

/* In the last ticks, at most as many as are known: done / spent; 0: nothing was spent. */
double gauge_speed(const struct rate_gauge *gauge, unsigned ticks);
double gauge_done(const struct rate_gauge *gauge, unsigned ticks);
double gauge_spent(const struct rate_gauge *gauge, unsigned ticks);

/* Takes the last ticks as undisturbed. False: they say nothing, and the base is unknown now. */
bool gauge_learn(struct rate_gauge *gauge, unsigned ticks);

/* Undisturbed it should be that, with such an error: beside what was learnt, each counts by its certainty. */
void gauge_expect(struct rate_gauge *gauge, double base, double error);

/* The standard error of a window of so many ticks, and of the base, relative to the base. */
double gauge_error(const struct rate_gauge *gauge, unsigned ticks);
double gauge_base_error(const struct rate_gauge *gauge);

/* By how much it has wandered while it was learnt, relative to the base. */
double gauge_wander(const struct rate_gauge *gauge);

#endif
