/* rates.c - see rates.h. */
#include "rates.h"

#include <stdatomic.h>

#include "common/clock.h"
#include "common/futex.h"
#include "common/log.h"

/* What a job may submit that may use the whole GPU for the moment: more than it can, but with a limit little
 * of it is queued, so that production need not wait for that when it comes back. */
#define WHOLE_GPU (GS_LIMIT_WIDE - 1)

#define PERCENT (GS_LIMITED_WHOLE / 100)

static struct rates_job *job_of(struct list *node) {
  return list_entry(list_entry(node, struct rate_job, link), struct rates_job, job);
}

static bool both_are_there(const struct rates *rates) {
  return !list_empty(&rates->gpu.production) && !list_empty(&rates->gpu.opportunistic);
}

/* ---- what the pages say ---- */

/* Its counters tell of the time until then. Of an idle job they are right at any time. */
static uint64_t told_ns(const struct gs_meter *page, const struct rate_counters *last, uint64_t now_ns) {
  uint64_t at_ns = atomic_load(&page->idle) ? now_ns : atomic_load(&page->at_ns);
  if (at_ns > now_ns)
    at_ns = now_ns;
  return at_ns > last->at_ns ? at_ns : last->at_ns;
}

/* Who has never read its page says nothing by it: nobody shall wait for such a job. */
static bool is_silent(const struct gs_meter *page) { return atomic_load(&page->seen_limit) == 0; }

/* Who waits for its turn, or for its memory, loses nothing by those that may submit meanwhile. */
static bool is_away(const struct sched_job *job) { return job->state != GS_JOB_HOLDING || !job->active; }

static void read_page(struct rates_job *job, uint64_t now_ns) {
  struct gs_meter *page = job->meter.page;
  struct rate_counters counters = {.at_ns = told_ns(page, &job->job.now, now_ns),
                                   .submissions = atomic_load(&page->submissions),
                                   .sampled_ns = atomic_load(&page->sampled_ns),
                                   .expected_ns = atomic_load(&page->expected_ns),
                                   .busy_ns = atomic_load(&page->busy_ns),
                                   .service_ns = atomic_load(&page->service_ns),
                                   .served = atomic_load(&page->served),
                                   .waited_ns = atomic_load(&page->waited_ns),
                                   .throttled_ns = atomic_load(&page->throttled_ns),
                                   .idle =
                                       atomic_load(&page->idle) || is_silent(page) || is_away(job->sched)};
  rate_job_tell(&job->job, &counters);
}

/* Returns how many there are. */
static unsigned read_pages(struct list *jobs, uint64_t now_ns) {
  unsigned count = 0;
  list_each(node, jobs) {
    read_page(job_of(node), now_ns);
    count++;
  }
  return count;
}

/* ---- what they are told ---- */

struct word {
  uint64_t limit;
  bool undisturbed, wanted;
};

static void write_page(struct gs_meter *page, const struct word *word) {
  if (atomic_load(&page->limit) == word->limit && atomic_load(&page->undisturbed) == word->undisturbed &&
      atomic_load(&page->wanted) == word->wanted)
    return;
  atomic_store(&page->limit, word->limit);
  atomic_store(&page->undisturbed, word->undisturbed);
  atomic_store(&page->wanted, word->wanted);
  atomic_fetch_add(&page->limit_seq, 1);
  futex_wake_shared(&page->limit_seq, INT32_MAX);
}

/* both: of the classes are there. */
static void tell_job(const struct rates *rates, struct rates_job *job, bool both) {
  bool limited = both && job->class == GS_CLASS_OPPORTUNISTIC;
  uint64_t whole = rates->gpu.wide ? GS_LIMIT_WIDE : WHOLE_GPU;
  uint64_t limit = job->job.limit == RATE_NO_LIMIT ? whole : job->job.limit;
  bool undisturbed = both && !limited && rates->gpu.undisturbed;
  write_page(job->meter.page, &(struct word){limited ? limit : GS_LIMIT_NONE, undisturbed, both});
}

/* The job that is told next; NULL: all have been. Production comes first: it must not believe itself
 * undisturbed once others may go on. */
static struct rates_job *next_told(struct rates *rates) {
  if (rates->telling == &rates->gpu.production)
    rates->telling = rates->gpu.opportunistic.next;
  return rates->telling == &rates->gpu.opportunistic ? NULL : job_of(rates->telling);
}

/* ---- who is there ---- */

/* The first one that works; of those that all rest, the first; 0: there is none. */
static uint32_t find_production(const struct rates *rates) {
  if (list_empty(&rates->gpu.production))
    return 0;
  list_each(node, &rates->gpu.production) {
    if (!signal_is_idle(&job_of(node)->job.signal))
      return job_of(node)->sched->id;
  }
  return job_of(list_first(&rates->gpu.production))->sched->id;
}

void rates_init(struct rates *rates) {
  rate_gpu_init(&rates->gpu);
  rates->next_ns = RATES_NEVER;
  rates->production_id = 0;
  rates->telling = NULL;
  rates->both = false;
}

/* The controller hears at once of who comes, and once more when one of the classes is gone. */
static void begin_ticks(struct rates *rates, uint64_t now_ns) {
  if (rates->next_ns == RATES_NEVER && both_are_there(rates))
    rates->next_ns = now_ns;
}

static void leave_controller(struct rates *rates, struct rates_job *job) {
  if (rates->telling == &job->job.link)
    rates->telling = job->job.link.next;
  rate_job_remove(&rates->gpu, &job->job);
}

static void leave_class(struct rates *rates, struct rates_job *job) {
  if (job->class == GS_CLASS_STANDARD || !job->meter.page)
    return;
  if (job->set_limit)
    rate_disturb(&rates->gpu);
  else
    leave_controller(rates, job);
  write_page(job->meter.page, &(struct word){.limit = GS_LIMIT_NONE});
}

static void enter_set(struct rates *rates, struct rates_job *job) {
  write_page(job->meter.page, &(struct word){.limit = job->set_limit});
  rate_disturb(&rates->gpu);
}

static void enter_controller(struct rates *rates, struct rates_job *job) {
  rate_job_add(&rates->gpu, &job->job,
               job->class == GS_CLASS_PRODUCTION ? RATE_PRODUCTION : RATE_OPPORTUNISTIC);
  tell_job(rates, job, both_are_there(rates));
}

/* Who comes beside production gets nothing before the controller has been asked. For the other jobs nothing
 * changes before the next tick, which is due at once if this is what both classes are there by. */
static void enter_class(struct rates *rates, struct rates_job *job) {
  if (job->class == GS_CLASS_STANDARD || !job->meter.page)
    return;
  if (job->set_limit)
    enter_set(rates, job);
  else
    enter_controller(rates, job);
}

void rates_enter(struct rates_job *job, const struct sched_job *sched) {
  *job = (struct rates_job){.sched = sched, .class = GS_CLASS_STANDARD};
  meter_make(&job->meter);
}

void rates_leave(struct rates *rates, struct rates_job *job, uint64_t now_ns) {
  rates_set_terms(rates, job, &(struct sched_terms){.class = GS_CLASS_STANDARD}, now_ns);
  meter_end(&job->meter);
}

void rates_set_terms(struct rates *rates, struct rates_job *job, const struct sched_terms *terms,
                     uint64_t now_ns) {
  uint64_t set_limit = terms->class == GS_CLASS_OPPORTUNISTIC ? terms->rate_percent * PERCENT : 0;
  if (job->class == terms->class && job->set_limit == set_limit)
    return;
  leave_class(rates, job);
  job->class = terms->class;
  job->set_limit = set_limit;
  enter_class(rates, job);
  rates->production_id = find_production(rates);
  begin_ticks(rates, now_ns);
}

/* ---- time ---- */

static void log_production(const struct rates_job *job) {
  const struct rate_growth *growth = &job->job.growth;
  const struct rate_signal *signal = &job->job.signal;
  struct rate_loss loss = signal_loss(signal, GAUGE_TICKS);
  log_debug("rate: job %u, in %ld us: submissions %ld, service us %ld, busy us %ld, samples us %ld of %ld, "
            "served %ld, waited us %ld, idle %d; ruler %d, "
            "loss ppm %ld, error ppm %ld, ticks %u",
            job->sched->id, (long)(growth->told_ns / 1e3), (long)growth->submissions,
            (long)(growth->service_ns / 1e3), (long)(growth->busy_ns / 1e3), (long)(growth->sampled_ns / 1e3),
            (long)(growth->expected_ns / 1e3), (long)growth->served, (long)(growth->waited_ns / 1e3),
            growth->idle, (int)signal->ruler, (long)(loss.loss * 1e6), (long)(loss.error * 1e6), loss.ticks);
}

/* What the controller has seen, and done. */
static void log_tick(const struct rates *rates) {
  if (log_level() < LOG_LEVEL_DEBUG)
    return;
  log_debug("rate: at %llu us: state %d, reason %d, limit ppm %ld",
            (unsigned long long)rates->gpu.last_ns / 1000, (int)rates->gpu.state, (int)rates->gpu.reason,
            (long)(rates->gpu.limit / 1e3));
  list_each(node, &rates->gpu.production) { log_production(job_of(node)); }
}

uint64_t rates_deadline_ns(const struct rates *rates) { return rates->next_ns; }

/* Returns how many jobs it has looked at. */
static unsigned tick(struct rates *rates, uint64_t now_ns) {
  unsigned jobs = read_pages(&rates->gpu.production, now_ns);
  jobs += read_pages(&rates->gpu.opportunistic, now_ns);
  rate_tick(&rates->gpu, now_ns);
  rates->production_id = find_production(rates);
  log_tick(rates);
  rates->both = both_are_there(rates);
  rates->telling = rates->gpu.production.next;
  return jobs;
}

/* After the last tick both classes may have come again. */
static void end_tick(struct rates *rates, uint64_t now_ns) {
  rates->telling = NULL;
  rates->next_ns = rates->both ? rates->gpu.next_ns : RATES_NEVER;
  begin_ticks(rates, now_ns);
}

unsigned rates_on_time(struct rates *rates, uint64_t now_ns, rates_told_f *told) {
  struct rates_job *job = NULL;
  unsigned jobs = 0;
  if (now_ns < rates->next_ns)
    return 0;
  if (!rates->telling)
    return 1 + tick(rates, now_ns);
  while (jobs < RATES_SLICE && (job = next_told(rates))) {
    rates->telling = rates->telling->next;
    tell_job(rates, job, rates->both || both_are_there(rates));
    told(job, now_ns);
    jobs++;
  }
  if (!job)
    end_tick(rates, now_ns);
  return 1 + jobs;
}

/* ---- figures ---- */

static enum gs_limited why_limited(const struct rate_gpu *gpu) {
  switch (gpu->state) {
  case RATE_CHECKING:
    return gpu->reason == RATE_CROWD ? GS_LIMITED_CROWD : GS_LIMITED_LOOK;
  case RATE_MEASURING:
    return gpu->reason == RATE_NO_SIGNAL ? GS_LIMITED_BLIND : GS_LIMITED_MEASURE;
  case RATE_SLOW_START:
    return GS_LIMITED_GROWS;
  case RATE_STEADY:
    return GS_LIMITED_FOUND;
  default:
    return GS_LIMITED_IDLE;
  }
}

uint32_t rates_leftover_percent(const struct rates *rates) {
  double percent = rates->gpu.limit / (double)PERCENT;
  bool rests = rates->gpu.state == RATE_FREE && rates->gpu.reason == RATE_PRODUCTION_IDLE;
  bool found = rates->gpu.started && !rests;
  bool known = !list_empty(&rates->gpu.production) && found && percent > 0;
  return known && percent < 100 ? (uint32_t)percent : 100;
}

struct rates_limit rates_limit(const struct rates *rates, const struct rates_job *job) {
  if (job->set_limit && job->meter.page)
    return (struct rates_limit){
        .why = GS_LIMITED_SET, .limit = job->set_limit, .production = rates->production_id};
  bool limited = job->class == GS_CLASS_OPPORTUNISTIC && job->meter.page && both_are_there(rates);
  if (!limited)
    return (struct rates_limit){.why = GS_LIMITED_NOT, .limit = GS_LIMITED_WHOLE};
  uint64_t limit = job->job.limit;
  return (struct rates_limit){.why = why_limited(&rates->gpu),
                              .limit = limit < GS_LIMITED_WHOLE ? limit : GS_LIMITED_WHOLE,
                              .production = rates->production_id};
}
