/* gpu_measures.c - what is measured of each GPU. Counters include the jobs that have left. */
#include "common/gpu_number.h"
#include "common/parse.h"
#include "metrics/measures.h"

/* ---- what it is, and is set to ---- */

static void put_info(const struct scene *scene) {
  const struct sched_gpu *gpu = scene->gpu;
  exposition_put_info(scene->exposition,
                      (struct label[]){{"index", GPU_NUMBER_TEXT(gpu_of(gpu)->number)},
                                       {"name", gpu->name},
                                       {"mode", mode_name(gpu->settings.mode)},
                                       {"policy", policy_name(gpu->settings.policy)}},
                      4);
}

static uint64_t quantum(const struct scene *scene) { return sched_gpu_tq_ns(scene->gpu); }

static uint64_t takes_turns(const struct scene *scene) { return scene->gpu->serialized; }

/* ---- memory ---- */

static uint64_t size(const struct scene *scene) { return scene->gpu->total_bytes; }
static uint64_t capacity(const struct scene *scene) { return sched_gpu_capacity_bytes(scene->gpu); }
static uint64_t overhead(const struct scene *scene) { return scene->gpu->overhead_bytes; }
static uint64_t pinned(const struct scene *scene) { return scene->gpu->pinned_bytes; }

static void put_memory(const struct scene *scene) {
  uint64_t card_bytes = scene->gpu->resident_bytes;
  exposition_put_with(scene->exposition, "place", "card", card_bytes);
  exposition_put_with(scene->exposition, "place", "away", scene->gpu->used_bytes - card_bytes);
}

/* ---- jobs ---- */

static void put_jobs(const struct scene *scene) {
  for (unsigned i = 0; i <= GS_CLASS_OPPORTUNISTIC; i++)
    exposition_put_with(scene->exposition, "class", class_name(i), scene->gpu->class_counts[i]);
}

static uint64_t holders(const struct scene *scene) { return scene->gpu->holder_count; }
static uint64_t waiting(const struct scene *scene) { return scene->gpu->waiting_count; }

static void put_tallies(const struct scene *scene, uint64_t (*part)(const struct sched_tally *)) {
  for (unsigned i = 0; i <= GS_CLASS_OPPORTUNISTIC; i++) {
    struct sched_tally tally = sched_gpu_tally(scene->gpu, (enum gs_class)i, scene->now_ns);
    exposition_put_with(scene->exposition, "class", class_name(i), part(&tally));
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

/* ---- hand-overs ---- */

static uint64_t handovers(const struct scene *scene) { return scene->gpu->handovers; }

static void put_costs(const struct scene *scene) {
  const struct sched_handover *handover = &scene->gpu->handover;
  exposition_put_histogram(scene->exposition, sched_cost_bounds_ns, handover->costs, SCHED_COST_BOUNDS,
                           handover->sum.drain_ns + handover->sum.move_ns);
}

static void put_steps(const struct scene *scene) {
  const struct sched_cost *sum = &scene->gpu->handover.sum;
  exposition_put_with(scene->exposition, "step", "drain", sum->drain_ns);
  exposition_put_with(scene->exposition, "step", "move", sum->move_ns);
}

static void put_moved(const struct scene *scene) {
  exposition_put_with(scene->exposition, "direction", "evict", scene->gpu->evicted_bytes);
  exposition_put_with(scene->exposition, "direction", "restore", scene->gpu->restored_bytes);
}

static uint64_t hidden(const struct scene *scene) { return scene->gpu->handover.hidden_bytes; }

static uint64_t speed(const struct scene *scene) { return scene->gpu->handover.bytes_per_s; }

/* ---- what has gone wrong, or not as wished ---- */

static void put_events(const struct scene *scene) {
  static const struct {
    enum gs_event_kind kind;
    const char *word;
  } told[] = {
#define X(name, value, word) {GS_EVENT_##name, word},
      GS_EVENT_KINDS(X)
#undef X
  };
  for (size_t i = 0; i < sizeof told / sizeof *told; i++)
    if (told[i].kind == GS_EVENT_ATTACHED || told[i].kind == GS_EVENT_DETACHED ||
        (told[i].kind >= GS_EVENT_REFUSED && told[i].kind <= GS_EVENT_TOO_BIG))
      exposition_put_with(scene->exposition, "event", told[i].word,
                          gpu_of(scene->gpu)->event_counts[told[i].kind]);
}

const struct measure measures_of_gpu[] = {
    {{"gpushare_gpu", FAMILY_INFO, UNIT_NONE, "A GPU, and how it is shared."}, .put = put_info},
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
     .put = put_memory},
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
    {.family.name = NULL},
};
