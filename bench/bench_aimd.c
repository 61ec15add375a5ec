/*
 * bench_aimd.c - the controller of opportunistic jobs (daemon/core/rate.h) on synthetic GPUs (plants/list.c):
 * how fast it finds the best constant limit, how steady it stays there, what production loses and what
 * opportunistic jobs gain.
 *
 * Figures are medians over the seeds, of each plant with its name before it; those without a name are the
 * worst of all plants; `missing_plants`: how many miss the target. plants/judge.h says what they mean; `best`
 * is the best constant limit, a part of the GPU, in each phase.
 * --help tells the options.
 */
#include <math.h>
#include <stddef.h>

#include "arguments.h"
#include "plants/judge.h"
#include "quantile.h"

#define SEEDS_MAX 1000
#define TRIAL_SEED 1000003 /* the best limit is found on other runs than those that are judged */

static struct {
  uint64_t seeds, seed;
  const struct plant *plant; /* NULL: all */
  struct plant_regime regime;
} options = {.seeds = 15, .seed = 1, .regime = {.controlled = true}};

/* Of 60 s, 49 are left when convergence and two changes have taken all the time that they may. */
static const struct {
  const char *name;
  size_t place;
  double target;
  bool at_least;
} figures[] = {
    {"converge_s", offsetof(struct judge_verdict, converge_s), 5, false},
    {"reconverge_s", offsetof(struct judge_verdict, reconverge_s), 3, false},
    {"sawtooth_ratio", offsetof(struct judge_verdict, sawtooth), 0.15, false},
    {"production_loss_ratio", offsetof(struct judge_verdict, loss), 0.02, false},
    {"harvest_ratio", offsetof(struct judge_verdict, harvest), 0.8, true},
};
#define FIGURES (sizeof figures / sizeof *figures)

struct worst {
  double value;
  const char *plant;
  unsigned missing; /* plants that miss the target */
};

/* ---- a plant ---- */

static double value_of(const struct judge_verdict *verdict, size_t figure) {
  return *(const double *)((const char *)verdict + figures[figure].place);
}

static double median_of(const struct judge_verdict *verdicts, size_t figure) {
  double values[SEEDS_MAX];
  for (uint64_t i = 0; i < options.seeds; i++)
    values[i] = value_of(&verdicts[i], figure);
  return median(values, options.seeds);
}

static void report_best(const struct plant *plant, const struct judge_best *best) {
  for (unsigned phase = 0; phase < plant->phase_count; phase++) {
    const char *name = plant->phase_count > 1 ? report_name("%s_best_%u", plant->name, phase + 1)
                                              : report_name("%s_best", plant->name);
    report(name, best->limit[phase], "");
  }
}

static bool is_worse(size_t figure, double value, const struct worst *worst) {
  return !worst->plant || (figures[figure].at_least ? value < worst->value : value > worst->value);
}

static bool is_reached(size_t figure, double value) {
  return figures[figure].at_least ? value >= figures[figure].target : value <= figures[figure].target;
}

static void judge(const struct plant *plant, struct worst *worst) {
  struct judge_verdict verdicts[SEEDS_MAX];
  struct judge_best best;
  judge_find_best(plant, TRIAL_SEED, &best);
  report_best(plant, &best);
  for (uint64_t i = 0; i < options.seeds; i++)
    judge_run(plant, &options.regime, &best, options.seed + i, &verdicts[i]);
  for (size_t figure = 0; figure < FIGURES; figure++) {
    double value = median_of(verdicts, figure);
    report(report_name("%s_%s", plant->name, figures[figure].name), value, "");
    worst[figure].missing += !is_reached(figure, value);
    if (is_worse(figure, value, &worst[figure])) {
      worst[figure].value = value;
      worst[figure].plant = plant->name;
    }
  }
}

/* ---- the program ---- */

static void report_worst(const struct worst *worst) {
  for (size_t i = 0; i < FIGURES; i++) {
    report_verdict(figures[i].name, worst[i].value, figures[i].target, is_reached(i, worst[i].value), true);
    report_text(report_name("%s_plant", figures[i].name), worst[i].plant);
    report(report_name("%s_missing_plants", figures[i].name), worst[i].missing, "");
  }
}

static const char help[] = "usage: bench_aimd [--json] [options]\n"
                           "  --seeds N          (15)\n"
                           "  --seed FIRST       (1)\n"
                           "  --plant NAME       only this one\n"
                           "  --constant PART    this limit instead of the controller's, for comparison\n"
                           "Exit status: 0; 2 usage. Targets are reported, not enforced.\n";

static int read_plant(const char *name, uint64_t *unused) {
  (void)unused;
  options.plant = plant_find(name);
  return options.plant ? 0 : -EINVAL;
}

static int read_constant(const char *text, uint64_t *unused) {
  (void)unused;
  char *rest;
  double part = strtod(text, &rest);
  if (*rest || rest == text || !(part >= 0 && part <= 1))
    return -EINVAL;
  options.regime.controlled = false;
  for (unsigned i = 0; i < PLANT_PHASES; i++)
    options.regime.limit[i] = part;
  return 0;
}

static const struct argument known[] = {
    {"seeds", .number = &options.seeds, .least = 1, .most = SEEDS_MAX},
    {"seed", .number = &options.seed, .most = UINT64_MAX},
    {"plant", .parse = read_plant},
    {"constant", .parse = read_constant},
    {0},
};

int main(int argc, char **argv) {
  struct worst worst[FIGURES] = {0};
  arguments_read(argc, argv, help, known);
  report_begin();
  report("seeds", (double)options.seeds, "");
  report("first_seed", (double)options.seed, "");
  for (unsigned i = 0; i < plant_count; i++)
    if (!options.plant || options.plant == &plants[i])
      judge(&plants[i], worst);
  report_worst(worst);
  report_end();
  return 0;
}
