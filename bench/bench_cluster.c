/*
 * bench_cluster.c - many GPUs and a job mix after published cluster traces, in virtual time: whole GPUs
 * against shared ones. On each shared GPU the daemon's own core decides, with all that its hand-overs cost
 * (trace/core.c). Where a job goes is decided here: gpushare leaves that to Slurm and Kubernetes.
 *
 * Placement: jobs wait in one queue, first come, first served. The first one goes to the GPU with the fewest
 * allotted bytes that takes it. A whole GPU takes one job. A shared GPU takes jobs up to `fill` times its
 * memory.
 *
 * Durations: run times of Philly's jobs (Jeon et al., ATC 2019), from the sorted list
 * cluster-trace-gpu-v2020/analysis/philly_runtime.csv of github.com/alibaba/clusterdata. Read at five places,
 * to about a percentile; between them the logarithm is uniform.
 *
 * Use of the GPU, by --mix:
 *   philly  Of the minutes of Philly's jobs, 49 % had no work on any GPU where the job took less than 6
 * hours, and 25 % where it took more than 24 (affinode.io's study of the published trace). The rest counts as
 * all of the GPU. Assumption: 37 % between 6 and 24 hours. pai     Alibaba's PAI, July and August 2020 (Weng
 * et al., NSDI 2022): 34.5 % of 3,033,232 instances used nothing of the GPU on average, half at most 1.5
 * %, 75.4 % less than 10 %, 95 % less than 50 % (affinode.io's study of its table of sensors). Between these
 * points the part is uniform.
 *
 * Memory: of Perlmutter's jobs on 80 GB cards, 55 % peaked at half of the card or less (Cankur et al.,
 * arXiv:2502.18680). Assumption: uniform from 5 % of the card to half, and from half to all.
 *
 * Further assumptions: each job has one GPU, arrivals are Poisson, all of a job's time is alike, jobs side by
 * side do not slow each other down until their parts fill the GPU. The last one makes the gain of sharing
 * circular. It is what the mix leaves unused, put in, less what placement and turns cost.
 */
#include <errno.h>
#include <string.h>

#include "arguments.h"
#include "common/clock.h"
#include "plants/chance.h"
#include "quantile.h"
#include "trace/trace.h"

#define GPUS_MAX 10000
#define JOBS_MAX 200000

struct point {
  double part, value;
};

/* Seconds. */
static const struct point durations[] = {{0, 1},          {0.040, 44},     {0.326, 356},   {0.359, 536},
                                         {0.662, 2421},   {0.691, 2570},   {0.881, 10227}, {0.906, 14261},
                                         {0.978, 159721}, {0.998, 999999}, {1, 4628239}};
static const struct point pai_use[] = {{0, 0}, {0.345, 0}, {0.5, 0.015}, {0.754, 0.1}, {0.95, 0.5}, {1, 1}};
static const struct point memory[] = {{0, 0.05}, {0.55, 0.5}, {1, 1}};

static struct {
  uint64_t gpus, jobs, load_percent, seed;
  const char *mix;
} options = {.gpus = 1000, .jobs = 20000, .load_percent = 100, .seed = 1, .mix = "philly"};

/* ---- the mix ---- */

static double draw(const struct point *point, bool logarithmic, uint64_t *state) {
  double part = chance_uniform(state);
  while (part > point[1].part)
    point++;
  double at = (part - point->part) / (point[1].part - point->part);
  return logarithmic ? point->value * pow(point[1].value / point->value, at)
                     : point->value + at * (point[1].value - point->value);
}

static double philly_use(double seconds) {
  double hours = seconds / 3600;
  return 1 - (hours < 6 ? 0.49 : hours > 24 ? 0.25 : 0.37);
}

/* The mean of what `draw` makes of the durations. */
static double mean_seconds(void) {
  double sum = 0;
  for (size_t i = 0; i + 1 < sizeof durations / sizeof *durations; i++) {
    double low = durations[i].value, high = durations[i + 1].value;
    sum += (durations[i + 1].part - durations[i].part) * (high - low) / log(high / low);
  }
  return sum;
}

static void generate(struct trace_job *jobs) {
  uint64_t state = options.seed;
  double gap_s = mean_seconds() / (double)options.gpus / ((double)options.load_percent / 100), now_s = 0;
  for (uint64_t i = 0; i < options.jobs; i++) {
    double seconds = draw(durations, true, &state), pai = draw(pai_use, false, &state);
    jobs[i] = (struct trace_job){.arrives_ns = (uint64_t)(now_s * NS_PER_S),
                                 .alone_ns = (uint64_t)(seconds * NS_PER_S),
                                 .peak_bytes = (uint64_t)(draw(memory, false, &state) * GPU_BYTES),
                                 .gpu_use = strcmp(options.mix, "pai") == 0 ? pai : philly_use(seconds)};
    now_s += chance_exponential(&state, gap_s);
  }
}

/* ---- the cluster ---- */

struct cluster {
  double fill; /* 0: whole GPUs */
  struct machine *gpus;
  uint64_t *next_ns; /* of each GPU */
  uint64_t *allotted_bytes;
  struct machine_job *jobs;
  uint64_t arrived, placed, ended;
  uint64_t now_ns;
  double held_ns; /* GPUs with a job, until the last arrival */
  double busy_ns; /* by then */
};

static bool takes(const struct cluster *cluster, uint64_t gpu, const struct trace_job *job) {
  if (cluster->fill == 0)
    return cluster->gpus[gpu].count == 0;
  return cluster->gpus[gpu].count < TRACE_JOBS &&
         (double)(cluster->allotted_bytes[gpu] + job->peak_bytes) <= cluster->fill * GPU_BYTES;
}

static void advance_gpu(struct cluster *cluster, uint64_t gpu) {
  struct machine *machine = &cluster->gpus[gpu];
  unsigned over = machine_advance(machine, cluster->now_ns);
  if (over == 0)
    return;
  cluster->ended += over;
  cluster->allotted_bytes[gpu] = 0;
  for (unsigned i = 0; i < machine->count; i++)
    cluster->allotted_bytes[gpu] += machine->jobs[i]->job->peak_bytes;
}

static void settle_gpu(struct cluster *cluster, uint64_t gpu) {
  if (machine_settle(&cluster->gpus[gpu]) < 0) {
    fprintf(stderr, "bench_cluster: GPU %llu runs more than it has memory for\n", (unsigned long long)gpu);
    exit(EXIT_FAILURE);
  }
  cluster->next_ns[gpu] = machine_next_ns(&cluster->gpus[gpu]);
}

/* The first of the queue; false: no GPU takes it. */
static bool place(struct cluster *cluster) {
  struct machine_job *job = &cluster->jobs[cluster->placed];
  uint64_t best = options.gpus;
  for (uint64_t gpu = 0; gpu < options.gpus; gpu++)
    if (takes(cluster, gpu, job->job) &&
        (best == options.gpus || cluster->allotted_bytes[gpu] < cluster->allotted_bytes[best]))
      best = gpu;
  if (best == options.gpus)
    return false;
  advance_gpu(cluster, best);
  machine_arrive(&cluster->gpus[best], job);
  cluster->allotted_bytes[best] += job->job->peak_bytes;
  cluster->placed++;
  settle_gpu(cluster, best);
  return true;
}

/* What is held and done counts until the last job has come: after that the cluster empties. */
static void count_time(struct cluster *cluster, uint64_t next_ns) {
  for (uint64_t gpu = 0; gpu < options.gpus; gpu++)
    if (cluster->gpus[gpu].count > 0)
      cluster->held_ns += (double)(next_ns - cluster->now_ns);
}

static uint64_t earliest(const struct cluster *cluster) {
  uint64_t first = 0;
  for (uint64_t gpu = 1; gpu < options.gpus; gpu++)
    if (cluster->next_ns[gpu] < cluster->next_ns[first])
      first = gpu;
  return first;
}

static void run(struct cluster *cluster, const struct trace_job *jobs) {
  uint64_t last_ns = jobs[options.jobs - 1].arrives_ns;
  while (cluster->ended < options.jobs) {
    uint64_t gpu = earliest(cluster), ended = cluster->ended, placed = cluster->placed;
    uint64_t arrives_ns = cluster->arrived < options.jobs ? jobs[cluster->arrived].arrives_ns : POLICY_NEVER;
    bool arrives = arrives_ns <= cluster->next_ns[gpu];
    uint64_t next_ns = arrives ? arrives_ns : cluster->next_ns[gpu];
    if (next_ns == POLICY_NEVER) {
      fprintf(stderr, "bench_cluster: nobody runs\n");
      exit(EXIT_FAILURE);
    }
    if (next_ns < cluster->now_ns) /* a deadline that came while others were served */
      next_ns = cluster->now_ns;
    if (next_ns <= last_ns)
      count_time(cluster, next_ns);
    cluster->now_ns = next_ns;
    if (arrives) {
      const struct trace_job *job = &jobs[cluster->arrived];
      cluster->jobs[cluster->arrived] = (struct machine_job){
          .job = job, .index = (unsigned)cluster->arrived, .left_ns = (double)job->alone_ns};
      cluster->arrived++;
    } else {
      advance_gpu(cluster, gpu);
      settle_gpu(cluster, gpu);
    }
    if (arrives ? placed + 1 == cluster->arrived : cluster->ended > ended)
      while (cluster->placed < cluster->arrived && place(cluster))
        ;
    if (arrives && cluster->arrived == options.jobs)
      for (uint64_t i = 0; i < options.gpus; i++) {
        advance_gpu(cluster, i);
        settle_gpu(cluster, i);
        cluster->busy_ns += cluster->gpus[i].busy_ns;
      }
  }
}

/* ---- figures ---- */

static void report_hours(const char *name, const char *figure, double seconds) {
  report(report_name("%s_%s", name, figure), seconds / 3600, "h");
}

static void report_cluster(const char *name, const struct cluster *cluster, const struct trace_job *jobs) {
  double all_ns = (double)jobs[options.jobs - 1].arrives_ns * (double)options.gpus;
  double *waits = calloc(options.jobs, sizeof *waits), *stretches = calloc(options.jobs, sizeof *stretches);
  double wait_s = 0, jct_s = 0;
  if (!waits || !stretches)
    exit(EXIT_FAILURE);
  for (uint64_t i = 0; i < options.jobs; i++) {
    const struct machine_job *job = &cluster->jobs[i];
    double jct = (double)(job->ended_ns - jobs[i].arrives_ns) / NS_PER_S;
    waits[i] = (double)(job->began_ns - jobs[i].arrives_ns) / NS_PER_S;
    stretches[i] = jct / ((double)jobs[i].alone_ns / NS_PER_S);
    wait_s += waits[i] / (double)options.jobs;
    jct_s += jct / (double)options.jobs;
  }
  report_hours(name, "wait_mean", wait_s);
  report_hours(name, "wait_median", median(waits, options.jobs));
  report_hours(name, "wait_p95", quantile(waits, options.jobs, 0.95));
  report_hours(name, "jct_mean", jct_s);
  report(report_name("%s_stretch_median", name), median(stretches, options.jobs), "");
  report(report_name("%s_stretch_p95", name), quantile(stretches, options.jobs, 0.95), "");
  report(report_name("%s_held", name), cluster->held_ns / all_ns, "of GPU time");
  report(report_name("%s_worked", name), cluster->busy_ns / all_ns, "of GPU time");
  free(waits);
  free(stretches);
}

static void run_cluster(const char *name, const char *policy, double fill, const struct trace_job *jobs) {
  const struct policy_under_test *tested = core_policies;
  struct cluster cluster = {.fill = fill,
                            .gpus = calloc(options.gpus, sizeof(struct machine)),
                            .next_ns = calloc(options.gpus, sizeof(uint64_t)),
                            .allotted_bytes = calloc(options.gpus, sizeof(uint64_t)),
                            .jobs = calloc(options.jobs, sizeof(struct machine_job))};
  if (!cluster.gpus || !cluster.next_ns || !cluster.allotted_bytes || !cluster.jobs)
    exit(EXIT_FAILURE);
  while (strcmp(tested->name, policy) != 0)
    tested++;
  for (uint64_t i = 0; i < options.gpus; i++) {
    machine_begin(&cluster.gpus[i], tested);
    cluster.next_ns[i] = POLICY_NEVER;
  }
  run(&cluster, jobs);
  report_cluster(name, &cluster, jobs);
  for (uint64_t i = 0; i < options.gpus; i++)
    machine_end(&cluster.gpus[i]);
  free(cluster.gpus);
  free(cluster.next_ns);
  free(cluster.allotted_bytes);
  free(cluster.jobs);
}

static const char help[] = "usage: bench_cluster [--json] [options]\n"
                           "  --gpus N           (1000)\n"
                           "  --jobs N           (20000)\n"
                           "  --load PERCENT     work that arrives, of what whole GPUs can do (100)\n"
                           "  --mix NAME         how much of a GPU jobs use: philly (default) or pai\n"
                           "  --seed N           (1)\n"
                           "Exit status: 0; 1: a run failed; 2 usage.\n";

static int read_mix(const char *name, uint64_t *unused) {
  (void)unused;
  options.mix = name;
  return strcmp(name, "philly") == 0 || strcmp(name, "pai") == 0 ? 0 : -EINVAL;
}

static const struct argument known[] = {
    {"gpus", .number = &options.gpus, .least = 1, .most = GPUS_MAX},
    {"jobs", .number = &options.jobs, .least = 1, .most = JOBS_MAX},
    {"load", .number = &options.load_percent, .least = 1, .most = 1000},
    {"mix", .parse = read_mix},
    {"seed", .number = &options.seed, .most = UINT64_MAX},
    {0},
};

int main(int argc, char **argv) {
  arguments_read(argc, argv, help, known);
  struct trace_job *jobs = calloc(options.jobs, sizeof *jobs);
  if (!jobs)
    return EXIT_FAILURE;
  generate(jobs);
  report_begin();
  report("gpus", (double)options.gpus, "");
  report("jobs", (double)options.jobs, "");
  report("load", (double)options.load_percent / 100, "");
  report_text("mix", options.mix);
  run_cluster("whole", "auto", 0, jobs);
  run_cluster("fitting", "auto", 1, jobs);
  run_cluster("turns", "auto", 2, jobs);
  report_end();
  free(jobs);
  return EXIT_SUCCESS;
}
