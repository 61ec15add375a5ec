/* plant.c - the GPU's time, step by step, and the guests' token buckets. */
#include "plants/plant.h"

#include <math.h>
#include <string.h>

#define STEP_S 0.0001
#define SLICE_S 0.002
#define SMOOTHING_S 0.01 /* PLANT_TOGETHER: use is meant over such a time */
#define KERNEL_S 0.0005  /* of guests */
#define BURST_S 0.002
#define IN_FLIGHT_S 0.004
#define WIDE_S 0.01    /* likewise, of those that have no limit once production has rested for long */
#define TOLD_EVERY 100 /* steps: programs bring their counters up to date every 10 ms */
#define PARTIES (PLANT_WORKERS + PLANT_GUESTS)

struct guest {
  double tokens_s, wish_s, queued_s;
  double limit; /* of the GPU; below 0: none */
  double demand, kernel_s, done_s, throttled_s;
  struct rate_counters counters;
};

struct run {
  const struct plant *plant;
  const struct plant_regime *regime;
  const struct plant_phase *phase;
  struct worker workers[PLANT_WORKERS];
  struct rate_counters told[PLANT_WORKERS];
  struct guest guests[PLANT_GUESTS];
  unsigned owner; /* PLANT_SLICES: workers first, then guests */
  double slice_end_s;
  double use; /* PLANT_TOGETHER */
  struct rate_gpu gpu;
  struct rate_job worker_jobs[PLANT_WORKERS], guest_jobs[PLANT_GUESTS];
};

/* ---- guests ---- */

static void guest_submit(struct guest *guest, bool wide, double step_s) {
  double kernel_s = guest->kernel_s, in_flight_s = fmax(wide ? WIDE_S : IN_FLIGHT_S, kernel_s);
  double burst_s = fmax(BURST_S, kernel_s);
  guest->wish_s = fmin(guest->wish_s + guest->demand * step_s, in_flight_s);
  guest->tokens_s = guest->limit < 0 ? burst_s : fmin(guest->tokens_s + guest->limit * step_s, burst_s);
  bool throttled = false;
  while (!throttled && guest->wish_s >= kernel_s && guest->queued_s + kernel_s <= in_flight_s) {
    throttled = guest->limit == 0 || guest->tokens_s < kernel_s;
    if (throttled)
      break;
    guest->tokens_s -= guest->limit < 0 ? 0 : kernel_s;
    guest->wish_s -= kernel_s;
    guest->queued_s += kernel_s;
    guest->counters.submissions++;
  }
  guest->throttled_s += throttled ? step_s : 0;
}

static double guest_advance(struct guest *guest, double time_s) {
  double used_s = fmin(time_s, guest->queued_s);
  guest->queued_s -= used_s;
  guest->done_s += used_s;
  return used_s;
}

static void guest_count(struct guest *guest) {
  guest->counters.busy_ns = (uint64_t)(guest->done_s * 1e9);
  guest->counters.throttled_ns = (uint64_t)(guest->throttled_s * 1e9);
  guest->counters.idle = guest->queued_s <= 0;
}

/* ---- one process at a time ---- */

static bool wants(const struct run *run, unsigned party) {
  return party < PLANT_WORKERS ? party < run->plant->workers && worker_wants_gpu(&run->workers[party])
                               : run->guests[party - PLANT_WORKERS].queued_s > 0;
}

static unsigned next_owner(const struct run *run) {
  for (unsigned i = 1; i <= PARTIES; i++)
    if (wants(run, (run->owner + i) % PARTIES))
      return (run->owner + i) % PARTIES;
  return run->owner;
}

static void step_slices(struct run *run, double now_s) {
  if (!wants(run, run->owner) || now_s >= run->slice_end_s) {
    run->owner = next_owner(run);
    run->slice_end_s = now_s + SLICE_S;
  }
  for (unsigned i = 0; i < run->plant->workers; i++)
    worker_advance(&run->workers[i], now_s, STEP_S, run->owner == i ? 1 : 0);
  if (run->owner >= PLANT_WORKERS)
    guest_advance(&run->guests[run->owner - PLANT_WORKERS], STEP_S);
}

/* ---- all at the same time ---- */

static void step_together(struct run *run, double now_s) {
  double excess = fmax(run->use - run->phase->leftover, 0), used_s = 0;
  for (unsigned i = 0; i < run->plant->workers; i++)
    worker_advance(&run->workers[i], now_s, STEP_S, fmax(1 - run->phase->slope * excess, 0.05));
  for (unsigned i = 0; i < run->plant->guests && used_s < STEP_S; i++)
    used_s += guest_advance(&run->guests[(run->owner + i) % run->plant->guests], STEP_S - used_s);
  run->owner++;
  run->use += (used_s / STEP_S - run->use) * STEP_S / SMOOTHING_S;
}

/* ---- limits ---- */

static double as_part(uint64_t limit) { return limit == RATE_NO_LIMIT ? -1 : (double)limit / 1e9; }

static void tell(const struct run *run, double now_s, plant_watch_fn watch, void *context) {
  bool back = run->gpu.state == RATE_CHECKING && run->gpu.reason == RATE_PRODUCTION_BACK;
  struct plant_tick tick = {.now_s = now_s,
                            .limited = !run->regime->controlled || (run->gpu.state != RATE_FREE && !back),
                            .state = run->gpu.state,
                            .reason = run->gpu.reason};
  for (unsigned i = 0; i < run->plant->guests; i++) {
    tick.guest_limit[i] = run->guests[i].limit < 0 ? 1 : run->guests[i].limit;
    tick.limit += tick.guest_limit[i];
  }
  tick.limit = fmin(tick.limit, 1);
  watch(context, &tick);
}

static void control(struct run *run, double now_s) {
  for (unsigned i = 0; i < run->plant->workers; i++)
    rate_job_tell(&run->worker_jobs[i], &run->told[i]);
  for (unsigned i = 0; i < run->plant->guests; i++) {
    guest_count(&run->guests[i]);
    rate_job_tell(&run->guest_jobs[i], &run->guests[i].counters);
  }
  rate_tick(&run->gpu, (uint64_t)(now_s * 1e9) + 1);
  for (unsigned i = 0; i < run->plant->guests; i++)
    run->guests[i].limit = as_part(run->guest_jobs[i].limit);
}

static bool all_rest(const struct run *run) {
  for (unsigned i = 0; i < run->plant->workers; i++)
    if (!worker_rests(&run->workers[i]))
      return false;
  return true;
}

static void impose(struct run *run) {
  double limit = run->regime->limit[run->phase - run->plant->phases];
  for (unsigned i = 0; i < run->plant->guests; i++)
    run->guests[i].limit =
        run->regime->free_in_rests && all_rest(run) ? -1 : limit / (double)run->plant->guests;
}

/* That it is no longer idle a program says at once. */
static void tell_counters(struct run *run, unsigned step, double now_s) {
  for (unsigned i = 0; i < run->plant->workers; i++) {
    if ((step + 37 * i) % TOLD_EVERY == 0) {
      run->told[i] = run->workers[i].counters;
      run->told[i].at_ns = (uint64_t)(now_s * 1e9);
    }
    run->told[i].idle &= run->workers[i].counters.idle;
  }
}

/* ---- a run ---- */

static void set_up(struct run *run, uint64_t seed) {
  rate_gpu_init(&run->gpu);
  for (unsigned i = 0; i < run->plant->workers; i++) {
    worker_init(&run->workers[i], &run->phase->workers[i], seed * PLANT_WORKERS + i);
    rate_job_add(&run->gpu, &run->worker_jobs[i], RATE_PRODUCTION);
  }
  for (unsigned i = 0; i < run->plant->guests; i++) {
    run->guests[i].kernel_s = run->plant->kernel_s > 0 ? run->plant->kernel_s : KERNEL_S;
    run->guests[i].demand = run->plant->demand[i] > 0 ? run->plant->demand[i] : 1;
    rate_job_add(&run->gpu, &run->guest_jobs[i], RATE_OPPORTUNISTIC);
  }
}

static void change_phase(struct run *run, double now_s) {
  const struct plant_phase *next = run->phase + 1;
  if (next == run->plant->phases + run->plant->phase_count || now_s < next->from_s)
    return;
  run->phase = next;
  for (unsigned i = 0; i < run->plant->workers; i++)
    worker_change(&run->workers[i], &next->workers[i]);
}

static void step(struct run *run, double now_s) {
  change_phase(run, now_s);
  for (unsigned i = 0; i < run->plant->guests; i++)
    guest_submit(&run->guests[i], run->gpu.wide, STEP_S);
  if (run->plant->sharing == PLANT_SLICES)
    step_slices(run, now_s);
  else
    step_together(run, now_s);
}

static void put_out(const struct run *run, struct plant_outcome *outcome) {
  memset(outcome, 0, sizeof *outcome);
  for (unsigned i = 0; i < run->plant->workers; i++) {
    outcome->own_s[i] = run->workers[i].own_s;
    outcome->worked_s[i] = run->workers[i].worked_s;
  }
  for (unsigned i = 0; i < run->plant->guests; i++)
    outcome->harvested_s[i] = run->guests[i].done_s;
}

void plant_run(const struct plant *plant, const struct plant_regime *regime, double from_s, double to_s,
               uint64_t seed, plant_watch_fn watch, void *context, struct plant_outcome *outcome) {
  struct run run = {.plant = plant, .regime = regime, .phase = plant->phases};
  while (run.phase + 1 < plant->phases + plant->phase_count && run.phase[1].from_s <= from_s)
    run.phase++;
  set_up(&run, seed);
  for (unsigned i = 0; from_s + i * STEP_S < to_s; i++) {
    double now_s = from_s + i * STEP_S;
    tell_counters(&run, i, now_s);
    bool is_tick = (uint64_t)(now_s * 1e9) >= run.gpu.next_ns;
    if (!regime->controlled)
      impose(&run);
    if (is_tick && regime->controlled)
      control(&run, now_s);
    else if (is_tick)
      run.gpu.next_ns += RATE_PERIOD_MOST_NS;
    if (is_tick && watch)
      tell(&run, now_s, watch, context);
    step(&run, now_s);
  }
  put_out(&run, outcome);
}

double plant_loss(const struct plant *plant, const struct plant_outcome *outcome) {
  double worst = 0;
  for (unsigned i = 0; i < plant->workers; i++)
    if (outcome->worked_s[i] > 0)
      worst = fmax(worst, 1 - outcome->own_s[i] / outcome->worked_s[i]);
  return worst;
}

double plant_harvest_s(const struct plant *plant, const struct plant_outcome *outcome) {
  double sum_s = 0;
  for (unsigned i = 0; i < plant->guests; i++)
    sum_s += outcome->harvested_s[i];
  return sum_s;
}
