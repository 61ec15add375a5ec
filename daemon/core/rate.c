/* rate.c - see rate.h: what production's progress says in windows with and without others becomes a level. */
#include "core/rate.h"

#include <math.h>

#define LEAD_NS UINT64_C(10000000) /* of a stretch: until others have stopped, or are under way */
#define CONTROL_NS UINT64_C(100000000)
#define TRIAL_NS UINT64_C(400000000)
#define CONTROL_FOUND_NS UINT64_C(150000000)
#define TRIAL_FOUND_NS UINT64_C(1200000000)
#define LONG_NS UINT64_C(2500000000) /* then whole iterations do not matter */

#define PAIRS_MOST 8
#define LOSS_LEAST (-0.5)
#define LOSS_MOST 0.9
#define USED_PART 4 /* of a trial in which opportunistic jobs must work; else nothing was tried */
#define SHOCK 0.2   /* one loss like that is enough; between two controls: production has changed by itself */
#define SURE 1.5    /* errors by which a loss is one; one is enough to believe that there is none */
#define SHOCK_ERRORS 4.0
#define NOISE 0.015 /* of one pair, until it is known: counts as one observation */
#define NOISE_LEAST 0.002
#define FREEDOM_MOST 16 /* observations of noise, the older ones by half */
#define STRIDE 2.0      /* slow start */
#define STEP 1.25       /* after it; */
#define STEP_MOST 0.05  /* but no more than this */
#define FALL_MOST 0.25
#define FALL_LEAST 0.9

#define ACTIVE_MOST (UINT64_C(1) << 62)
#define LATE_NS UINT64_C(100000000) /* a message may be so late beside another */
#define SUBMISSIONS_PER_US UINT64_C(10)

#define each_job(job, gpu)                                                                                   \
  for (struct rate_job *job = list_entry((gpu)->production.next, struct rate_job, link);                     \
       &job->link != &(gpu)->production; job = list_entry(job->link.next, struct rate_job, link))

static void enter(struct rate_gpu *gpu, enum rate_state state, uint64_t until_ns) {
  gpu->state = state;
  gpu->until_ns = until_ns;
  gpu->changes++;
}

/* ---- what a window sees ---- */

static void note(struct rate_span *span, uint64_t from_ns, uint64_t submissions, uint64_t active_ns) {
  if (active_ns < from_ns || (span->points && active_ns <= span->last_ns))
    return;
  if (!span->points) {
    span->first_submissions = submissions;
    span->first_ns = active_ns;
  }
  span->last_submissions = submissions;
  span->last_ns = active_ns;
  span->points = span->points ? 2 : 1;
}

static uint64_t length_ns(const struct rate_span *span) { return span->last_ns - span->first_ns; }

/* It works in iterations that can be told apart. */
static bool is_marked(const struct rate_job *job) {
  return job->marked_ns && job->last.active_ns - job->marked_ns <= RATE_WINDOW_MOST_NS;
}

/* Whole iterations where there are such, for any part of one may be as full or empty as can be. */
static const struct rate_span *span_of(const struct rate_job *job) {
  static const struct rate_span none;
  if (job->marks.points > 1)
    return &job->marks;
  return is_marked(job) && length_ns(&job->reports) < LONG_NS ? &none : &job->reports;
}

static bool has_enough(const struct rate_job *job, uint64_t least_ns) {
  return !job->active || job->spoilt ||
         3 * (job->time_s * 1e9 + (double)length_ns(span_of(job))) >= (double)least_ns;
}

static void count_use(struct rate_gpu *gpu, uint64_t now_ns) {
  gpu->used_ns += gpu->guests_work ? now_ns - gpu->used_to_ns : 0;
  gpu->used_to_ns = now_ns;
}

static void end_stretch(struct rate_gpu *gpu, uint64_t now_ns) {
  count_use(gpu, now_ns);
  gpu->spent_ns += now_ns - gpu->stretch_ns;
  each_job(job, gpu) {
    const struct rate_span *span = span_of(job);
    job->work += (double)(span->last_submissions - span->first_submissions);
    job->time_s += (double)length_ns(span) / 1e9;
    job->reports = job->marks = (struct rate_span){0};
  }
}

static void begin_stretch(struct rate_gpu *gpu, uint64_t now_ns) {
  gpu->stretch_ns = gpu->used_to_ns = now_ns;
  each_job(job, gpu) {
    job->from_ns = job->last.active_ns + LEAD_NS + (job->active ? now_ns - job->heard_ns : 0);
    job->reports = job->marks = (struct rate_span){0};
  }
  uint64_t left_ns = gpu->least_ns > gpu->spent_ns ? gpu->least_ns - gpu->spent_ns : 0;
  enter(gpu, gpu->trial ? RATE_TRIAL : RATE_CONTROL, now_ns + left_ns);
}

/* Never the same length twice: what production does in step with windows would look steady, and other than it
 * is. */
static void begin_window(struct rate_gpu *gpu, bool trial) {
  uint64_t ns = trial ? gpu->found ? TRIAL_FOUND_NS : TRIAL_NS : gpu->found ? CONTROL_FOUND_NS : CONTROL_NS;
  gpu->random = gpu->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  gpu->least_ns = ns + ns / 2 * (gpu->random >> 32) / UINT32_MAX;
  gpu->trial = trial;
  gpu->spent_ns = gpu->used_ns = 0;
  each_job(job, gpu) {
    job->spoilt = false;
    job->work = job->time_s = 0;
  }
}

static double rate_of(const struct rate_job *job) {
  return job->spoilt || job->time_s <= 0 ? -1 : job->work / job->time_s;
}

/* ---- what pairs of windows say ---- */

/* Of one pair; and of the mean of all. */
static double deviation_of(const struct rate_job *job) {
  double freedom = job->noise_freedom + (job->pairs > 0 ? job->pairs - 1 : 0);
  return fmax(sqrt((job->noise + job->squares) / freedom), NOISE_LEAST);
}

static double error_of(const struct rate_job *job) { return deviation_of(job) / sqrt(job->pairs); }

static void forget_pairs(struct rate_gpu *gpu) {
  gpu->pairs = 0;
  each_job(job, gpu) {
    job->noise += job->squares;
    job->noise_freedom += job->pairs > 0 ? job->pairs - 1 : 0;
    if (job->noise_freedom > FREEDOM_MOST) {
      job->noise /= 2;
      job->noise_freedom /= 2;
    }
    job->pairs = 0;
    job->mean = job->squares = 0;
    job->trial = -1;
    job->shocked = false;
  }
}

/* A trial between two controls: a drift of production's own speed cancels out. If these differ much it is
 * another phase. */
static void take_pair(struct rate_job *job, double after) {
  double before = job->control;
  if (before <= 0 || after <= 0 || job->trial < 0 || fabs(after / before - 1) > SHOCK)
    return;
  double loss = fmin(fmax(1 - 2 * job->trial / (before + after), LOSS_LEAST), LOSS_MOST);
  job->shocked |= loss > fmax(SHOCK, SHOCK_ERRORS * deviation_of(job));
  double away = loss - job->mean;
  job->mean += away / ++job->pairs;
  job->squares += away * (loss - job->mean);
}

/* ---- the level ---- */

static void set_level(struct rate_gpu *gpu, double level) {
  gpu->level = fmin(fmax(level, RATE_LEVEL_LEAST), 1);
  gpu->found |= gpu->level >= 1;
  forget_pairs(gpu);
}

#define RATIOS ((double)RATE_LONG_SLICE_US / RATE_SLICE_LEAST_US)

/* The duty times so much, or the ratio of the slices; never past the knee in one step. */
static double scaled(double level, double factor) {
  double more = log(factor) * (1 - RATE_LEVEL_KNEE) / log(RATIOS);
  if (level > RATE_LEVEL_KNEE || (level >= RATE_LEVEL_KNEE && factor > 1))
    return fmax(level + more, RATE_LEVEL_KNEE);
  return fmin(level * factor, RATE_LEVEL_KNEE);
}

static void increase(struct rate_gpu *gpu) {
  if (!gpu->found)
    set_level(gpu, scaled(gpu->level, STRIDE));
  else
    set_level(gpu, fmin(scaled(gpu->level, STEP), gpu->level + STEP_MOST));
}

static void decrease(struct rate_gpu *gpu, double loss) {
  double factor = loss > RATE_AIM ? RATE_AIM / loss : RATE_AIM / SHOCK;
  gpu->found = true;
  set_level(gpu, scaled(gpu->level, fmin(fmax(factor, FALL_MOST), FALL_LEAST)));
}

/* Another pair is complete. The job that loses most decides. Where so many pairs do not tell, their mean
 * does; or, if even that tells nothing, others get little. */
static void decide(struct rate_gpu *gpu) {
  bool known = false, loses = false, keeps = true;
  double worst = -1, surely = -1, error = 0;
  gpu->pairs++;
  each_job(job, gpu) {
    if (!job->pairs) {
      keeps &= !job->active;
      continue;
    }
    double own = error_of(job);
    known = true;
    surely = fmax(surely, job->mean - SURE * own);
    loses |= job->mean - SURE * own > RATE_AIM || job->shocked;
    keeps &= job->mean + own < RATE_AIM;
    error = job->mean > worst ? own : error;
    worst = fmax(worst, job->mean);
  }
  if (loses)
    decrease(gpu, gpu->found ? surely : worst); /* at first it may be far too much */
  else if (known && keeps)
    increase(gpu);
  else if (gpu->pairs >= PAIRS_MOST && (!known || error > RATE_TOLERANCE))
    set_level(gpu, RATE_LEVEL_UNSURE);
  else if (gpu->pairs >= PAIRS_MOST && worst > RATE_AIM)
    decrease(gpu, worst);
  else if (gpu->pairs >= PAIRS_MOST)
    increase(gpu);
}

static void end_window(struct rate_gpu *gpu, uint64_t now_ns) {
  end_stretch(gpu, now_ns);
  bool used = gpu->used_ns >= gpu->spent_ns / USED_PART;
  each_job(job, gpu) {
    if (gpu->trial) {
      job->trial = used ? rate_of(job) : -1;
      continue;
    }
    take_pair(job, rate_of(job));
    job->control = rate_of(job);
    job->trial = -1;
  }
  if (!gpu->trial && gpu->tried)
    decide(gpu);
  gpu->tried = gpu->trial && used;
  begin_window(gpu, !gpu->trial);
  begin_stretch(gpu, now_ns);
}

/* All that shall be seen has been; or it takes too long. */
static void end_window_if_due(struct rate_gpu *gpu, uint64_t now_ns) {
  uint64_t spent_ns = gpu->spent_ns + (now_ns - gpu->stretch_ns);
  bool enough = spent_ns >= gpu->least_ns;
  each_job(job, gpu) { enough = enough && has_enough(job, gpu->least_ns); }
  if (enough || spent_ns >= RATE_WINDOW_MOST_NS)
    end_window(gpu, now_ns);
  else if (spent_ns >= gpu->least_ns) /* but for silent jobs, nobody need look before the next message */
    gpu->until_ns =
        now_ns + (RATE_WINDOW_MOST_NS - spent_ns < RATE_SILENT_NS / 2 ? RATE_WINDOW_MOST_NS - spent_ns
                                                                      : RATE_SILENT_NS / 2);
}

/* ---- who works ---- */

static bool is_measuring(const struct rate_gpu *gpu) {
  return gpu->state == RATE_CONTROL || gpu->state == RATE_TRIAL;
}

/* After anything that may have changed who works. */
static void settle(struct rate_gpu *gpu, uint64_t now_ns) {
  bool works = gpu->active_count > 0, crowd = gpu->production_count > RATE_WATCHED_MOST;
  if (is_measuring(gpu) && (!works || crowd))
    end_stretch(gpu, now_ns);
  if (!works && gpu->state != RATE_FREE)
    enter(gpu, RATE_FREE, RATE_NEVER);
  else if (works && crowd && gpu->state != RATE_CROWDED)
    enter(gpu, RATE_CROWDED, now_ns + RATE_SILENT_NS);
  else if (works && !crowd && (gpu->state == RATE_FREE || gpu->state == RATE_CROWDED))
    enter(gpu, RATE_SETTLING, now_ns + RATE_SETTLE_NS);
}

static void set_active(struct rate_gpu *gpu, struct rate_job *job) {
  bool active = job->holds && job->heard && job->last.active;
  gpu->active_count += (unsigned)active - (unsigned)job->active;
  job->active = active;
}

/* It has said nothing for too long: it may have been stopped, or never end. */
static void drop_silent(struct rate_gpu *gpu, uint64_t now_ns) {
  each_job(job, gpu) {
    if (!job->active || now_ns - job->heard_ns < RATE_SILENT_NS)
      continue;
    job->last.active = false;
    job->spoilt = true;
    set_active(gpu, job);
  }
}

/* Counters that go back have leapt, too: by nearly 2^64. */
static bool may_follow(const struct rate_job *job, const struct rate_progress *next, uint64_t now_ns) {
  const struct rate_progress *last = &job->last;
  uint64_t most_ns = now_ns - job->heard_ns + LATE_NS;
  return next->active_ns - last->active_ns <= most_ns &&
         next->submissions - last->submissions <= most_ns / 1000 * SUBMISSIONS_PER_US &&
         next->mark_active_ns <= next->active_ns && next->mark_submissions <= next->submissions &&
         next->mark_active_ns >= last->mark_active_ns && next->mark_submissions >= last->mark_submissions;
}

static double first_level(const struct rate_gpu *gpu) {
  return gpu->bounded ? RATE_LEVEL_FIRST : RATE_LEVEL_UNSURE;
}

/* ---- what others see ---- */

void rate_gpu_init(struct rate_gpu *gpu) {
  *gpu = (struct rate_gpu){
      .until_ns = RATE_NEVER, .guests_work = true, .bounded = true, .level = RATE_LEVEL_FIRST};
  list_init(&gpu->production);
  begin_window(gpu, false);
}

void rate_job_add(struct rate_gpu *gpu, struct rate_job *job, bool holds, uint64_t now_ns) {
  *job = (struct rate_job){
      .holds = holds, .control = -1, .trial = -1, .noise = NOISE * NOISE, .noise_freedom = 1};
  if (is_measuring(gpu))
    end_stretch(gpu, now_ns);
  list_append(&gpu->production, &job->link);
  gpu->production_count++;
  gpu->tried = false;
  gpu->found = false; /* what others could bear says nothing of this one */
  set_level(gpu, fmin(gpu->level, first_level(gpu)));
  begin_window(gpu, false);
  if (is_measuring(gpu))
    begin_stretch(gpu, now_ns);
  settle(gpu, now_ns);
}

void rate_job_remove(struct rate_gpu *gpu, struct rate_job *job, uint64_t now_ns) {
  job->holds = false;
  set_active(gpu, job);
  settle(gpu, now_ns);
  list_remove(&job->link);
  gpu->production_count--;
  settle(gpu, now_ns);
}

void rate_job_holds(struct rate_gpu *gpu, struct rate_job *job, bool holds, uint64_t now_ns) {
  job->holds = holds;
  set_active(gpu, job);
  settle(gpu, now_ns);
}

void rate_set_guests(struct rate_gpu *gpu, bool guests, uint64_t now_ns) {
  gpu->guests = guests;
  if (!guests)
    each_job(job, gpu) {
      job->heard = false; /* it is not asked any more */
      set_active(gpu, job);
    }
  settle(gpu, now_ns);
}

void rate_guests_work(struct rate_gpu *gpu, bool work, uint64_t now_ns) {
  if (is_measuring(gpu))
    count_use(gpu, now_ns);
  gpu->guests_work = work;
}

void rate_set_bounded(struct rate_gpu *gpu, bool bounded) {
  if (bounded == gpu->bounded)
    return;
  gpu->bounded = bounded;
  if (!bounded)
    set_level(gpu, fmin(gpu->level, RATE_LEVEL_UNSURE));
  else if (!gpu->found && !gpu->pairs)
    set_level(gpu, RATE_LEVEL_FIRST);
}

void rate_progress(struct rate_gpu *gpu, struct rate_job *job, const struct rate_progress *progress,
                   uint64_t now_ns) {
  if (!gpu->guests)
    return;
  bool follows = job->heard && progress->active_ns < ACTIVE_MOST && may_follow(job, progress, now_ns);
  job->spoilt |= job->heard && !follows;
  job->marked_ns = follows ? job->marked_ns : 0;
  if (follows && job->active && progress->mark_active_ns > job->last.mark_active_ns)
    job->marked_ns = progress->active_ns;
  job->heard = true;
  job->heard_ns = now_ns;
  job->last = *progress;
  if (progress->active_ns >= ACTIVE_MOST)
    job->last.active_ns = 0;
  set_active(gpu, job);
  if (is_measuring(gpu) && follows) {
    note(&job->reports, job->from_ns, progress->submissions, progress->active_ns);
    note(&job->marks, job->from_ns, progress->mark_submissions, progress->mark_active_ns);
  }
  settle(gpu, now_ns);
  if (is_measuring(gpu) && gpu->spent_ns + (now_ns - gpu->stretch_ns) >= gpu->least_ns)
    end_window_if_due(gpu, now_ns);
}

void rate_on_time(struct rate_gpu *gpu, uint64_t now_ns) {
  if (now_ns < gpu->until_ns)
    return;
  drop_silent(gpu, now_ns);
  settle(gpu, now_ns);
  if (gpu->state == RATE_CROWDED)
    gpu->until_ns = now_ns + RATE_SILENT_NS;
  else if (gpu->state == RATE_SETTLING && now_ns >= gpu->until_ns)
    begin_stretch(gpu, now_ns);
  if (is_measuring(gpu))
    end_window_if_due(gpu, now_ns);
}

double rate_level_duty(const struct rate_gpu *gpu) { return fmin(gpu->level / RATE_LEVEL_KNEE, 1); }

double rate_duty(const struct rate_gpu *gpu) {
  return gpu->state == RATE_FREE ? 1 : gpu->state == RATE_TRIAL ? rate_level_duty(gpu) : 0;
}

/* From 1 up to RATIOS. */
static double ratio_of(const struct rate_gpu *gpu) {
  return pow(RATIOS, fmax(gpu->level - RATE_LEVEL_KNEE, 0) / (1 - RATE_LEVEL_KNEE));
}

static double slice_us(const struct rate_gpu *gpu) {
  return fmin(RATE_SLICE_LEAST_US * ratio_of(gpu), RATE_SLICE_MOST_US);
}

uint32_t rate_slice_us(const struct rate_gpu *gpu) { return (uint32_t)(slice_us(gpu) + 0.5); }

uint32_t rate_long_slice_us(const struct rate_gpu *gpu) {
  return (uint32_t)(slice_us(gpu) * RATIOS / ratio_of(gpu) + 0.5);
}
