/*
 * bench_loops.c - what a program pays for gpushare that makes and ends things in a loop: streams, events,
 * contexts, memory in stream order, memory, physical memory. Jobs of each kind play the same loops
 * (handover/loops.c), one at a time and by turns; a figure is what one pass takes, over what it takes without
 * us.
 *
 * Each job has a daemon, or none; no job ever waits for another one's memory.
 *
 * --help tells the options.
 */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "handover/play.h"
#include "quantile.h"

#define HOUR_NS (3600 * NS_PER_S)
#define MOST_OVER_STOCK 1.1
#define VMM_MOST_OVER_STOCK 1.3

enum { ROUNDS_MAX = 100, KINDS = 5, LOOPS_MAX = 32 };

static struct {
  uint64_t rounds, milliseconds;
  const char *loops, *kinds;
} options = {.rounds = 5,
             .milliseconds = 40,
             .loops =
                 "streams,streams_event,streams_memory,streams_many,contexts,async_4K,async_4K_16,async_1M,"
                 "async_1M_16,async_64M,async_64M_16,group_1M,pool_1M,pool_1M_16,unified_1M,unified_1M_16,"
                 "alloc_4K,alloc_2M,alloc_64M,vmm_2M,vmm_64M,vmm_2M_reserve,"
                 "export_2M,export_32M,export_64M",
             .kinds = "managed,swap,managed_daemon,swap_daemon"};

/* The first is what the others are beside. */
static struct kind {
  const char *name, *memory; /* NULL: the bare driver */
  bool with_daemon, wanted;
  struct child job;
} kinds[KINDS] = {{.name = "stock", .wanted = true},
                  {.name = "managed", .memory = "managed"},
                  {.name = "swap", .memory = "swap"},
                  {.name = "managed_daemon", .memory = "managed", .with_daemon = true},
                  {.name = "swap_daemon", .memory = "swap", .with_daemon = true}};

struct loop {
  char name[32];
  double ns[KINDS]; /* 0: the driver can't do it */
};

static struct loop loops[LOOPS_MAX];
static size_t loop_count;

/* ---- jobs ---- */

static bool start(struct kind *kind) {
  bool ok = !kind->memory       ? stage_worker(&kind->job, "loops", 0)
            : kind->with_daemon ? stage_job(&kind->job, "loops", 0, kind->memory)
                                : stage_lone_job(&kind->job, "loops", 0, kind->memory);
  return ok && child_expect(&kind->job, "filled");
}

/* Nanoseconds; 0: the driver can't do it. */
static bool play_once(const struct child *job, const char *loop, double *ns) {
  char text[CHILD_TEXT_SIZE];
  snprintf(text, sizeof text, "%s %llu", loop, (unsigned long long)options.milliseconds);
  if (!child_say(job, text) || !child_hear(job, text))
    return false;
  *ns = strcmp(text, "none") == 0 ? 0 : strtod(text, NULL);
  return true;
}

/* In each round the kinds come in another order. */
static bool play_loop(struct loop *loop) {
  double ns[KINDS][ROUNDS_MAX] = {0};
  for (uint64_t round = 0; round < options.rounds; round++)
    for (uint64_t turn = 0; turn < KINDS; turn++) {
      uint64_t i = (round + turn) % KINDS;
      if (kinds[i].wanted && !play_once(&kinds[i].job, loop->name, &ns[i][round]))
        return complain("%s: %s: it did not come to an end", kinds[i].name, loop->name);
    }
  for (int i = 0; i < KINDS; i++)
    loop->ns[i] = kinds[i].wanted ? median(ns[i], options.rounds) : 0;
  return true;
}

static double over_stock(const struct loop *loop, int kind) {
  return loop->ns[0] > 0 ? loop->ns[kind] / loop->ns[0] : 0;
}

static void tell(const struct loop *loop) {
  report(report_name("loops_%s_stock_us", loop->name), loop->ns[0] / 1000, "us");
  for (int i = 1; i < KINDS; i++)
    if (kinds[i].wanted)
      report(report_name("loops_%s_%s", loop->name, kinds[i].name), over_stock(loop, i), "");
}

/* What a loop may cost over stock: streams, and memory in their order; physical memory. 0: no target. */
static double most_over_stock(const struct loop *loop) {
  static const struct {
    const char *name;
    double most;
  } families[] = {{"streams", MOST_OVER_STOCK},
                  {"async", MOST_OVER_STOCK},
                  {"group", MOST_OVER_STOCK},
                  {"pool", MOST_OVER_STOCK},
                  {"vmm", VMM_MOST_OVER_STOCK}};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strncmp(loop->name, families[i].name, strlen(families[i].name)) == 0)
      return families[i].most;
  return 0;
}

static void tell_worst(int kind, const char *family, double most) {
  const struct loop *worst = NULL;
  for (const struct loop *loop = loops; loop < loops + loop_count; loop++)
    if (most_over_stock(loop) == most && (!worst || over_stock(loop, kind) > over_stock(worst, kind)))
      worst = loop;
  if (!worst || !kinds[kind].wanted)
    return;
  double over = over_stock(worst, kind);
  report_text(report_name("loops_%s%s_worst", kinds[kind].name, family), worst->name);
  report_verdict(report_name("loops_%s%s_worst_over_stock", kinds[kind].name, family), over, most,
                 over <= most, !play.simulate);
}

/* For people. */
static void print_table(void) {
  printf("\n%-16s", "loop");
  for (int i = 0; i < KINDS; i++)
    if (kinds[i].wanted)
      printf("%16s", kinds[i].name);
  for (size_t at = 0; at < loop_count; at++) {
    printf("\n%-16s%13.2f us", loops[at].name, loops[at].ns[0] / 1000);
    for (int i = 1; i < KINDS; i++)
      if (kinds[i].wanted)
        printf("%16.2f", over_stock(&loops[at], i));
  }
  printf("\n");
}

static bool run(void) {
  struct child daemon;
  bool ok = daemon_start(&daemon, "auto", play.card.free_bytes, HOUR_NS);
  for (int i = 0; ok && i < KINDS; i++)
    ok = !kinds[i].wanted || start(&kinds[i]);
  for (size_t at = 0; ok && at < loop_count; at++)
    if ((ok = play_loop(&loops[at])))
      tell(&loops[at]);
  for (int i = 1; ok && i < KINDS; i++) {
    tell_worst(i, "", MOST_OVER_STOCK);
    tell_worst(i, "_vmm", VMM_MOST_OVER_STOCK);
  }
  for (int i = 0; i < KINDS; i++)
    child_kill(&kinds[i].job);
  daemon_stop(&daemon);
  return ok;
}

/* ---- options ---- */

static const char help[] =
    "usage: bench_loops [--json] [options]\n"
    "  --loops NAME,...      all: streams, streams_event, streams_memory (an allocation each, whose free "
    "meets\n"
    "                        its kernel), streams_many (100 at a time), contexts; async_SIZE[_16], in "
    "stream\n"
    "                        order (a wait each, or one for 16), group_1M (16 at a time), pool_1M[_16] from "
    "an\n"
    "                        own pool, unified_1M[_16] from one of unified memory; alloc_SIZE; "
    "vmm_SIZE\n"
    "                        (create, map, use, unmap, release; with _reserve: the addresses, too);\n"
    "                        export_SIZE (the same, and exported after its use)\n"
    "  --kinds NAME,...      beside stock; all: managed, swap, managed_daemon, swap_daemon\n"
    "  --rounds N            of each kind and loop (5)\n"
    "  --milliseconds N      that a job plays a loop in a round (40)\n"
    "  --seconds N           for all of it (540)\n" PLAY_HELP
    "Exit status: 0; 1: something broke, or the time was too short; 2 usage; 77 no GPU here.\n";

static const struct argument known[] = {
    {"loops", .text = &options.loops},
    {"kinds", .text = &options.kinds},
    {"rounds", .number = &options.rounds, .least = 1, .most = ROUNDS_MAX},
    {"milliseconds", .number = &options.milliseconds, .least = 1, .most = 100000},
    {0},
};

static void choose_loops(void) {
  char *names = strdup(options.loops), *rest = names;
  for (char *name; names && (name = strsep(&rest, ","));)
    if (loop_count < LOOPS_MAX)
      snprintf(loops[loop_count++].name, sizeof loops->name, "%s", name);
  free(names);
}

static void choose_kinds(void) {
  char *names = strdup(options.kinds), *rest = names;
  for (char *name; names && (name = strsep(&rest, ","));) {
    struct kind *found = NULL;
    for (struct kind *kind = kinds + 1; kind < kinds + KINDS; kind++)
      if (strcmp(kind->name, name) == 0)
        found = kind;
    if (!found)
      arguments_wrong(name);
    found->wanted = true;
  }
  free(names);
}

int main(int argc, char **argv) {
  play_begin(argc, argv, help, known);
  choose_loops();
  choose_kinds();
  int status = play_end(run());
  if (!report_json)
    print_table();
  return status;
}
