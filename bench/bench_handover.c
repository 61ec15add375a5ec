/*
 * bench_handover.c - how fast a GPU changes hands: GB/s each way for jobs of several sizes and for each way
 * of keeping their memory, beside what the bus and demand paging reach in the same run.
 *
 * --help tells the options. All sizes are tried for which there is memory. Unified memory of all jobs
 * together stays below 40 GiB: more than that could hang a card that others use.
 */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "common/clock.h"
#include "common/host.h"
#include "common/parse.h"
#include "handover/play.h"
#include "probe/table.h"
#include "quantile.h"

#define MANAGED_MAX_BYTES (40 * GIB)
#define CARD_SPARE_BYTES (2 * GIB) /* contexts, and whoever else uses the card */
#define REFERENCE_BYTES (4 * GIB)  /* where sizes do not matter any more */

#define SMALL_BYTES (UINT64_C(8) << 20)
#define LOW_BYTES (UINT64_C(64) << 20) /* the small one, with what it may allocate unasked, and some more */
#define HOUR_NS (3600 * NS_PER_S)
#define POLL_NS (NS_PER_MS / 5)
#define BEGIN_NS (5 * NS_PER_S) /* for the first byte to move */
#define QUIET_NS (NS_PER_S / 4) /* no byte has moved for so long: that was it */

enum { SIZES_MAX = 16, SWAP = 1, MANAGED = 2, ROUNDS = 3, HOLDER_SECONDS = 60 };
/* The first evictions make the host memory that later ones use again. */
enum { TURNS_WARM_UP = 2, DIRECTIONS_WARM_UP = 1 };

/* ---- what the bus and paging reach without gpushare, in GB/s ---- */

/* Copies between the card and pinned memory, nothing else. both: each way, at once; by one process, by two.
 */
struct ceilings {
  double out, in, both_one, both_two;
};

static double best(double a, double b) { return a > b ? a : b; }

/* A ceiling is the best of the rounds. */
static bool copy_rounds(const struct table *t, struct ceilings *c) {
  for (int round = 0; round < ROUNDS; round++) {
    double out, in, both;
    struct copies copies;
    if (!one_copy(t->out, t->bytes, 0, &out) || !one_copy(t->in, 0, t->bytes, &in) ||
        !one_copy(t->out, t->bytes / 2, t->bytes / 2, &both) || !both_copy(t, &copies))
      return false;
    c->out = best(c->out, out);
    c->in = best(c->in, in);
    c->both_one = best(c->both_one, both);
    c->both_two = best(c->both_two, copies.both);
  }
  return true;
}

/* Its answers are not waited for without a bound. */
static bool holder_start(struct child *child) {
  struct timeval bound = {.tv_sec = HOLDER_SECONDS};
  return stage_worker(child, "holder", 0) &&
         setsockopt(child->fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) == 0;
}

static bool holders_run(const struct child holders[2], uint64_t bytes, struct ceilings *ceilings) {
  struct table table = {.out = holders[0].fd, .in = holders[1].fd, .bytes = bytes};
  struct order open = {.op = HOLDER_OPEN};
  struct report reports[2];
  return both_do(&table, open, open, reports) && slabs_make(&table, reports) && copies_prepare(&table) &&
         copy_rounds(&table, ceilings);
}

static bool measure_ceilings(uint64_t bytes, struct ceilings *ceilings) {
  struct child holders[2] = {{0}, {0}};
  *ceilings = (struct ceilings){0};
  bool ok = holder_start(&holders[0]) && holder_start(&holders[1]) && holders_run(holders, bytes, ceilings);
  child_kill(&holders[0]);
  child_kill(&holders[1]);
  return ok || complain("the plain copies failed");
}

/* Unified memory, moved by one call for all of it, and fetched by a kernel's page faults. */
struct paging {
  double prefetch_out, prefetch_in, faults_in;
};

/* The one answer of a worker; `text` is empty if there is none. */
static bool ask_worker(const char *role, uint64_t bytes, char text[CHILD_TEXT_SIZE]) {
  struct child worker;
  if (!stage_worker(&worker, role, bytes))
    return false;
  if (child_hear(&worker, text))
    return child_wait(&worker);
  child_kill(&worker);
  return complain("%s failed", role);
}

static bool measure_paging(uint64_t bytes, struct paging *paging) {
  char text[CHILD_TEXT_SIZE];
  return ask_worker("paging", bytes, text) &&
         sscanf(text, "%lf %lf %lf", &paging->prefetch_out, &paging->prefetch_in, &paging->faults_in) == 3;
}

/* ---- under gpushare ---- */

struct setup {
  const char *memory; /* GPUSHARE_MEMORY */
  uint64_t bytes;     /* of each job */
  uint64_t quantum_ns;
  unsigned handovers; /* measured, after some that are not */
};

/* Room on the card beside one job's bytes; two jobs do not fit. */
static uint64_t setup_spare_bytes(uint64_t bytes) { return bytes < 256 * MIB ? 32 * MIB : 64 * MIB; }

/*
 * Hand-overs: two jobs that do not fit on the card together take turns, and the daemon tells what that cost:
 * the difference of what it says before and after some of them. So the drain, the messages and whatever else
 * a hand-over takes are in the figures.
 */
struct turns {
  unsigned handovers;
  uint64_t drain_ns, move_ns, evicted_bytes, restored_bytes; /* sums */
  double slowest;                                            /* GB/s each way, of the slowest hand-over */
};

static bool start_pair(struct pair *pair, const struct setup *setup) {
  uint64_t capacity_bytes = setup->bytes + setup_spare_bytes(setup->bytes);
  return pair_start(pair, 2, "busy", setup->bytes, setup->memory, capacity_bytes, setup->quantum_ns);
}

/* Both find all their memory as it should be. */
static bool pair_finish(struct pair *pair) {
  bool ok = true;
  for (int i = 0; i < 2; i++)
    ok = child_say(&pair->jobs[i], "stop") && ok;
  for (int i = 0; i < 2; i++)
    ok = ok && child_expect(&pair->jobs[i], "0 wrong") && child_wait(&pair->jobs[i]);
  return ok;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static double last_rate(const struct status *status) {
  const struct gs_msg *msg = &status->handover;
  uint64_t bytes = least(msg->handover_status.evicted_last_bytes, msg->handover_status.restored_last_bytes);
  return (double)bytes / (double)(msg->handover_status.drain_last_ns + msg->handover_status.move_last_ns);
}

static void subtract(struct turns *turns, const struct status *before, const struct status *after) {
  const struct gs_msg *a = &before->handover, *b = &after->handover;
  turns->drain_ns = b->handover_status.drain_ns - a->handover_status.drain_ns;
  turns->move_ns = b->handover_status.move_ns - a->handover_status.move_ns;
  turns->evicted_bytes = b->handover_status.evicted_bytes - a->handover_status.evicted_bytes;
  turns->restored_bytes = b->handover_status.restored_bytes - a->handover_status.restored_bytes;
}

static bool count_turns(const struct pair *pair, unsigned handovers, struct turns *turns) {
  struct status before, after;
  *turns = (struct turns){.handovers = handovers};
  if (!daemon_ask(&before))
    return false;
  for (int i = 0; i < TURNS_WARM_UP; i++)
    if (!pair_await_handover(pair, &before))
      return false;
  after = before;
  for (unsigned i = 0; i < handovers; i++) {
    if (!pair_await_handover(pair, &after))
      return false;
    turns->slowest = i == 0 || last_rate(&after) < turns->slowest ? last_rate(&after) : turns->slowest;
  }
  subtract(turns, &before, &after);
  return true;
}

static bool measure_turns(const struct setup *setup, struct turns *turns) {
  struct pair pair;
  bool ok = start_pair(&pair, setup) && count_turns(&pair, setup->handovers, turns) && pair_finish(&pair);
  pair_kill(&pair);
  return ok;
}

/* Each way: of two directions that differ, the one with fewer bytes counts. */
static double turns_rate(const struct turns *turns) {
  return (double)least(turns->evicted_bytes, turns->restored_bytes) /
         (double)(turns->drain_ns + turns->move_ns);
}

/*
 * Directions: how fast the memory of one job leaves, and how fast it comes back, with nothing else moving:
 * the job has filled its memory and does nothing more, a small one holds the GPU and does nothing either, and
 * the capacity goes down and up. The daemon tells how much of the job is on the card.
 */
struct directions {
  double out, in; /* GB/s */
};

struct scene {
  struct child daemon, job, small;
  uint64_t high_bytes; /* capacity with which everything fits */
};

static void scene_kill(struct scene *scene) {
  child_kill(&scene->job);
  child_kill(&scene->small);
  daemon_stop(&scene->daemon);
}

static const struct gs_msg *job_of(const struct status *status, pid_t pid) {
  int place = status_find(status, pid);
  return place < 0 ? NULL : &status->jobs[place];
}

/* What the daemon says of the job. NULL, and a line: it says nothing. */
static const struct gs_msg *job_ask(const struct scene *scene, struct status *status) {
  nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL); /* nothing tells when figures change */
  if (deadline_left_ns() == 0)
    complain_late("the memory to move");
  else if (daemon_ask(status)) {
    const struct gs_msg *msg = job_of(status, scene->job.pid);
    if (!msg)
      complain("the daemon does not know the job");
    return msg;
  }
  return NULL;
}

/* Until the small one has taken the GPU over. */
static bool await_idle(const struct scene *scene) {
  struct status status;
  const struct gs_msg *msg;
  do
    msg = job_ask(scene, &status);
  while (msg && msg->job_status.state != GS_JOB_IDLE);
  return msg != NULL;
}

static bool scene_start(struct scene *scene, const struct setup *setup) {
  scene->high_bytes = setup->bytes + 4 * LOW_BYTES;
  return daemon_start(&scene->daemon, "on", scene->high_bytes, HOUR_NS) &&
         stage_job(&scene->job, "idle", setup->bytes, setup->memory) && child_expect(&scene->job, "filled") &&
         stage_job(&scene->small, "idle", SMALL_BYTES, setup->memory) &&
         child_expect(&scene->small, "filled") && await_idle(scene);
}

static bool scene_finish(struct scene *scene) {
  return child_say(&scene->job, "stop") && child_expect(&scene->job, "0 wrong") && child_wait(&scene->job);
}

/* Sets the capacity, waits until the job's bytes have stopped moving, and tells how fast they were. */
static bool move(const struct scene *scene, uint64_t capacity_bytes, double *rate) {
  struct status status;
  const struct gs_msg *msg = job_ask(scene, &status);
  if (!msg || !daemon_set_capacity(capacity_bytes))
    return false;
  uint64_t first = msg->job_status.resident_bytes, last = first, start_ns = clock_now_ns();
  uint64_t last_ns = start_ns, patience_ns = BEGIN_NS;
  while (clock_now_ns() - last_ns < patience_ns) {
    if (!(msg = job_ask(scene, &status)))
      return false;
    if (msg->job_status.resident_bytes == last)
      continue;
    last = msg->job_status.resident_bytes;
    last_ns = clock_now_ns();
    patience_ns = QUIET_NS;
  }
  if (last == first)
    return complain("nothing moves when the capacity changes");
  *rate = (double)(last > first ? last - first : first - last) / (double)(last_ns - start_ns);
  return true;
}

static bool move_rounds(const struct scene *scene, struct directions *directions) {
  double out[ROUNDS], in[ROUNDS];
  for (int round = -DIRECTIONS_WARM_UP; round < ROUNDS; round++) {
    int into = round < 0 ? 0 : round;
    if (!move(scene, LOW_BYTES, &out[into]) || !move(scene, scene->high_bytes, &in[into]))
      return false;
  }
  *directions = (struct directions){.out = median(out, ROUNDS), .in = median(in, ROUNDS)};
  return true;
}

static bool measure_directions(const struct setup *setup, struct directions *directions) {
  struct scene scene = {.daemon.name = "daemon"};
  bool ok = scene_start(&scene, setup) && move_rounds(&scene, directions) && scene_finish(&scene);
  scene_kill(&scene);
  return ok;
}

/* ---- options ---- */

static struct {
  uint64_t sizes[SIZES_MAX], size_count, quantum_ns, handovers, memory;
  bool turns_only;
} options = {.quantum_ns = 150 * NS_PER_MS, .handovers = 6, .memory = SWAP | MANAGED};

static uint64_t reference_bytes; /* for what is measured with one size only */
static struct ceilings ceilings;
static struct paging paging;
static bool has_paging, failed;

static void note_failure(bool ok) { failed |= !ok; }

/* ---- what there is memory and time for ---- */

static const char *size_name(uint64_t bytes, char name[32]) {
  bool whole = bytes % GIB == 0;
  snprintf(name, 32, "%llu%s", (unsigned long long)(bytes / (whole ? GIB : MIB)), whole ? "gib" : "mib");
  return name;
}

static bool skip(const char *what, uint64_t bytes, const char *why) {
  char size[32];
  return complain("%s_%s skipped: %s", what, size_name(bytes, size), why);
}

/* About what a measurement takes on a real card, generously. */
static bool has_time(const char *what, uint64_t bytes, uint64_t seconds_per_gib) {
  uint64_t need_ns = (10 + bytes * seconds_per_gib / GIB) * NS_PER_S;
  return deadline_left_ns() > need_ns || skip(what, bytes, "no time left");
}

/* Two processes keep so much in host memory, or on the simulated card, which is there, too. */
static bool has_host_memory(const char *what, uint64_t bytes) {
  uint64_t need_bytes = 2 * bytes + (play.simulate ? 2 * bytes : 8 * GIB);
  return host_available_bytes() >= need_bytes || skip(what, bytes, "not enough host memory");
}

static bool has_card_memory(const char *what, uint64_t bytes, uint64_t need_bytes) {
  return play.card.free_bytes >= need_bytes + CARD_SPARE_BYTES ||
         skip(what, bytes, "not enough free on the card");
}

static bool is_managed(const char *memory) { return strcmp(memory, "managed") == 0; }

static bool has_room(const char *what, const char *memory, uint64_t bytes) {
  uint64_t both_bytes = 2 * bytes;
  if (is_managed(memory) && both_bytes > MANAGED_MAX_BYTES)
    return skip(what, bytes, "more than 40 GiB of unified memory");
  return has_card_memory(what, bytes, is_managed(memory) ? both_bytes : bytes + setup_spare_bytes(bytes)) &&
         has_host_memory(what, bytes) && has_time(what, bytes, is_managed(memory) ? 2 : 1);
}

/* ---- figures without gpushare ---- */

static double raw_both(void) {
  return ceilings.both_one > ceilings.both_two ? ceilings.both_one : ceilings.both_two;
}

static void run_ceilings(void) {
  if (!has_card_memory("raw", reference_bytes, 2 * reference_bytes) ||
      !has_host_memory("raw", reference_bytes))
    return;
  if (!measure_ceilings(reference_bytes, &ceilings)) {
    failed = true;
    return;
  }
  report("raw_out_gb_s", ceilings.out, "GB/s");
  report("raw_in_gb_s", ceilings.in, "GB/s");
  report("raw_both_one_process_gb_s", ceilings.both_one, "GB/s");
  report("raw_both_two_processes_gb_s", ceilings.both_two, "GB/s");
  report("raw_both_gb_s", raw_both(), "GB/s");
}

/* All of it out, then all of it in: no more than one job is on the card at a time, nor on the bus. */
static double paging_rate(void) { return 1 / (1 / paging.prefetch_out + 1 / paging.faults_in); }

static void run_paging(void) {
  if (!has_room("paging", "managed", reference_bytes))
    return;
  has_paging = measure_paging(reference_bytes, &paging);
  note_failure(has_paging);
  if (!has_paging)
    return;
  report("prefetch_out_gb_s", paging.prefetch_out, "GB/s");
  report("prefetch_in_gb_s", paging.prefetch_in, "GB/s");
  report("paging_in_gb_s", paging.faults_in, "GB/s");
  report("paging_gb_s", paging_rate(), "GB/s");
}

/* ---- figures with gpushare ---- */

static struct setup setup_for(const char *memory, uint64_t bytes) {
  return (struct setup){.memory = memory,
                        .bytes = bytes,
                        .quantum_ns = options.quantum_ns,
                        .handovers = (unsigned)options.handovers};
}

static void report_rate(const char *prefix, const char *suffix, double rate) {
  report(report_name("%s_%s", prefix, suffix), rate, "GB/s");
}

static void report_ms(const char *prefix, const char *suffix, double ns) {
  report(report_name("%s_%s", prefix, suffix), ns / 1e6, "ms");
}

static void run_directions(const char *memory) {
  struct setup setup = setup_for(memory, reference_bytes);
  struct directions directions;
  if (!has_room(memory, memory, reference_bytes))
    return;
  if (!measure_directions(&setup, &directions)) {
    failed = true;
    return;
  }
  report_rate(memory, "out_gb_s", directions.out);
  report_rate(memory, "in_gb_s", directions.in);
  if (!is_managed(memory))
    return;
  if (ceilings.in > 0)
    report_at_least("managed_in_over_raw", directions.in / ceilings.in, 0.85, !play.simulate);
  if (has_paging)
    report_at_least("managed_out_over_prefetch", directions.out / paging.prefetch_out, 0.95, !play.simulate);
}

/* Below the reference size the drain and the messages count for much, and there is no target. */
static void report_over_raw(const char *prefix, uint64_t bytes, double rate) {
  const char *name = report_name("%s_over_raw_both", prefix);
  if (bytes >= REFERENCE_BYTES)
    report_at_least(name, rate / raw_both(), 0.90, !play.simulate);
  else
    report(name, rate / raw_both(), "");
}

static double swap_rate; /* of the size at hand; 0: unknown */

static void report_turns(const char *memory, uint64_t bytes, const struct turns *turns) {
  char size[32], prefix[48];
  snprintf(prefix, sizeof prefix, "%s_%s", memory, size_name(bytes, size));
  report_rate(prefix, "gb_s", turns_rate(turns));
  report_rate(prefix, "slowest_gb_s", turns->slowest);
  report_ms(prefix, "drain_ms", (double)turns->drain_ns / turns->handovers);
  report_ms(prefix, "move_ms", (double)turns->move_ns / turns->handovers);
  if (!is_managed(memory) && ceilings.out > 0)
    report_over_raw(prefix, bytes, turns_rate(turns));
  if (!is_managed(memory))
    swap_rate = turns_rate(turns);
  else if (swap_rate > 0 && bytes >= REFERENCE_BYTES)
    report_at_least(report_name("%s_over_swap", prefix), turns_rate(turns) / swap_rate, 0.90, !play.simulate);
  if (!is_managed(memory) && has_paging && bytes == reference_bytes)
    report_at_least("swap_over_paging", turns_rate(turns) / paging_rate(), 6, !play.simulate);
}

static void run_turns(const char *memory, uint64_t bytes) {
  struct setup setup = setup_for(memory, bytes);
  struct turns turns;
  if (!has_room(memory, memory, bytes))
    return;
  if (measure_turns(&setup, &turns))
    report_turns(memory, bytes, &turns);
  else
    failed = true;
}

static void run_all(void) {
  run_ceilings();
  if (!options.turns_only) {
    run_paging();
    if (options.memory & SWAP)
      run_directions("swap");
    if (options.memory & MANAGED)
      run_directions("managed");
  }
  for (uint64_t i = 0; i < options.size_count; i++) {
    swap_rate = 0;
    if (options.memory & SWAP)
      run_turns("swap", options.sizes[i]);
    if (options.memory & MANAGED)
      run_turns("managed", options.sizes[i]);
  }
}

static const char help[] =
    "usage: bench_handover [--json] [options]\n"
    "  --sizes LIST          memory of each of two jobs, up to 16 sizes from 64M\n"
    "                        (1G,2G,4G,8G,16G,24G; simulated: 128M,256M)\n"
    "  --memory LIST         swap,managed\n"
    "  --turns-only          hand-overs, and plain copies beside them\n"
    "  --hand-overs N        measured for each size, after two that are not (6)\n"
    "  --quantum DURATION    (150ms)\n"
    "  --seconds N           for all of it (480); what would not fit into what is left is skipped\n" PLAY_HELP
    "Exit status: 0; 1: something broke, or memory had other contents than it should; 2 usage; 77 no GPU "
    "here.\n";

static int read_sizes(const char *text, uint64_t *count) {
  char *rest = strdupa(text);
  *count = 0;
  for (char *size; (size = strsep(&rest, ","));)
    if (*count == SIZES_MAX || parse_bytes(size, &options.sizes[*count]) != 0 ||
        options.sizes[(*count)++] < 64 * MIB)
      return -EINVAL;
  return 0;
}

static int read_memory(const char *text, uint64_t *memory) {
  char *rest = strdupa(text);
  *memory = 0;
  for (char *kind; (kind = strsep(&rest, ","));) {
    if (!is_managed(kind) && strcmp(kind, "swap") != 0)
      return -EINVAL;
    *memory |= is_managed(kind) ? MANAGED : SWAP;
  }
  return 0;
}

static const struct argument known[] = {
    {"sizes", .parse = read_sizes, .number = &options.size_count},
    {"memory", .parse = read_memory, .number = &options.memory},
    {"turns-only", .flag = &options.turns_only},
    {"hand-overs", .number = &options.handovers, .least = 1, .most = 100000},
    {"quantum", .parse = parse_duration_ns, .number = &options.quantum_ns},
    {0},
};

/* The largest size that is not more than 4 GiB, else the smallest. */
static void choose_sizes(void) {
  if (options.size_count == 0)
    read_sizes(play.simulate ? "128M,256M" : "1G,2G,4G,8G,16G,24G", &options.size_count);
  for (uint64_t i = 0; i < options.size_count; i++) {
    uint64_t bytes = options.sizes[i];
    bool fits = bytes <= REFERENCE_BYTES && bytes > reference_bytes;
    reference_bytes = reference_bytes == 0 || fits ? bytes : reference_bytes;
  }
}

int main(int argc, char **argv) {
  play.seconds = 480;
  play_begin(argc, argv, help, known);
  choose_sizes();
  run_all();
  return play_end(!failed);
}
