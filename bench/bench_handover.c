/*
 * bench_handover.c - how fast a GPU changes hands: GB/s each way for jobs of several sizes and for each way
 * of keeping their memory, beside what the bus and demand paging reach in the same run.
 *
 * --help tells the options. All sizes are tried for which there is memory. Unified memory of all jobs
 * together stays below 40 GiB: more than that could hang a card that others use.
 */
#include <string.h>

#include "common/clock.h"
#include "common/host.h"
#include "common/parse.h"
#include "handover/play.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MANAGED_MAX_BYTES (40 * GIB)
#define CARD_SPARE_BYTES (2 * GIB) /* contexts, and whoever else uses the card */
#define REFERENCE_BYTES (4 * GIB)  /* where sizes do not matter any more */

enum { SIZES_MAX = 16, SWAP = 1, MANAGED = 2 };

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

/* ---- without gpushare ---- */

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

/* ---- with gpushare ---- */

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

/* ---- options ---- */

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
