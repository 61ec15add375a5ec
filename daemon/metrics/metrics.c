/* metrics.c - the daemon's figures as a text: what is measured, in three tables, of the daemon, of each GPU
 * and of each job on a GPU; and each measure with its samples of all of these, in slices. */
#include "metrics/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "common/words.h"
#include "server/daemon_log.h"
#include "server/shares.h"
#include "server/users.h"

#define STEPS_PER_LOOK 4 /* at the clock */
#define ROOM_STEP ((size_t)64 << 10)

/* ---- the text: families of samples with labels, one after the other ---- */

enum family_type { FAMILY_GAUGE, FAMILY_COUNTER, FAMILY_HISTOGRAM, FAMILY_INFO };

/* Values are integers: seconds in ns, ratios likewise in billionths, watts and joules in thousandths. */
enum family_unit {
  UNIT_NONE,
  UNIT_BYTES,
  UNIT_BYTES_PER_SECOND,
  UNIT_SECONDS,
  UNIT_RATIO,
  UNIT_CELSIUS,
  UNIT_WATTS,
  UNIT_JOULES,
};

struct family {
  const char *name; /* with its unit at the end; without _total and _info */
  enum family_type type;
  enum family_unit unit;
  const char *help; /* one sentence, without '\' and '"' */
};

struct label {
  const char *name, *value; /* the value may be any text; what is no ASCII becomes '?' */
};

#define LABELS 13

/* What is looked at, and where that goes. */
struct scene {
  const struct daemon *daemon;
  const struct sched_gpu *gpu;
  const struct sched_job *job;
  uint64_t now_ns;
  FILE *out;
  enum dialect dialect;
  const struct family *family;
  struct label labels[LABELS]; /* that all samples have which are written now */
  size_t label_count;
};

static const char *const types[] = {
    [FAMILY_GAUGE] = "gauge", [FAMILY_COUNTER] = "counter", [FAMILY_HISTOGRAM] = "histogram"};
static const char *const units[] = {[UNIT_BYTES] = "bytes",     [UNIT_BYTES_PER_SECOND] = "bytes_per_second",
                                    [UNIT_SECONDS] = "seconds", [UNIT_RATIO] = "ratio",
                                    [UNIT_CELSIUS] = "celsius", [UNIT_WATTS] = "watts",
                                    [UNIT_JOULES] = "joules"};
/* Digits of values behind the point. */
static const int unit_digits[] = {[UNIT_SECONDS] = 9, [UNIT_RATIO] = 9, [UNIT_WATTS] = 3, [UNIT_JOULES] = 3};

/* What a sample's name has beyond the family's. */
static const char *suffix_of(const struct family *family) {
  return family->type == FAMILY_COUNTER ? "_total" : family->type == FAMILY_INFO ? "_info" : "";
}

static const char *type_of(const struct scene *scene) {
  if (scene->family->type != FAMILY_INFO)
    return types[scene->family->type];
  return scene->dialect == DIALECT_OPENMETRICS ? "info" : "gauge";
}

static void begin_line(const struct scene *scene, const char *what) {
  const struct family *family = scene->family;
  bool suffix = scene->dialect == DIALECT_PROMETHEUS; /* there, a family is called as its samples are */
  fprintf(scene->out, "# %s %s%s ", what, family->name, suffix ? suffix_of(family) : "");
}

static void begin(const struct scene *scene) {
  begin_line(scene, "HELP");
  fprintf(scene->out, "%s\n", scene->family->help);
  begin_line(scene, "TYPE");
  fprintf(scene->out, "%s\n", type_of(scene));
  if (scene->dialect != DIALECT_OPENMETRICS || scene->family->unit == UNIT_NONE)
    return;
  begin_line(scene, "UNIT");
  fprintf(scene->out, "%s\n", units[scene->family->unit]);
}

static void put_character(FILE *out, char c) {
  if (c == '\\' || c == '"' || c == '\n')
    putc_unlocked('\\', out);
  if (c == '\n')
    putc_unlocked('n', out);
  else
    putc_unlocked(c >= ' ' && c <= '~' ? c : '?', out);
}

static void put_label(FILE *out, const struct label *label, char before) {
  putc_unlocked(before, out);
  fputs_unlocked(label->name, out);
  fputs_unlocked("=\"", out);
  for (const char *c = label->value; *c; c++)
    put_character(out, *c);
  putc_unlocked('"', out);
}

static void put_labels(const struct scene *scene, const struct label *more, size_t count) {
  size_t own = scene->label_count;
  for (size_t i = 0; i < own + count; i++)
    put_label(scene->out, i < own ? &scene->labels[i] : &more[i - own], i ? ',' : '{');
  if (own + count > 0)
    putc_unlocked('}', scene->out);
}

/* Without the zeros at the end, so that 1.5 is 1.5. */
static void format_decimal(char text[32], uint64_t value, int digits) {
  uint64_t one = 1;
  for (int i = 0; i < digits; i++)
    one *= 10;
  uint64_t fraction = value % one;
  for (; digits > 1 && fraction % 10 == 0; digits--)
    fraction /= 10;
  snprintf(text, 32, "%" PRIu64 ".%0*" PRIu64, value / one, digits, fraction);
}

/* The most frequent of all lines: so without fprintf, which takes as long as all else together. */
static void put_line(const struct scene *scene, const char *suffix, const struct label *more,
                     size_t more_count, const char *value) {
  FILE *out = scene->out;
  fputs_unlocked(scene->family->name, out);
  fputs_unlocked(suffix, out);
  put_labels(scene, more, more_count);
  putc_unlocked(' ', out);
  fputs_unlocked(value, out);
  putc_unlocked('\n', out);
}

static void put_sample(const struct scene *scene, const char *suffix, const struct label *more,
                       size_t more_count, uint64_t value) {
  enum family_unit unit = scene->family->unit;
  char text[32];
  if (unit <= UNIT_JOULES && unit_digits[unit])
    format_decimal(text, value, unit_digits[unit]);
  else
    snprintf(text, sizeof text, "%" PRIu64, value);
  put_line(scene, suffix, more, more_count, text);
}

static void put_value(const struct scene *scene, uint64_t value) {
  put_sample(scene, suffix_of(scene->family), NULL, 0, value);
}

static void put_with(const struct scene *scene, const char *label, const char *value_of_label,
                     uint64_t value) {
  put_sample(scene, suffix_of(scene->family), &(struct label){label, value_of_label}, 1, value);
}

static void put_info(const struct scene *scene, const struct label *labels, size_t count) {
  put_sample(scene, suffix_of(scene->family), labels, count, 1);
}

/* How many there are, whatever the family's unit. */
static void put_count(const struct scene *scene, const char *suffix, const char *bound, uint64_t count) {
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, count);
  put_line(scene, suffix, &(struct label){"le", bound}, bound ? 1 : 0, text);
}

static void put_histogram(const struct scene *scene, const uint64_t *bounds_ns, const uint64_t *counts,
                          size_t bounds, uint64_t sum_ns) {
  uint64_t count = 0;
  for (size_t i = 0; i <= bounds; i++) {
    char bound[32] = "+Inf";
    count += counts[i];
    if (i < bounds)
      format_decimal(bound, bounds_ns[i], unit_digits[UNIT_SECONDS]);
    put_count(scene, "_bucket", bound, count);
  }
  put_sample(scene, "_sum", NULL, 0, sum_ns);
  put_count(scene, "_count", NULL, count);
}

/* ---- what is measured ---- */

/* A row of one of the three tables below, each up to one whose family has no name. */
struct measure {
  struct family family;
  /* One of them: the value of its only sample, or what puts its samples. */
  uint64_t (*value)(const struct scene *scene);
  void (*put)(const struct scene *scene);
};

/* ---- of the daemon itself, and of the host ---- */

static void put_build(const struct scene *scene) {
  char protocol[16];
  snprintf(protocol, sizeof protocol, "%u", GS_PROTOCOL_VERSION);
  put_info(scene, (struct label[]){{"version", GPUSHARE_VERSION}, {"protocol", protocol}}, 2);
}

static uint64_t started(const struct scene *scene) { return scene->daemon->started_realtime_ns; }

static uint64_t cpu(const struct scene *scene) {
  (void)scene;
  return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static uint64_t clients(const struct scene *scene) { return scene->daemon->client_count; }

static uint64_t registered(const struct scene *scene) { return scene->daemon->registered_count; }

static void put_rejected(const struct scene *scene) {
  const struct daemon *daemon = scene->daemon;
  put_with(scene, "reason", "limit", daemon->rejected_counts[GS_REJECT_LIMIT]);
  put_with(scene, "reason", "version", daemon->rejected_counts[GS_REJECT_VERSION]);
  put_with(scene, "reason", "gpu", daemon->rejected_counts[GS_REJECT_GPU]);
  put_with(scene, "reason", "device", daemon->rejected_counts[GS_REJECT_DEVICE]);
}

/* Its name, or its number. */
static const char *user_of(uid_t uid, char number[16]) {
  const char *name = user_names_find(uid);
  snprintf(number, 16, "%" PRIu32, (uint32_t)uid);
  return name ? name : number;
}

/* Of each user the counter that stands there. */
static void put_users(const struct scene *scene, size_t at) {
  const struct users *accounts = scene->daemon->accounts;
  unsigned count = 0;
  for (size_t i = 0; accounts && i < USERS_BUCKETS; i++)
    list_each(node, &accounts->buckets[i]) {
      const struct user *user = list_entry(node, struct user, link);
      char uid[16];
      if (count++ == METRICS_USERS_MAX)
        return;
      const char *name = user_of(user->uid, uid);
      put_sample(scene, suffix_of(scene->family), (struct label[]){{"uid", uid}, {"user", name}}, 2,
                 *(const uint64_t *)(const void *)((const char *)user + at));
    }
}

static void put_handling(const struct scene *scene) {
  put_users(scene, offsetof(struct user, rota.handled_ns));
}
static void put_user_held(const struct scene *scene) { put_users(scene, offsetof(struct user, held_ns)); }
static void put_user_waited(const struct scene *scene) { put_users(scene, offsetof(struct user, waited_ns)); }
static void put_user_moved(const struct scene *scene) {
  put_users(scene, offsetof(struct user, moved_bytes));
}
static void put_user_energy(const struct scene *scene) { put_users(scene, offsetof(struct user, energy_mj)); }

static uint64_t host_capacity(const struct scene *scene) {
  return scene->daemon->scheduler.host_memory_bytes;
}

static uint64_t host_committed(const struct scene *scene) {
  return scheduler_overflow_bytes(&scene->daemon->scheduler);
}

static uint64_t unlisted(const struct scene *scene) {
  uint64_t count = 0;
  list_each(node, &scene->daemon->scheduler.gpus) {
    count += list_entry(node, struct sched_gpu, link)->job_count;
  }
  return count > METRICS_JOBS_MAX ? count - METRICS_JOBS_MAX : 0;
}

static const struct measure of_daemon[] = {
    {{"gpushare_build", FAMILY_INFO, UNIT_NONE, "Version of the daemon, and of the protocol that it speaks."},
     .put = put_build},
    {{"process_start_time_seconds", FAMILY_GAUGE, UNIT_SECONDS,
      "When the daemon started, since the Unix epoch."},
     .value = started},
    {{"process_cpu_seconds", FAMILY_COUNTER, UNIT_SECONDS, "CPU time that the daemon has used."},
     .value = cpu},
    {{"gpushare_clients", FAMILY_GAUGE, UNIT_NONE, "Programs that are connected."}, .value = clients},
    {{"gpushare_clients_registered", FAMILY_COUNTER, UNIT_NONE, "Programs that have connected so far."},
     .value = registered},
    {{"gpushare_clients_rejected", FAMILY_COUNTER, UNIT_NONE,
      "Programs that were turned away: too many of one user (limit), of another protocol version, on a GPU "
      "that the host has not (gpu), or without the GPU's device open (device)."},
     .put = put_rejected},
    {{"gpushare_user_handling_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "Time of the event loop that went into what a user's programs have asked for."},
     .put = put_handling},
    {{"gpushare_user_held_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "GPU time in which a user's jobs have held a GPU, to the minute."},
     .put = put_user_held},
    {{"gpushare_user_waited_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "Time in which a user's jobs have waited for a turn, to the minute."},
     .put = put_user_waited},
    {{"gpushare_user_moved_bytes", FAMILY_COUNTER, UNIT_BYTES,
      "Memory of a user's jobs that has left cards and come back, to the minute."},
     .put = put_user_moved},
    {{"gpushare_user_energy_joules", FAMILY_COUNTER, UNIT_JOULES,
      "Energy that GPUs have used while a user's jobs held them, about, to the minute; shared out among jobs "
      "that hold one together."},
     .put = put_user_energy},
    {{"gpushare_host_memory_capacity_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Host memory that may be used for what does not fit on the cards."},
     .value = host_capacity},
    {{"gpushare_host_memory_committed_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "By how much the memory of all jobs exceeds the capacity of their GPUs: so much must fit into host "
      "memory."},
     .value = host_committed},
    {{"gpushare_jobs_unlisted", FAMILY_GAUGE, UNIT_NONE,
      "Jobs on GPUs without samples of their own, because there are too many; the samples of their GPUs "
      "include them."},
     .value = unlisted},
    {.family.name = NULL},
};

/* ---- of each GPU: counters include the jobs that have left ---- */

static void put_gpu_info(const struct scene *scene) {
  const struct sched_gpu *gpu = scene->gpu;
  put_info(scene,
           (struct label[]){{"name", gpu->name},
                            {"mode", mode_name(gpu->settings.mode)},
                            {"policy", policy_name(gpu->settings.policy)}},
           3);
}

/* What NVML has told of the card lately. NULL: nothing. */
static const struct card_reading *reading_of(const struct scene *scene) {
  return card_query_find_reading(&scene->daemon->card_query, scene->gpu->uuid, scene->now_ns);
}

static void put_answers(const struct scene *scene) {
  if (gpu_of(scene->gpu)->known && card_query_has_readings(&scene->daemon->card_query, scene->now_ns))
    put_value(scene, reading_of(scene) != NULL);
}

/* A field of what the card does, times so much. */
#define DOES(function, what, field, times)                                                                   \
  static void function(const struct scene *scene) {                                                          \
    const struct card_reading *reading = reading_of(scene);                                                  \
    if (reading && reading->does.known & (what))                                                             \
      put_value(scene, reading->does.field *UINT64_C(times));                                                \
  }
DOES(put_temperature, NVML_TEMPERATURE, temperature_c, 1)
DOES(put_power, NVML_POWER, power_mw, 1)
DOES(put_energy, NVML_ENERGY, energy_mj, 1)
DOES(put_utilization, NVML_UTILIZATION, gpu_percent, 10000000)
DOES(put_memory_utilization, NVML_UTILIZATION, memory_percent, 10000000)

static void put_unshared(const struct scene *scene) {
  const struct card_reading *reading = reading_of(scene);
  if (reading && reading->processes_known)
    put_value(scene, reading->unshared);
}

static void put_unshared_memory(const struct scene *scene) {
  const struct card_reading *reading = reading_of(scene);
  if (reading && reading->processes_known)
    put_value(scene, reading->unshared_bytes);
}

static uint64_t quantum(const struct scene *scene) { return sched_gpu_tq_ns(scene->gpu); }

static uint64_t takes_turns(const struct scene *scene) { return scene->gpu->serialized; }

static uint64_t size(const struct scene *scene) { return scene->gpu->total_bytes; }
static uint64_t capacity(const struct scene *scene) { return sched_gpu_capacity_bytes(scene->gpu); }
static uint64_t overhead(const struct scene *scene) { return scene->gpu->overhead_bytes; }
static uint64_t pinned(const struct scene *scene) { return scene->gpu->pinned_bytes; }

static void put_gpu_memory(const struct scene *scene) {
  uint64_t card_bytes = scene->gpu->resident_bytes;
  put_with(scene, "place", "card", card_bytes);
  put_with(scene, "place", "away", scene->gpu->used_bytes - card_bytes);
}

static void put_jobs(const struct scene *scene) {
  for (unsigned i = 0; i <= GS_CLASS_OPPORTUNISTIC; i++)
    put_with(scene, "class", class_name(i), scene->gpu->class_counts[i]);
}

static uint64_t holders(const struct scene *scene) { return scene->gpu->holder_count; }
static uint64_t waiting(const struct scene *scene) { return scene->gpu->waiting_count; }

static void put_tallies(const struct scene *scene, uint64_t (*part)(const struct sched_tally *)) {
  for (unsigned i = 0; i <= GS_CLASS_OPPORTUNISTIC; i++) {
    struct sched_tally tally = sched_gpu_tally(scene->gpu, (enum gs_class)i, scene->now_ns);
    put_with(scene, "class", class_name(i), part(&tally));
  }
}

static uint64_t run_of(const struct sched_tally *tally) { return tally->run_ns; }
static uint64_t held_of(const struct sched_tally *tally) { return tally->held_ns; }
static uint64_t waited_of(const struct sched_tally *tally) { return tally->waited_ns; }
static uint64_t turns_of(const struct sched_tally *tally) { return tally->turns; }

static void put_run(const struct scene *scene) { put_tallies(scene, run_of); }
static void put_held(const struct scene *scene) { put_tallies(scene, held_of); }
static void put_waited(const struct scene *scene) { put_tallies(scene, waited_of); }
static void put_turns(const struct scene *scene) { put_tallies(scene, turns_of); }

static uint64_t handovers(const struct scene *scene) { return scene->gpu->handovers; }

static void put_costs(const struct scene *scene) {
  const struct sched_handover *handover = &scene->gpu->handover;
  put_histogram(scene, sched_cost_bounds_ns, handover->costs, SCHED_COST_BOUNDS,
                handover->sum.drain_ns + handover->sum.move_ns);
}

static void put_steps(const struct scene *scene) {
  const struct sched_cost *sum = &scene->gpu->handover.sum;
  put_with(scene, "step", "drain", sum->drain_ns);
  put_with(scene, "step", "move", sum->move_ns);
}

static void put_moved(const struct scene *scene) {
  put_with(scene, "direction", "evict", scene->gpu->evicted_bytes);
  put_with(scene, "direction", "restore", scene->gpu->restored_bytes);
}

static uint64_t hidden(const struct scene *scene) { return scene->gpu->handover.hidden_bytes; }

static uint64_t speed(const struct scene *scene) { return scene->gpu->handover.bytes_per_s; }

/* What has gone wrong, or not as wished. */
static void put_events(const struct scene *scene) {
#define X(name, value, word) [GS_EVENT_##name] = word,
  static const char *const words[] = {GS_EVENT_KINDS(X)};
#undef X
  for (unsigned kind = 0; kind < sizeof words / sizeof *words; kind++)
    if (kind == GS_EVENT_ATTACHED || kind == GS_EVENT_DETACHED ||
        (kind >= GS_EVENT_REFUSED && kind <= GS_EVENT_TOO_BIG))
      put_with(scene, "event", words[kind], gpu_of(scene->gpu)->event_counts[kind]);
}

static const struct measure of_gpus[] = {
    {{"gpushare_gpu", FAMILY_INFO, UNIT_NONE, "A GPU, and how it is shared."}, .put = put_gpu_info},
    {{"gpushare_gpu_quantum_seconds", FAMILY_GAUGE, UNIT_SECONDS,
      "How long a job keeps the GPU while others wait: as set, or as found."},
     .value = quantum},
    {{"gpushare_gpu_takes_turns", FAMILY_GAUGE, UNIT_NONE,
      "Whether jobs take turns (1), or all may use the GPU (0)."},
     .value = takes_turns},
    {{"gpushare_gpu_memory_size_bytes", FAMILY_GAUGE, UNIT_BYTES, "Memory of the card."}, .value = size},
    {{"gpushare_gpu_memory_capacity_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Memory of the card that all jobs together may use."},
     .value = capacity},
    {{"gpushare_gpu_memory_overhead_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Part of the capacity that the driver has refused: it has taken that much for itself."},
     .value = overhead},
    {{"gpushare_gpu_memory_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Memory that jobs have allocated, on the card and away in host memory."},
     .put = put_gpu_memory},
    {{"gpushare_gpu_memory_pinned_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Part of it that can never leave the card."},
     .value = pinned},
    {{"gpushare_gpu_jobs", FAMILY_GAUGE, UNIT_NONE, "Jobs on the GPU."}, .put = put_jobs},
    {{"gpushare_gpu_holders", FAMILY_GAUGE, UNIT_NONE, "Jobs that may use the GPU now."}, .value = holders},
    {{"gpushare_gpu_waiting", FAMILY_GAUGE, UNIT_NONE, "Jobs that wait for their turn."}, .value = waiting},
    {{"gpushare_gpu_run_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "GPU time of jobs: that they held the GPU with all that they need on the card. Several may at a time."},
     .put = put_run},
    {{"gpushare_gpu_held_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "Time for which jobs held the GPU, also while their memory was on its way."},
     .put = put_held},
    {{"gpushare_gpu_wait_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "Time for which jobs waited for their turn, summed over the jobs."},
     .put = put_waited},
    {{"gpushare_gpu_turns", FAMILY_COUNTER, UNIT_NONE, "Turns that jobs were given."}, .put = put_turns},
    {{"gpushare_gpu_handovers", FAMILY_COUNTER, UNIT_NONE,
      "Turns that went to another job than the turn before."},
     .value = handovers},
    {{"gpushare_gpu_handover_duration_seconds", FAMILY_HISTOGRAM, UNIT_SECONDS,
      "For how long the GPU stood idle at a time for turns to pass on: from the order to stop until the next "
      "job ran."},
     .put = put_costs},
    {{"gpushare_gpu_handover_step_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "The same by step: until the work of the one stood still, or had finished (drain), and until the "
      "memory of the next was there (move: out and in at the same time)."},
     .put = put_steps},
    {{"gpushare_gpu_moved_bytes", FAMILY_COUNTER, UNIT_BYTES,
      "Memory that was moved in bulk, off the card (evict) and back (restore)."},
     .put = put_moved},
    {{"gpushare_gpu_hidden_bytes", FAMILY_COUNTER, UNIT_BYTES,
      "Part of it that moved while a job ran, and so cost no time."},
     .value = hidden},
    {{"gpushare_gpu_restore_bytes_per_second", FAMILY_GAUGE, UNIT_BYTES_PER_SECOND,
      "How many bytes per second restores reach, on average; an assumption before the first large one."},
     .value = speed},
    {{"gpushare_gpu_job_events", FAMILY_COUNTER, UNIT_NONE,
      "What has happened to jobs: they came, left, were refused memory, did not stop when told, did not "
      "leave the card, or were too big for it."},
     .put = put_events},
    {{"gpushare_gpu_answers", FAMILY_GAUGE, UNIT_NONE,
      "Whether the card answers NVML (1), or is lost (0); programs can't use a lost one."},
     .put = put_answers},
    {{"gpushare_gpu_temperature_celsius", FAMILY_GAUGE, UNIT_CELSIUS, "Temperature of the GPU."},
     .put = put_temperature},
    {{"gpushare_gpu_power_watts", FAMILY_GAUGE, UNIT_WATTS, "Power that the card takes."}, .put = put_power},
    {{"gpushare_gpu_energy_joules", FAMILY_COUNTER, UNIT_JOULES,
      "Energy that the card has used since the driver was loaded."},
     .put = put_energy},
    {{"gpushare_gpu_utilization_ratio", FAMILY_GAUGE, UNIT_RATIO,
      "Part of the time in which some kernel ran, over the driver's last sample."},
     .put = put_utilization},
    {{"gpushare_gpu_memory_utilization_ratio", FAMILY_GAUGE, UNIT_RATIO,
      "Part of the time in which the memory of the card was read or written, likewise."},
     .put = put_memory_utilization},
    {{"gpushare_gpu_unshared_processes", FAMILY_GAUGE, UNIT_NONE,
      "Processes with a compute context on the card that are no jobs."},
     .put = put_unshared},
    {{"gpushare_gpu_unshared_memory_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Memory of the card that these processes have."},
     .put = put_unshared_memory},
    {.family.name = NULL},
};

/* ---- of each job on a GPU, while it is there ---- */

static void put_job_info(const struct scene *scene) {
  const struct attachment *attachment = attachment_of(scene->job);
  char pid[16], uid[16];
  snprintf(pid, sizeof pid, "%" PRId32, (int32_t)attachment->peer->pid);
  snprintf(uid, sizeof uid, "%" PRIu32, (uint32_t)attachment->peer->uid);
  put_info(scene, (struct label[]){{"pid", pid}, {"uid", uid}}, 2);
}

static void put_job_memory(const struct scene *scene) {
  const struct sched_job *job = scene->job;
  put_with(scene, "place", "card", job->resident_bytes);
  put_with(scene, "place", "away", job->used_bytes - job->resident_bytes);
}

static void put_pinned(const struct scene *scene) {
  uint64_t kind_bytes[GS_PINNED_COUNT];
  attachment_pinned(attachment_of(scene->job), kind_bytes);
  for (int kind = 0; kind < GS_PINNED_COUNT; kind++)
    if (kind_bytes[kind])
      put_with(scene, "kind", words_pinned_name((enum gs_pinned)kind), kind_bytes[kind]);
}

static uint64_t copies(const struct scene *scene) { return attachment_of(scene->job)->copies_bytes; }

static void put_memory_limit(const struct scene *scene) {
  if (scene->job->terms.limit_bytes)
    put_value(scene, scene->job->terms.limit_bytes);
}

static uint64_t holds(const struct scene *scene) { return scene->job->state == GS_JOB_HOLDING; }
static uint64_t waits(const struct scene *scene) { return scene->job->state == GS_JOB_WAITING; }

static uint64_t overdue(const struct scene *scene) {
  return (sched_job_flags(scene->job) & GS_STATE_OVERDUE) != 0;
}

static uint64_t run(const struct scene *scene) { return sched_job_gpu_ns(scene->job, scene->now_ns); }
static uint64_t held(const struct scene *scene) { return sched_job_held_ns(scene->job, scene->now_ns); }
static uint64_t waited(const struct scene *scene) { return sched_job_waited_ns(scene->job, scene->now_ns); }
static uint64_t turns(const struct scene *scene) { return scene->job->turns; }
static uint64_t moved(const struct scene *scene) { return scene->job->moved_bytes; }
static uint64_t job_energy(const struct scene *scene) { return attachment_of(scene->job)->counted.energy_mj; }

static void put_limit(const struct scene *scene) {
  const struct sched_job *job = scene->job;
  if (job->terms.class != GS_CLASS_OPPORTUNISTIC)
    return;
  struct rates_limit limit = rates_limit(&gpu_of(job->gpu)->rates, &attachment_of(job)->rates);
  put_value(scene, limit.limit);
}

static const struct measure of_jobs[] = {
    {{"gpushare_job", FAMILY_INFO, UNIT_NONE,
      "A job on a GPU: its process, and the number of its user, as the daemon sees them."},
     .put = put_job_info},
    {{"gpushare_job_memory_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Memory that the job has allocated, on the card and away in host memory."},
     .put = put_job_memory},
    {{"gpushare_job_memory_pinned_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Part of it that can't leave the card, by kind; only kinds that it has."},
     .put = put_pinned},
    {{"gpushare_job_host_copies_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Host memory with copies of what it has on the card: what has not changed leaves without being "
      "copied."},
     .value = copies},
    {{"gpushare_job_memory_limit_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "How much it may allocate; only of jobs with a limit."},
     .put = put_memory_limit},
    {{"gpushare_job_holds", FAMILY_GAUGE, UNIT_NONE, "Whether it may use the GPU now."}, .value = holds},
    {{"gpushare_job_waits", FAMILY_GAUGE, UNIT_NONE, "Whether it waits for its turn."}, .value = waits},
    {{"gpushare_job_overdue", FAMILY_GAUGE, UNIT_NONE,
      "Whether it has been told to stop, or to leave the card, and does not within the grace."},
     .value = overdue},
    {{"gpushare_job_run_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "GPU time: that it held the GPU with all that it needs on the card."},
     .value = run},
    {{"gpushare_job_held_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "Time for which it held the GPU, also while its memory was on its way."},
     .value = held},
    {{"gpushare_job_wait_seconds", FAMILY_COUNTER, UNIT_SECONDS, "Time for which it waited for its turn."},
     .value = waited},
    {{"gpushare_job_turns", FAMILY_COUNTER, UNIT_NONE, "Turns that it was given."}, .value = turns},
    {{"gpushare_job_moved_bytes", FAMILY_COUNTER, UNIT_BYTES,
      "Its memory that was moved in bulk, off the card and back."},
     .value = moved},
    {{"gpushare_job_energy_joules", FAMILY_COUNTER, UNIT_JOULES,
      "Energy that the GPU has used while the job held it, about, to the minute; shared out among jobs that "
      "hold it together."},
     .value = job_energy},
    {{"gpushare_job_limit_ratio", FAMILY_GAUGE, UNIT_RATIO,
      "Of an opportunistic job: how much of the GPU's time it may use beside production jobs."},
     .put = put_limit},
    {.family.name = NULL},
};

/* ---- a sample's labels ---- */

static void put(const struct measure *measure, const struct scene *scene) {
  if (measure->put)
    measure->put(scene);
  else
    put_value(scene, measure->value(scene));
}

static void add_label(struct scene *scene, const char *name, const char *value) {
  scene->labels[scene->label_count++] = (struct label){name, value};
}

/* Each is there, be it empty: a family's samples have the same labels. Their texts are as long as the fields
 * of the wire at most. */
static void put_of_job(const struct measure *measure, struct scene *scene) {
  const struct attachment *attachment = attachment_of(scene->job);
  const struct peer *peer = attachment->peer;
  const struct origin *origin = &peer->origin;
  struct pod_names pod = shares_pod_names(scene->daemon, scene->gpu, peer);
  char id[16], uid[16], job[GS_ORIGIN_SIZE];
  snprintf(id, sizeof id, "%" PRIu32, scene->job->id);
  snprintf(job, sizeof job, "%.*s", (int)strcspn(origin->name, "."), origin->name); /* without the step */
  add_label(scene, "job_id", id);
  add_label(scene, "name", peer->name);
  add_label(scene, "class", class_name(scene->job->terms.class));
  add_label(scene, "user", user_of(peer->uid, uid));
  add_label(scene, "namespace", pod.namespace);
  add_label(scene, "pod", pod.name);
  add_label(scene, "pod_uid", origin->kind == GS_ORIGIN_POD ? origin->name : "");
  add_label(scene, "container", origin->container);
  add_label(scene, "slurm_job", origin->kind == GS_ORIGIN_SLURM ? job : "");
  add_label(scene, "unit", origin->kind == GS_ORIGIN_UNIT ? origin->name : "");
  add_label(scene, "gang", attachment->gang ? attachment->gang->shown : "");
  put(measure, scene);
}

/* Of a GPU, or of a job on it. Not "job": so Prometheus calls what it has the samples from. */
static void put_labelled(const struct measure *measure, struct scene *scene) {
  char uuid[GS_UUID_TEXT_SIZE];
  gpu_number_format_uuid(gpu_of(scene->gpu)->number, scene->gpu->uuid, uuid);
  scene->label_count = 0;
  add_label(scene, "gpu", uuid);
  add_label(scene, "index", GPU_NUMBER_TEXT(gpu_of(scene->gpu)->number));
  if (scene->job)
    put_of_job(measure, scene);
  else
    put(measure, scene);
}

/* ---- the making, step by step ---- */

enum { OF_DAEMON, OF_GPUS, OF_JOBS, TABLES };
static const struct measure *const tables[TABLES] = {
    [OF_DAEMON] = of_daemon, [OF_GPUS] = of_gpus, [OF_JOBS] = of_jobs};

static void begin_family(struct metrics *metrics) {
  begin(
      &(struct scene){.out = metrics->out, .dialect = metrics->dialect, .family = &metrics->measure->family});
  metrics->jobs = 0;
  walk_begin(&metrics->daemon->metrics_walk, &metrics->daemon->scheduler.gpus);
}

/* Not open_memstream: it copies all that there is, and clears as much again, whenever it needs more room. */
static ssize_t append(void *cookie, const char *more, size_t size) {
  struct metrics *metrics = cookie;
  if (metrics->room - metrics->size < size) {
    size_t room = metrics->size + size + ROOM_STEP;
    char *grown = realloc(metrics->text, room);
    if (!grown)
      return 0;
    metrics->text = grown;
    metrics->room = room;
  }
  memcpy(metrics->text + metrics->size, more, size);
  metrics->size += size;
  return (ssize_t)size;
}

int metrics_begin(struct metrics *metrics, struct daemon *daemon, enum dialect dialect) {
  *metrics = (struct metrics){
      .daemon = daemon, .dialect = dialect, .table = OF_DAEMON, .measure = tables[OF_DAEMON]};
  metrics->out = fopencookie(metrics, "w", (cookie_io_functions_t){.write = append});
  if (!metrics->out)
    return -ENOMEM;
  card_query_want_readings(&daemon->card_query, clock_now_ns(), CARD_READ_WANTED_NS);
  begin_family(metrics);
  return 0;
}

/* The samples of one GPU, or of one job. False: the family has no more. */
static bool put_next(struct metrics *metrics, struct scene *scene) {
  struct walk *walk = &metrics->daemon->metrics_walk;
  struct sched_gpu *gpu;
  struct sched_job *job;
  while (metrics->jobs < METRICS_JOBS_MAX && walk_next(walk, &gpu, &job)) {
    scene->gpu = gpu;
    scene->job = job;
    if (metrics->table == OF_GPUS) {
      walk_skip_jobs(walk, gpu);
      scene->job = NULL;
    } else if (!job) {
      continue;
    }
    metrics->jobs += job && metrics->table == OF_JOBS;
    put_labelled(metrics->measure, scene);
    return true;
  }
  return false;
}

/* False: that was all. */
static bool step(struct metrics *metrics, uint64_t now_ns) {
  struct scene scene = {.daemon = metrics->daemon,
                        .now_ns = now_ns,
                        .out = metrics->out,
                        .dialect = metrics->dialect,
                        .family = &metrics->measure->family};
  if (metrics->table == OF_DAEMON)
    put(metrics->measure, &scene);
  else if (put_next(metrics, &scene))
    return true;
  metrics->measure++;
  if (!metrics->measure->family.name) {
    if (++metrics->table == TABLES)
      return false;
    metrics->measure = tables[metrics->table];
  }
  begin_family(metrics);
  return true;
}

bool metrics_go_on(struct metrics *metrics, uint64_t now_ns, uint64_t until_ns) {
  for (unsigned i = 1; step(metrics, now_ns); i++)
    if (i % STEPS_PER_LOOK == 0 && clock_now_ns() >= until_ns)
      return false;
  if (metrics->dialect == DIALECT_OPENMETRICS)
    fputs("# EOF\n", metrics->out);
  return true;
}

char *metrics_take(struct metrics *metrics, size_t *size) {
  FILE *out = metrics->out;
  bool failed = ferror(out);
  failed |= fclose(out) != 0;
  failed |= append(metrics, "", 1) == 0; /* for those who read it as a string */
  char *text = metrics->text;
  *size = metrics->size - 1;
  *metrics = (struct metrics){.text = NULL};
  if (!failed)
    return text;
  free(text);
  return NULL;
}

char *metrics_text(struct daemon *daemon, enum dialect dialect, uint64_t now_ns, size_t *size) {
  struct metrics metrics;
  if (metrics_begin(&metrics, daemon, dialect) < 0)
    return NULL;
  metrics_go_on(&metrics, now_ns, UINT64_MAX);
  return metrics_take(&metrics, size);
}
