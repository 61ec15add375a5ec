/*
 * bench_handover.c - how fast a GPU changes hands: GB/s each way for jobs of several sizes and for each way
 * of keeping their memory, beside what the bus reaches in the same run.
 *
 * --help tells the options. All sizes are tried for which there is memory. Unified memory of all jobs
 * together stays below 40 GiB: more than that could hang a card that others use.
 */
#include <string.h>

#include "common/clock.h"
#include "common/host.h"
#include "common/parse.h"
#include "handover/play.h"

#define MANAGED_MAX_BYTES (40 * GIB)
#define CARD_SPARE_BYTES (2 * GIB) /* contexts, and whoever else uses the card */
#define REFERENCE_BYTES (4 * GIB)  /* where sizes do not matter any more */

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum { SIZES_MAX = 16, SWAP = 1, MANAGED = 2, ROUNDS = 3 };
enum { TURNS_WARM_UP = 2 }; /* the first evictions make the host memory that later ones use again */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }
static double best(double a, double b) { return a > b ? a : b; }

/* ---- what the bus reaches without gpushare, in GB/s: the best of some rounds ---- */

/* Copies between the card and pinned memory, nothing else. both: each way, at once; by one process, by two.
 */
struct ceilings {
  double out, in, both_one, both_two;
};

struct copy {
  uint64_t start_ns, end_ns;
};

static bool copy_order(const struct child *copier, uint64_t out_bytes, uint64_t in_bytes) {
  char text[CHILD_TEXT_SIZE];
  snprintf(text, sizeof text, "%llu %llu", (unsigned long long)out_bytes, (unsigned long long)in_bytes);
  return child_say(copier, text);
}

static bool copy_await(const struct child *copier, struct copy *copy) {
  char text[CHILD_TEXT_SIZE];
  unsigned long long start_ns, end_ns;
  if (!child_hear(copier, text) || sscanf(text, "%llu %llu", &start_ns, &end_ns) != 2)
    return false;
  *copy = (struct copy){.start_ns = start_ns, .end_ns = end_ns};
  return true;
}

static void note_rate(double *rate, uint64_t bytes, uint64_t start_ns, uint64_t end_ns) {
  *rate = best(*rate, (double)bytes / (double)(end_ns - start_ns));
}

/* One process: so many bytes in each direction that is not 0. */
static bool copy_alone(const struct child *copier, uint64_t out_bytes, uint64_t in_bytes, double *rate) {
  struct copy copy;
  if (!copy_order(copier, out_bytes, in_bytes) || !copy_await(copier, &copy))
    return false;
  note_rate(rate, most(out_bytes, in_bytes), copy.start_ns, copy.end_ns);
  return true;
}

/* Two processes, one out, one in: the bytes of one over the time until both are done. */
static bool copy_both(const struct child copiers[2], uint64_t bytes, double *rate) {
  struct copy out, in;
  if (!copy_order(&copiers[1], 0, bytes) || !copy_order(&copiers[0], bytes, 0) ||
      !copy_await(&copiers[0], &out) || !copy_await(&copiers[1], &in))
    return false;
  note_rate(rate, bytes, least(out.start_ns, in.start_ns), most(out.end_ns, in.end_ns));
  return true;
}

static bool copy_rounds(const struct child copiers[2], uint64_t bytes, struct ceilings *c) {
  for (int i = 0; i < 2; i++)
    if (!child_expect(&copiers[i], "ready"))
      return false;
  for (int round = 0; round < ROUNDS; round++)
    if (!copy_alone(&copiers[0], bytes, 0, &c->out) || !copy_alone(&copiers[1], 0, bytes, &c->in) ||
        !copy_alone(&copiers[0], bytes / 2, bytes / 2, &c->both_one) ||
        !copy_both(copiers, bytes, &c->both_two))
      return false;
  return true;
}

static bool measure_ceilings(uint64_t bytes, struct ceilings *ceilings) {
  struct child copiers[2] = {{0}, {0}};
  bool ok = stage_worker(&copiers[0], "copier", bytes) && stage_worker(&copiers[1], "copier", bytes) &&
            copy_rounds(copiers, bytes, ceilings);
  child_kill(&copiers[0]);
  child_kill(&copiers[1]);
  return ok || complain("the plain copies failed");
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

/* ---- options ---- */

static struct {
  uint64_t sizes[SIZES_MAX], size_count, quantum_ns, handovers, memory;
} options = {.quantum_ns = 150 * NS_PER_MS, .handovers = 6, .memory = SWAP | MANAGED};

static uint64_t reference_bytes; /* for what is measured with one size only */
static struct ceilings ceilings;
static bool failed;

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

static double raw_both(void) { return best(ceilings.both_one, ceilings.both_two); }

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
