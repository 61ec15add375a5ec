/* reader.c - the counters for tests: gs_sim_*() of sim.h that only need the state file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

/* The state that this process has opened itself, if it is a driver; else NULL. */
extern struct state *sim_own_state __attribute__((weak));

struct view {
  struct state *state;
  bool owned;
};

static int view_open(struct view *view, const char *path) {
  char chosen[256];
  *view = (struct view){0};
  if (path == NULL && &sim_own_state && sim_own_state) {
    view->state = sim_own_state;
    return 0;
  }
  if (path == NULL) {
    struct card card;
    if (card_load(&card, getenv("GPUSHARE_SIM_CARD")) != 0)
      return -ENOENT;
    state_default_path(chosen, sizeof(chosen), card.name);
    path = chosen;
  }
  view->owned = true;
  return state_open(&view->state, path, NULL);
}

static void view_close(struct view *view) {
  if (view->owned)
    state_close(view->state);
}

static void copy_counters(uint64_t *to, _Atomic uint64_t *from) {
  for (int c = 0; c < GS_SIM_COUNTER_COUNT; c++)
    to[c] = atomic_load(&from[c]);
}

/* Living processes with work in flight on the GPU. */
static uint64_t processes_in_flight(struct state *state, unsigned gpu) {
  uint64_t found = 0;
  for (int i = 0; i < STATE_SLOTS; i++)
    if (atomic_load(&state->slots[i].in_flight[gpu]) > 0)
      found++;
  return found;
}

static void card_fill(struct state *state, unsigned index, struct gs_sim_card *card) {
  struct gpu_state *gpu = &state->gpu[index];
  card->capacity_bytes = gpu->capacity_bytes;
  card->pinned_bytes = atomic_load(&gpu->pinned_bytes);
  card->resident_bytes = atomic_load(&gpu->used_frames) * PAGE_BYTES;
  card->processes_in_flight = processes_in_flight(state, index);
  card->overlap_pid = atomic_load(&gpu->overlap_pid);
  card->overlap_other_pid = atomic_load(&gpu->overlap_other_pid);
  copy_counters(card->counters, gpu->counters);
}

static void refresh(struct state *state) {
  state_lock(state);
  state_reap(state);
  state_unlock(state);
}

int gs_sim_card_read(const char *state, unsigned gpu, struct gs_sim_card *card) {
  struct view view;
  int result = view_open(&view, state);
  if (result != 0)
    return result;
  if (gpu >= view.state->gpus) {
    result = -ENOENT;
  } else {
    refresh(view.state);
    card_fill(view.state, gpu, card);
  }
  view_close(&view);
  return result;
}

/* The youngest slot that had the pid. */
static struct slot *slot_find(struct state *state, pid_t pid) {
  struct slot *found = NULL;
  for (int i = 0; i < STATE_SLOTS; i++) {
    struct slot *slot = &state->slots[i];
    if (atomic_load(&slot->pid) == pid && (found == NULL || slot->born > found->born))
      found = slot;
  }
  return found;
}

static void process_fill(struct slot *slot, unsigned gpu, struct gs_sim_process *process) {
  process->pid = atomic_load(&slot->pid);
  process->alive = atomic_load(&slot->alive);
  process->mps = atomic_load(&slot->mps);
  process->mps_priority = atomic_load(&slot->mps_priority);
  process->mps_percent = atomic_load(&slot->mps_percent);
  process->pinned_bytes = atomic_load(&slot->pinned_bytes[gpu]);
  process->resident_bytes = atomic_load(&slot->frames[gpu]) * PAGE_BYTES;
  process->in_flight = atomic_load(&slot->in_flight[gpu]);
  copy_counters(process->counters, slot->counters[gpu]);
}

int gs_sim_process_read(const char *state, pid_t pid, unsigned gpu, struct gs_sim_process *process) {
  struct view view;
  int result = view_open(&view, state);
  if (result != 0)
    return result;
  refresh(view.state);
  struct slot *slot = slot_find(view.state, pid);
  if (slot == NULL || gpu >= view.state->gpus)
    result = -ENOENT;
  else
    process_fill(slot, gpu, process);
  view_close(&view);
  return result;
}

static int by_birth(const void *a, const void *b) {
  const struct slot *x = *(struct slot *const *)a, *y = *(struct slot *const *)b;
  return (x->born > y->born) - (x->born < y->born);
}

int gs_sim_processes(const char *state, pid_t *pids, int max) {
  struct view view;
  struct slot *slots[STATE_SLOTS];
  int found = 0, result = view_open(&view, state);
  if (result != 0)
    return result;
  for (int i = 0; i < STATE_SLOTS; i++)
    if (atomic_load(&view.state->slots[i].pid) != 0)
      slots[found++] = &view.state->slots[i];
  qsort(slots, (size_t)found, sizeof(slots[0]), by_birth);
  for (int i = 0; i < found && i < max; i++)
    pids[i] = atomic_load(&slots[i]->pid);
  view_close(&view);
  return found;
}

static void counters_clear(_Atomic uint64_t *counters) {
  for (int c = 0; c < GS_SIM_COUNTER_COUNT; c++)
    atomic_store(&counters[c], 0);
}

int gs_sim_reset(const char *state) {
  struct view view;
  int result = view_open(&view, state);
  if (result != 0)
    return result;
  for (unsigned g = 0; g < view.state->gpus; g++) {
    counters_clear(view.state->gpu[g].counters);
    for (int i = 0; i < STATE_SLOTS; i++)
      counters_clear(view.state->slots[i].counters[g]);
  }
  view_close(&view);
  return 0;
}

const char *gs_sim_counter_name(enum gs_sim_counter counter) {
  static const char *const names[] = {
#define X(name) #name,
      GS_SIM_COUNTERS(X)
#undef X
  };
  return counter < GS_SIM_COUNTER_COUNT ? names[counter] : "?";
}
