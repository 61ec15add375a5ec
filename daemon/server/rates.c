/* rates.c - see rates.h. */
#include "server/rates.h"

#include "common/log.h"

#define PPM_PER_PERCENT (GS_SHARE_ALL / 100)
#define NS_PER_PPM (GS_LIMITED_WHOLE / GS_SHARE_ALL)
#define AGAIN_NS UINT64_C(100000000)
#define SLICE_MOST_US 1000000u
#define SLICE_US 2048 /* the driver's own: of weight GS_WEIGHT_DEFAULT */

#define each_guest(job, rates)                                                                               \
  for (struct rates_job *job = list_entry((rates)->guests.next, struct rates_job, guest_link);               \
       &job->guest_link != &(rates)->guests;                                                                 \
       job = list_entry(job->guest_link.next, struct rates_job, guest_link))

static const struct rates_job *of_production(struct list *node) {
  return list_entry(list_entry(node, struct rate_job, link), struct rates_job, job);
}

static bool both_are_there(const struct rates *rates) {
  return rates->gpu.production_count > 0 && rates->opportunistic_count > 0;
}

/* Who waits for its turn, or for its memory, loses nothing by those that may submit meanwhile. */
static bool holds(const struct rates_job *job) {
  return job->sched->state == GS_JOB_HOLDING && job->sched->active;
}

/* ---- shares ---- */

/* In the ratio of the weights, of what one of the usual weight has. */
static uint32_t weighted_us(uint64_t us, const struct sched_job *sched) {
  us = us * sched->terms.weight / GS_WEIGHT_DEFAULT;
  return (uint32_t)(us < 1 ? 1 : us < SLICE_MOST_US ? us : SLICE_MOST_US);
}

static uint32_t share_ppm(const struct rates *rates, const struct rates_job *job) {
  if (job->set_percent)
    return job->set_percent * PPM_PER_PERCENT;
  bool limited = job->class == GS_CLASS_OPPORTUNISTIC && rates->gpu.state != RATE_FREE;
  return !limited ? GS_SHARE_ALL : rates->gpu.state == RATE_TRIAL ? job->part_ppm : 0;
}

/* By the controller. */
static bool is_limited(const struct rates_job *job) {
  return job->class == GS_CLASS_OPPORTUNISTIC && !job->set_percent;
}

static struct rates_share share_of(const struct rates *rates, const struct rates_job *job) {
  struct rates_share share = {.share_ppm = share_ppm(rates, job), .watch = GS_WATCH_NOT};
  if (!both_are_there(rates)) { /* where turns are taken, too: several jobs may hold at a time */
    uint32_t us = weighted_us(SLICE_US, job->sched);
    share.slice_us = us == SLICE_US ? 0 : us;
    return share;
  }
  if (job->class == GS_CLASS_PRODUCTION || is_limited(job))
    share.watch = job->class == GS_CLASS_PRODUCTION ? GS_WATCH_PROGRESS : GS_WATCH_WORK;
  share.slice_us = job->class == GS_CLASS_OPPORTUNISTIC
                       ? rate_slice_us(&rates->gpu)
                       : weighted_us(rate_long_slice_us(&rates->gpu), job->sched);
  return share;
}

/* Until it says that it has no work, an opportunistic job has some. */
static void note_work(struct rates *rates, struct rates_job *job, uint64_t now_ns) {
  bool works = is_limited(job) && holds(job) && !job->rests;
  if (works == job->works)
    return;
  job->works = works;
  rates->working_count += works ? 1u : -1u;
  rate_guests_work(&rates->gpu, rates->working_count > 0, now_ns);
}

static void tell(struct rates *rates, struct rates_job *job, uint64_t now_ns) {
  struct rates_share share = share_of(rates, job), told = job->told;
  if (share.share_ppm == told.share_ppm && share.slice_us == told.slice_us && share.watch == told.watch)
    return;
  job->told = share;
  if (rates->tell(job, now_ns)) {
    job->rests &= share.watch == told.watch; /* else it says anew whether it works */
    note_work(rates, job, now_ns);
    return;
  }
  job->told = told; /* each replaces the one before, so none is lost by waiting */
  rates->again_ns = now_ns + AGAIN_NS;
}

/* Those that have the GPU share a trial: by their slices, where all of the time is theirs and slices hold.
 * Who comes later waits for the next one: so a trial has one level. */
static void divide(struct rates *rates) {
  unsigned count = 0;
  each_guest(job, rates) { count += holds(job); }
  bool apart = count > 0 && (rate_duty(&rates->gpu) < 1 || !rates->gpu.bounded);
  double part = rate_duty(&rates->gpu) / (apart ? count : 1);
  each_guest(job, rates) { job->part_ppm = holds(job) ? (uint32_t)(part * GS_SHARE_ALL) : 0; }
}

/* One that works; or any. */
static uint32_t find_production(const struct rates *rates) {
  const struct rates_job *found = NULL;
  list_each(node, &rates->gpu.production) {
    const struct rates_job *job = of_production(node);
    if (job->job.active)
      return job->sched->id;
    found = found ? found : job;
  }
  return found ? found->sched->id : 0;
}

/* Round and round: whoever has not been told for longest is next. */
static void tell_some(struct rates *rates, uint64_t now_ns) {
  for (unsigned count = 0; count < RATES_SLICE && rates->untold > 0; count++, rates->untold--) {
    if (rates->next == &rates->jobs)
      rates->next = rates->jobs.next;
    struct rates_job *job = list_entry(rates->next, struct rates_job, link);
    rates->next = rates->next->next;
    tell(rates, job, now_ns);
  }
}

/* Per mille. */
static void log_step(const struct rates *rates) {
  const struct rate_gpu *gpu = &rates->gpu;
  log_debug("rate: state %d, level %ld, pairs %u, for job %u", (int)gpu->state, (long)(gpu->level * 1e3),
            gpu->pairs, rates->production_id);
  list_each(node, &gpu->production) {
    const struct rates_job *job = of_production(node);
    if (job->job.active && (gpu->state == RATE_CONTROL || gpu->state == RATE_TRIAL))
      log_debug("rate: job %u loses %ld in %u pairs; control %ld, trial %ld submissions/s", job->sched->id,
                (long)(job->job.mean * 1e3), job->job.pairs, (long)job->job.control, (long)job->job.trial);
  }
}

static void tell_all(struct rates *rates, uint64_t now_ns) {
  rates->changes = rates->gpu.changes;
  rates->production_id = find_production(rates);
  if (rates->gpu.state == RATE_TRIAL)
    divide(rates);
  if (log_level() >= LOG_LEVEL_DEBUG)
    log_step(rates);
  rates->untold = rates->job_count;
  tell_some(rates, now_ns);
}

static void tell_changes(struct rates *rates, uint64_t now_ns) {
  if (rates->changes != rates->gpu.changes)
    tell_all(rates, now_ns);
}

/* ---- who is there ---- */

void rates_init(struct rates *rates, rates_tell_f *tell_f) {
  *rates = (struct rates){.tell = tell_f, .again_ns = RATE_NEVER};
  rate_gpu_init(&rates->gpu);
  rate_guests_work(&rates->gpu, false, 0);
  list_init(&rates->jobs);
  rates->next = &rates->jobs;
  list_init(&rates->guests);
}

static bool is_unsliced(const struct rates_job *job) {
  return job->class != GS_CLASS_STANDARD && !job->sliced;
}

void rates_enter(struct rates *rates, struct rates_job *job, const struct sched_job *sched) {
  *job = (struct rates_job){.sched = sched, .class = GS_CLASS_STANDARD, .told = RATES_SHARE_NONE};
  list_init(&job->guest_link);
  list_append(&rates->jobs, &job->link);
  rates->job_count++;
  rates->untold += rates->untold > 0; /* it has come into the round */
}

static void set_class(struct rates *rates, struct rates_job *job, enum gs_class class, uint32_t percent,
                      uint64_t now_ns) {
  bool both = both_are_there(rates);
  rates->unsliced_count -= is_unsliced(job);
  if (job->class == GS_CLASS_PRODUCTION)
    rate_job_remove(&rates->gpu, &job->job, now_ns);
  list_remove(&job->guest_link);
  rates->opportunistic_count -= job->class == GS_CLASS_OPPORTUNISTIC;
  job->class = class;
  job->set_percent = percent;
  job->part_ppm = 0;
  rates->unsliced_count += is_unsliced(job);
  rate_set_bounded(&rates->gpu, rates->unsliced_count == 0);
  if (class == GS_CLASS_PRODUCTION)
    rate_job_add(&rates->gpu, &job->job, holds(job), now_ns);
  else if (is_limited(job))
    list_append(&rates->guests, &job->guest_link);
  rates->opportunistic_count += class == GS_CLASS_OPPORTUNISTIC;
  note_work(rates, job, now_ns);
  rate_set_guests(&rates->gpu, rates->opportunistic_count > 0, now_ns);
  rates->production_id = find_production(rates);
  if (both != both_are_there(rates))
    tell_all(rates, now_ns);
}

void rates_leave(struct rates *rates, struct rates_job *job, uint64_t now_ns) {
  if (rates->next == &job->link)
    rates->next = job->link.next;
  list_remove(&job->link);
  rates->job_count--;
  rates->untold = rates->untold < rates->job_count ? rates->untold : rates->job_count;
  set_class(rates, job, GS_CLASS_STANDARD, 0, now_ns);
  tell_changes(rates, now_ns);
}

void rates_set_terms(struct rates *rates, struct rates_job *job, const struct sched_terms *terms,
                     uint64_t now_ns) {
  uint32_t percent = terms->class == GS_CLASS_OPPORTUNISTIC ? terms->rate_percent : 0;
  if (job->class != terms->class || job->set_percent != percent)
    set_class(rates, job, terms->class, percent, now_ns);
  tell_changes(rates, now_ns);
  tell(rates, job, now_ns);
}

/* ---- what happens ---- */

void rates_on_state(struct rates *rates, struct rates_job *job, uint64_t now_ns) {
  if (!job->sched)
    return;
  if (job->class == GS_CLASS_PRODUCTION && job->job.holds != holds(job))
    rate_job_holds(&rates->gpu, &job->job, holds(job), now_ns);
  note_work(rates, job, now_ns);
  tell_changes(rates, now_ns);
  tell(rates, job, now_ns);
}

void rates_on_sliced(struct rates *rates, struct rates_job *job, bool sliced, uint64_t now_ns) {
  if (!job->sched || job->sliced == sliced)
    return;
  rates->unsliced_count -= is_unsliced(job);
  job->sliced = sliced;
  rates->unsliced_count += is_unsliced(job);
  rate_set_bounded(&rates->gpu, rates->unsliced_count == 0);
  tell_changes(rates, now_ns);
}

void rates_on_progress(struct rates *rates, struct rates_job *job, const struct rate_progress *progress,
                       uint64_t now_ns) {
  job->rests = !progress->active;
  note_work(rates, job, now_ns);
  if (job->class == GS_CLASS_PRODUCTION)
    rate_progress(&rates->gpu, &job->job, progress, now_ns);
  tell_changes(rates, now_ns);
}

uint64_t rates_deadline_ns(const struct rates *rates) {
  uint64_t due_ns = rates->gpu.until_ns < rates->again_ns ? rates->gpu.until_ns : rates->again_ns;
  return rates->untold > 0 ? 0 : due_ns;
}

void rates_on_time(struct rates *rates, uint64_t now_ns) {
  if (now_ns >= rates->again_ns) {
    rates->again_ns = RATE_NEVER;
    rates->untold = rates->job_count;
  }
  if (rates->untold > 0) {
    tell_some(rates, now_ns);
    return;
  }
  rate_on_time(&rates->gpu, now_ns);
  tell_changes(rates, now_ns);
}

/* ---- figures ---- */

static enum gs_limited why_limited(const struct rate_gpu *gpu) {
  static const enum gs_limited whys[] = {[RATE_FREE] = GS_LIMITED_IDLE,
                                         [RATE_SETTLING] = GS_LIMITED_BACK,
                                         [RATE_CONTROL] = GS_LIMITED_LOOK,
                                         [RATE_TRIAL] = GS_LIMITED_GROWS,
                                         [RATE_CROWDED] = GS_LIMITED_CROWD};
  return gpu->state == RATE_TRIAL && gpu->found ? GS_LIMITED_FOUND : whys[gpu->state];
}

struct rates_limit rates_limit(const struct rates *rates, const struct rates_job *job) {
  struct rates_limit limit = {.why = GS_LIMITED_NOT, .limit = GS_LIMITED_WHOLE};
  if (job->class != GS_CLASS_OPPORTUNISTIC || (!job->set_percent && !both_are_there(rates)))
    return limit;
  limit.why = job->set_percent ? GS_LIMITED_SET : why_limited(&rates->gpu);
  limit.limit = share_ppm(rates, job) * NS_PER_PPM;
  limit.production = rates->production_id;
  return limit;
}

uint32_t rates_leftover_percent(const struct rates *rates) {
  const struct rate_gpu *gpu = &rates->gpu;
  bool known = gpu->production_count > 0 && gpu->state != RATE_FREE && (gpu->found || gpu->tried);
  return known ? (uint32_t)(100 * rate_level_duty(gpu)) : 100;
}
