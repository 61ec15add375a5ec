/*
 * bench_aimd.c - the controller of opportunistic jobs (daemon/core/rate.h) on GPUs in virtual time
 * (plants/list.c): how fast it finds its level, what production loses, and what opportunistic jobs gain.
 *
 * Figures are medians over the seeds, of each plant with its name before it; those without a name are the
 * worst of all plants. A run takes RUN_S.
 *
 *     converge_s             time in which production works until the level stays within a factor 1.5 of its
 *                            final value for 5 s, from the start or, where a phase changes, from then on; the
 *                            final value is the geometric mean of the last 30 s
 *     production_loss_ratio  of production's speed while it works, of the job that loses most, in the minute
 *                            after that
 *     start_loss_ratio       the same until then
 *     gain_ratio             of the GPU's time, for opportunistic jobs
 *     best_gain_ratio        the same at the best constant level, in force whenever production works: the
 *                            highest with which no job loses more than 2 %
 *     harvest_ratio          the one beside the other
 *
 * --help tells the options.
 */
#include <math.h>
#include <stddef.h>

#include "arguments.h"
#include "plants/plant.h"
#include "quantile.h"

#define SEEDS_MAX 1000
#define TRIAL_SEED 1000003 /* the best level is found on another run than those that are judged */
#define RUN_S 100.0
#define FINAL_S 30.0
#define MINUTE_S 60.0
#define STAYS_S 5.0
#define FACTOR 1.5
#define KEPT 0.98
#define HALVINGS 10
enum { SIGHTS = (int)(RUN_S / PLANT_SIGHT_S) + 2 };

static struct {
  uint64_t seeds, seed;
  const struct plant *plant; /* NULL: all */
  double level;              /* NAN: the controller's */
} options = {.seeds = 5, .seed = 1, .level = NAN};

struct verdict {
  double converge_s, production_loss, start_loss, gain, best_gain, harvest;
};

static const struct {
  const char *name;
  size_t place;
  double target; /* 0: none */
} figures[] = {
    {"converge_s", offsetof(struct verdict, converge_s), 5},
    {"production_loss_ratio", offsetof(struct verdict, production_loss), 0.02},
    {"start_loss_ratio", offsetof(struct verdict, start_loss), 0},
    {"gain_ratio", offsetof(struct verdict, gain), 0},
    {"best_gain_ratio", offsetof(struct verdict, best_gain), 0},
    {"harvest_ratio", offsetof(struct verdict, harvest), 0},
};
#define FIGURES (sizeof figures / sizeof *figures)

/* ---- a run ---- */

struct sights {
  unsigned count;
  struct plant_sight list[SIGHTS];
};

static void note(void *context, const struct plant_sight *sight) {
  struct sights *sights = context;
  if (sights->count < SIGHTS)
    sights->list[sights->count++] = *sight;
}

static unsigned sight_at(const struct sights *sights, double at_s) {
  unsigned i = 0;
  while (i < sights->count && sights->list[i].from_s < at_s - PLANT_SIGHT_S / 2)
    i++;
  return i;
}

static double loss_of(const struct sights *sights, unsigned from, unsigned to) {
  double worst = 0;
  for (unsigned worker = 0; worker < PLANT_WORKERS; worker++) {
    double own_s = 0, worked_s = 0;
    for (unsigned i = from; i < to; i++) {
      own_s += sights->list[i].own_s[worker];
      worked_s += sights->list[i].worked_s[worker];
    }
    worst = fmax(worst, worked_s > 0 ? 1 - own_s / worked_s : 0);
  }
  return worst;
}

/* By the job that works most. */
static double worked_s(const struct sights *sights, unsigned from, unsigned to) {
  double most_s = 0;
  for (unsigned worker = 0; worker < PLANT_WORKERS; worker++) {
    double sum_s = 0;
    for (unsigned i = from; i < to; i++)
      sum_s += sights->list[i].worked_s[worker];
    most_s = fmax(most_s, sum_s);
  }
  return most_s;
}

static double gain_of(const struct sights *sights) {
  double gained_s = 0;
  for (unsigned i = 0; i < sights->count; i++)
    gained_s += sights->list[i].gained_s;
  return gained_s / RUN_S;
}

static double final_level(const struct sights *sights) {
  unsigned from = sight_at(sights, RUN_S - FINAL_S);
  double sum = 0;
  for (unsigned i = from; i < sights->count; i++)
    sum += log(sights->list[i].level);
  return exp(sum / (sights->count - from));
}

static unsigned converged_at(const struct sights *sights, unsigned from) {
  double final = final_level(sights);
  unsigned since = from;
  for (unsigned i = from; i < sights->count; i++) {
    if (fabs(log(sights->list[i].level / final)) > log(FACTOR))
      since = i + 1;
    else if (sights->list[i].to_s - sights->list[since].from_s >= STAYS_S)
      return since;
  }
  return sights->count;
}

static struct verdict judge_run(const struct plant *plant, double best_gain, uint64_t seed) {
  static struct sights sights;
  sights.count = 0;
  plant_run(plant, options.level, RUN_S, seed, note, &sights);
  unsigned from = sight_at(&sights, plant->workers[0].change_s), at = converged_at(&sights, from);
  unsigned to = sight_at(&sights, sights.list[at < sights.count ? at : from].from_s + MINUTE_S);
  struct verdict verdict = {.best_gain = best_gain, .gain = gain_of(&sights)};
  verdict.converge_s = at < sights.count ? worked_s(&sights, from, at) : RUN_S;
  verdict.production_loss = loss_of(&sights, at < sights.count ? at : from, to);
  verdict.start_loss = loss_of(&sights, 0, at);
  verdict.harvest = verdict.gain / best_gain;
  return verdict;
}

/* ---- the best constant level ---- */

static double try_level(const struct plant *plant, double level, double *gain) {
  static struct sights sights;
  sights.count = 0;
  plant_run(plant, level, RUN_S, TRIAL_SEED, note, &sights);
  *gain = gain_of(&sights);
  return loss_of(&sights, 0, sights.count);
}

static double find_best(const struct plant *plant, double *gain) {
  double low = RATE_LEVEL_LEAST, high = 1;
  if (try_level(plant, high, gain) <= 1 - KEPT)
    return high;
  for (unsigned i = 0; i < HALVINGS; i++) {
    double middle = sqrt(low * high);
    if (try_level(plant, middle, gain) <= 1 - KEPT)
      low = middle;
    else
      high = middle;
  }
  try_level(plant, low, gain);
  return low;
}

/* ---- the program ---- */

static double value_of(const struct verdict *verdict, size_t figure) {
  return *(const double *)((const char *)verdict + figures[figure].place);
}

struct worst {
  double value[FIGURES];
  const char *plant[FIGURES];
};

static void judge(const struct plant *plant, struct worst *worst) {
  static struct verdict verdicts[SEEDS_MAX];
  double best_gain, values[SEEDS_MAX];
  report(report_name("%s_best_level", plant->name), find_best(plant, &best_gain), "");
  for (uint64_t i = 0; i < options.seeds; i++)
    verdicts[i] = judge_run(plant, best_gain, options.seed + i);
  for (size_t figure = 0; figure < FIGURES; figure++) {
    for (uint64_t i = 0; i < options.seeds; i++)
      values[i] = value_of(&verdicts[i], figure);
    double value = median(values, options.seeds);
    report(report_name("%s_%s", plant->name, figures[figure].name), value, "");
    if (!worst->plant[figure] || value > worst->value[figure]) {
      worst->value[figure] = value;
      worst->plant[figure] = plant->name;
    }
  }
}

static void report_worst(const struct worst *worst) {
  for (size_t i = 0; i < FIGURES; i++)
    if (figures[i].target > 0) {
      report_verdict(figures[i].name, worst->value[i], figures[i].target,
                     worst->value[i] <= figures[i].target, true);
      report_text(report_name("%s_plant", figures[i].name), worst->plant[i]);
    }
}

static const char help[] = "usage: bench_aimd [--json] [options]\n"
                           "  --seeds N          (5)\n"
                           "  --seed FIRST       (1)\n"
                           "  --plant NAME       only this one\n"
                           "  --constant LEVEL   this level instead of the controller's, for comparison\n"
                           "Exit status: 0; 2 usage. Targets are reported, not enforced.\n";

static int read_plant(const char *name, uint64_t *unused) {
  (void)unused;
  options.plant = plant_find(name);
  return options.plant ? 0 : -EINVAL;
}

static int read_constant(const char *text, uint64_t *unused) {
  (void)unused;
  char *rest;
  options.level = strtod(text, &rest);
  return *rest || rest == text || !(options.level >= 0 && options.level <= 1) ? -EINVAL : 0;
}

static const struct argument known[] = {
    {"seeds", .number = &options.seeds, .least = 1, .most = SEEDS_MAX},
    {"seed", .number = &options.seed, .most = UINT64_MAX},
    {"plant", .parse = read_plant},
    {"constant", .parse = read_constant},
    {0},
};

int main(int argc, char **argv) {
  struct worst worst = {0};
  arguments_read(argc, argv, help, known);
  report_begin();
  report("seeds", (double)options.seeds, "");
  report("first_seed", (double)options.seed, "");
  for (unsigned i = 0; i < plant_count; i++)
    if (!options.plant || options.plant == &plants[i])
      judge(&plants[i], &worst);
  report_worst(&worst);
  report_end();
  return 0;
}
