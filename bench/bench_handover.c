/*
 * bench_handover.c - how fast a GPU changes hands: GB/s each way for jobs of several sizes and for each way
 * of keeping their memory, beside what the bus, demand paging and the driver's checkpoints reach in the same
 * run.
 *
 * usage: bench_handover [--json] [options]
 *   --sizes LIST        memory of each of two jobs (1G,2G,4G,8G,16G,24G; simulated: 128M,256M)
 *   --memory LIST       swap,managed
 *   --checkpoint SIZE   of the process that cuCheckpointProcess* takes off the card; 0: leave it out (4G)
 *   --hand-overs N      measured for each size, after two that are not (6)
 *   --quantum DURATION  (150ms)
 *   --seconds N         for all of it (480); what would not fit into what is left is skipped
 *   --simulate          the simulated driver, even where there is a GPU: its figures mean nothing
 *   --daemon PATH, --lib PATH    instead of those beside this program
 *
 * All sizes are tried for which there is memory. Unified memory of all jobs together stays below 40 GiB: more
 * than that could hang a card that others use.
 * Exit status: 0; 1: something broke, or memory had other contents than it should; 2 usage; 77 no GPU here.
 */
#include <getopt.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/host.h"
#include "common/parse.h"
#include "handover/measure.h"
#include "handover/stage.h"
#include "number.h"
#include "report.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MANAGED_MAX_BYTES (40 * GIB)
#define CARD_SPARE_BYTES (2 * GIB) /* contexts, and whoever else uses the card */
#define REFERENCE_BYTES (4 * GIB)  /* where sizes do not matter any more */

enum { EXIT_USAGE = 2, SIZES_MAX = 16 };

static struct {
  uint64_t sizes[SIZES_MAX], checkpoint_bytes, quantum_ns, seconds, handovers;
  int size_count;
  bool swap, managed, simulate;
  struct stage_paths paths;
} options = {.checkpoint_bytes = UINT64_MAX,
             .quantum_ns = 150 * NS_PER_MS,
             .seconds = 480,
             .handovers = 6,
             .swap = true,
             .managed = true};

static struct card card;
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
  uint64_t need_bytes = 2 * bytes + (options.simulate ? 2 * bytes : 8 * GIB);
  return host_available_bytes() >= need_bytes || skip(what, bytes, "not enough host memory");
}

static bool has_card_memory(const char *what, uint64_t bytes, uint64_t need_bytes) {
  return card.free_bytes >= need_bytes + CARD_SPARE_BYTES || skip(what, bytes, "not enough free on the card");
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

static void run_checkpoint(void) {
  struct checkpoint checkpoint;
  uint64_t bytes = options.checkpoint_bytes == UINT64_MAX ? reference_bytes : options.checkpoint_bytes;
  if (bytes == 0 || !has_card_memory("checkpoint", bytes, bytes) || !has_host_memory("checkpoint", bytes) ||
      !has_time("checkpoint", bytes, 4))
    return;
  if (!measure_checkpoint(bytes, &checkpoint)) {
    failed = true;
  } else if (checkpoint.possible) {
    report("checkpoint_out_gb_s", checkpoint.out, "GB/s");
    report("checkpoint_in_gb_s", checkpoint.in, "GB/s");
  }
}

/* ---- with gpushare ---- */

static struct setup setup_for(const char *memory, uint64_t bytes) {
  return (struct setup){.memory = memory,
                        .bytes = bytes,
                        .quantum_ns = options.quantum_ns,
                        .handovers = (unsigned)options.handovers};
}

enum { NAME_SIZE = 96 };

static char *join(char name[NAME_SIZE], const char *prefix, const char *suffix) {
  snprintf(name, NAME_SIZE, "%.48s_%s", prefix, suffix);
  return name;
}

static void report_rate(const char *prefix, const char *suffix, double rate) {
  char name[NAME_SIZE];
  report(join(name, prefix, suffix), rate, "GB/s");
}

static void report_ms(const char *prefix, const char *suffix, double ns) {
  char name[NAME_SIZE];
  report(join(name, prefix, suffix), ns / 1e6, "ms");
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
    report_at_least("managed_in_over_raw", directions.in / ceilings.in, 0.85, !options.simulate);
  if (has_paging)
    report_at_least("managed_out_over_prefetch", directions.out / paging.prefetch_out, 0.95,
                    !options.simulate);
}

/* Below the reference size the drain and the messages count for much, and there is no target. */
static void report_over_raw(const char *prefix, uint64_t bytes, double rate) {
  char name[NAME_SIZE];
  join(name, prefix, "over_raw_both");
  if (bytes >= REFERENCE_BYTES)
    report_at_least(name, rate / raw_both(), 0.90, !options.simulate);
  else
    report(name, rate / raw_both(), "");
}

static void report_turns(const char *memory, uint64_t bytes, const struct turns *turns) {
  char size[32], prefix[NAME_SIZE];
  join(prefix, memory, size_name(bytes, size));
  report_rate(prefix, "gb_s", turns_rate(turns));
  report_rate(prefix, "slowest_gb_s", turns->slowest);
  report_ms(prefix, "drain_ms", (double)turns->drain_ns / turns->handovers);
  report_ms(prefix, "move_ms", (double)turns->move_ns / turns->handovers);
  if (!is_managed(memory) && ceilings.out > 0)
    report_over_raw(prefix, bytes, turns_rate(turns));
  if (!is_managed(memory) && has_paging && bytes == reference_bytes)
    report_at_least("swap_over_paging", turns_rate(turns) / paging_rate(), 6, !options.simulate);
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
  run_paging();
  run_checkpoint();
  if (options.swap)
    run_directions("swap");
  if (options.managed)
    run_directions("managed");
  for (int i = 0; i < options.size_count; i++) {
    if (options.swap)
      run_turns("swap", options.sizes[i]);
    if (options.managed)
      run_turns("managed", options.sizes[i]);
  }
}

/* ---- options ---- */

_Noreturn static void usage(const char *what) {
  fprintf(stderr, "bench_handover: %s: see the head of bench_handover.c\n", what);
  exit(EXIT_USAGE);
}

static void read_sizes(char *list) {
  options.size_count = 0;
  for (char *rest = list, *size; (size = strsep(&rest, ","));) {
    if (options.size_count == SIZES_MAX || parse_bytes(size, &options.sizes[options.size_count]) != 0 ||
        options.sizes[options.size_count++] < 64 * MIB)
      usage("--sizes: up to 16 sizes from 64M, as in 1G,2G");
  }
}

static void read_memory(char *list) {
  options.swap = options.managed = false;
  for (char *rest = list, *memory; (memory = strsep(&rest, ","));) {
    bool *wanted = strcmp(memory, "swap") == 0      ? &options.swap
                   : strcmp(memory, "managed") == 0 ? &options.managed
                                                    : NULL;
    if (!wanted)
      usage("--memory: swap, managed");
    *wanted = true;
  }
}

static uint64_t read_count(const char *text) {
  uint64_t number;
  if (!read_number(text, 1, 100000, &number))
    usage(text);
  return number;
}

static void read_options(int argc, char **argv) {
  static const struct option list[] = {{"json", 0, NULL, 'j'},
                                       {"sizes", 1, NULL, 's'},
                                       {"memory", 1, NULL, 'm'},
                                       {"checkpoint", 1, NULL, 'c'},
                                       {"hand-overs", 1, NULL, 'n'},
                                       {"quantum", 1, NULL, 'q'},
                                       {"seconds", 1, NULL, 't'},
                                       {"simulate", 0, NULL, 'S'},
                                       {"daemon", 1, NULL, 'd'},
                                       {"lib", 1, NULL, 'l'},
                                       {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
    if (option == 's')
      read_sizes(optarg);
    else if (option == 'm')
      read_memory(optarg);
    else if (option == 'n')
      options.handovers = read_count(optarg);
    else if (option == 't')
      options.seconds = read_count(optarg);
    else if (option == 'S')
      options.simulate = true;
    else if (option == 'd')
      options.paths.daemon = optarg;
    else if (option == 'l')
      options.paths.library = optarg;
    else if (option == '?' || (option == 'c' && parse_bytes(optarg, &options.checkpoint_bytes) != 0) ||
             (option == 'q' && parse_duration_ns(optarg, &options.quantum_ns) != 0))
      usage("wrong option");
  }
}

/* The largest size that is not more than 4 GiB, else the smallest. */
static void choose_sizes(void) {
  static char real[] = "1G,2G,4G,8G,16G,24G", simulated[] = "128M,256M";
  if (options.size_count == 0)
    read_sizes(options.simulate ? simulated : real);
  for (int i = 0; i < options.size_count; i++) {
    uint64_t bytes = options.sizes[i];
    bool fits = bytes <= REFERENCE_BYTES && bytes > reference_bytes;
    reference_bytes = reference_bytes == 0 || fits ? bytes : reference_bytes;
  }
}

int main(int argc, char **argv) {
  read_options(argc, argv);
  deadline_set(options.seconds);
  int status = measure_begin(&options.paths, &options.simulate, &card);
  if (status != 0)
    return status;
  choose_sizes();
  report_begin(argc, argv);
  run_all();
  report("simulated", options.simulate, "");
  report("failed", failed, "");
  report_end();
  stage_end();
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
