/* judge.c - the best constant limit, and the run beside it. */
#include "plants/judge.h"

#include <math.h>
#include <string.h>

#define KEPT 0.98
#define TRIAL_S 40.0
#define TRIAL_SEEDS 3
#define HALVINGS 12
#define NEAR 0.1
#define STAYS_S 2.0
#define TOOTH_S 5.0
#define SETTLED_S 10.0
enum { TICKS = (int)(JUDGE_RUN_S * 1000000000 / RATE_PERIOD_LEAST_NS) + 1 };

/* ---- the best constant limit ---- */

static double phase_end_s(const struct plant *plant, unsigned phase) {
  return phase + 1 < plant->phase_count ? plant->phases[phase + 1].from_s : JUDGE_RUN_S;
}

/* The phase alone, long enough to tell. */
static double loss_with(const struct plant *plant, unsigned phase, double limit, uint64_t seed) {
  struct plant alone = *plant;
  struct plant_regime regime = {.limit = {limit}};
  double loss = 0;
  alone.phases[0] = plant->phases[phase];
  alone.phase_count = 1;
  for (unsigned i = 0; i < TRIAL_SEEDS; i++) {
    struct plant_outcome outcome;
    plant_run(&alone, &regime, 0, TRIAL_S, seed + i, NULL, NULL, &outcome);
    loss += plant_loss(&alone, &outcome) / TRIAL_SEEDS;
  }
  return loss;
}

static double best_in_phase(const struct plant *plant, unsigned phase, uint64_t seed) {
  double low = 0.001, high = 1;
  if (loss_with(plant, phase, high, seed) <= 1 - KEPT)
    return high;
  for (unsigned i = 0; i < HALVINGS; i++) {
    double middle = sqrt(low * high);
    if (loss_with(plant, phase, middle, seed) <= 1 - KEPT)
      low = middle;
    else
      high = middle;
  }
  return low;
}

void judge_find_best(const struct plant *plant, uint64_t seed, struct judge_best *best) {
  for (unsigned phase = 0; phase < plant->phase_count; phase++)
    best->limit[phase] = best_in_phase(plant, phase, seed);
}

/* ---- a run ---- */

struct log {
  unsigned count;
  struct plant_tick ticks[TICKS];
};

/* Ticks in which production rests, or has just come back, say nothing of the limit. */
static void note(void *context, const struct plant_tick *tick) {
  struct log *log = context;
  if (tick->limited && log->count < TICKS)
    log->ticks[log->count++] = *tick;
}

/* Time in which production rests is not the controller's to use. */
static double limited_s(const struct log *log, unsigned from, unsigned to) {
  double sum_s = 0;
  for (unsigned i = from + 1; i <= to; i++)
    sum_s += fmin(log->ticks[i].now_s - log->ticks[i - 1].now_s, RATE_PERIOD_MOST_NS / 1e9);
  return sum_s;
}

/* The first tick from `from` on, and before `to`, from which the limit stays near; `to`: there is none. */
static unsigned converged_at(const struct log *log, unsigned from, unsigned to, double best) {
  unsigned since = from;
  for (unsigned i = from; i < to; i++) {
    if (fabs(log->ticks[i].limit / best - 1) > NEAR)
      since = i + 1;
    else if (limited_s(log, since, i) >= STAYS_S)
      return since;
  }
  return to;
}

static double deepest_fall(const struct log *log, unsigned from, unsigned to) {
  double deepest = 0;
  for (unsigned i = from; i < to; i++)
    for (unsigned k = i + 1; k < to && log->ticks[k].now_s < log->ticks[i].now_s + TOOTH_S; k++)
      deepest = fmax(deepest, 1 - log->ticks[k].limit / log->ticks[i].limit);
  return deepest;
}

static unsigned first_tick_at(const struct log *log, double now_s) {
  unsigned i = 0;
  while (i < log->count && log->ticks[i].now_s < now_s - 1e-9)
    i++;
  return i;
}

static void judge_phase(const struct plant *plant, unsigned phase, const struct log *log, double best,
                        struct judge_verdict *verdict) {
  double from_s = plant->phases[phase].from_s, to_s = phase_end_s(plant, phase);
  unsigned from = first_tick_at(log, from_s), to = first_tick_at(log, to_s);
  unsigned at = converged_at(log, from, to, best);
  double took_s = at < to ? limited_s(log, from, at) + log->ticks[from].now_s - from_s : to_s - from_s;
  if (phase == 0)
    verdict->converge_s = took_s;
  else
    verdict->reconverge_s = fmax(verdict->reconverge_s, took_s);
  unsigned settled = first_tick_at(log, from_s + SETTLED_S);
  verdict->sawtooth = fmax(verdict->sawtooth, deepest_fall(log, at < settled ? at : settled, to));
}

/* Who knew the best limits, and when production rests, would have had so much. */
static double best_harvest_s(const struct plant *plant, const struct judge_best *best, uint64_t seed) {
  struct plant_regime regime = {.free_in_rests = plant->phases[0].workers[0].pause_s > 0};
  struct plant_outcome outcome;
  memcpy(regime.limit, best->limit, sizeof regime.limit);
  plant_run(plant, &regime, 0, JUDGE_RUN_S, seed, NULL, NULL, &outcome);
  return plant_harvest_s(plant, &outcome);
}

void judge_run(const struct plant *plant, const struct plant_regime *regime, const struct judge_best *best,
               uint64_t seed, struct judge_verdict *verdict) {
  static struct log log;
  struct plant_outcome outcome;
  log.count = 0;
  *verdict = (struct judge_verdict){0};
  plant_run(plant, regime, 0, JUDGE_RUN_S, seed, note, &log, &outcome);
  for (unsigned phase = 0; phase < plant->phase_count; phase++)
    judge_phase(plant, phase, &log, best->limit[phase], verdict);
  verdict->loss = plant_loss(plant, &outcome);
  verdict->harvest = plant_harvest_s(plant, &outcome) / best_harvest_s(plant, best, seed);
}
