/* frames.c - arrivals and evictions on a card, over all processes. */
#include "frames.h"

#include <errno.h>

#include "process.h"

static bool frame_is(unsigned gpu, int32_t index, uint64_t key) {
  const struct gpu_state *card = &sim.state->gpu[gpu];
  if (index < (int32_t)card->first_frame || index >= (int32_t)(card->first_frame + card->frame_count))
    return false;
  const struct frame *frame = &sim.state->frames[index];
  return frame->slot == sim.slot_index && frame->key == key;
}

static uint64_t room(const struct gpu_state *card) {
  uint64_t taken = atomic_load(&card->pinned_bytes) + atomic_load(&card->used_frames) * PAGE_BYTES;
  return taken < card->capacity_bytes ? card->capacity_bytes - taken : 0;
}

/* The page that is to leave next goes. False if there is none. */
static bool evict_one(unsigned gpu) {
  struct gpu_state *card = &sim.state->gpu[gpu];
  int32_t victim = card->lru[0].head != FRAME_NONE ? card->lru[0].head : card->lru[1].head;
  if (victim == FRAME_NONE)
    return false;
  struct slot *owner = &sim.state->slots[sim.state->frames[victim].slot];
  count(&owner->counters[gpu][GS_SIM_evicted_bytes], PAGE_BYTES);
  count(&card->counters[GS_SIM_evicted_bytes], PAGE_BYTES);
  frame_free(sim.state, card, victim);
  return true;
}

/* The state is locked. */
static bool make_room(unsigned gpu, uint64_t bytes, uint64_t *evicted) {
  struct gpu_state *card = &sim.state->gpu[gpu];
  *evicted = 0;
  if (room(card) >= bytes)
    return true;
  state_reap(sim.state);
  if (atomic_load(&card->pinned_bytes) + bytes > card->capacity_bytes)
    return false;
  for (; room(card) < bytes; (*evicted)++)
    if (!evict_one(gpu))
      return false;
  return true;
}

static void frame_stamp(struct gpu_state *card, int32_t index, bool preferred) {
  struct frame *frame = &sim.state->frames[index];
  frame->stamp = ++card->stamp;
  frame->preferred = preferred;
  frame_append(sim.state, &card->lru[preferred], index);
}

static int32_t frame_take(unsigned gpu, uint64_t key, bool preferred) {
  struct gpu_state *card = &sim.state->gpu[gpu];
  int32_t index = card->free.head;
  frame_unlink(sim.state, card, index);
  sim.state->frames[index].slot = sim.slot_index;
  sim.state->frames[index].key = key;
  frame_stamp(card, index, preferred);
  count(&card->used_frames, 1);
  count(&sim.slot->frames[gpu], 1);
  return index;
}

static enum arrival admit_locked(unsigned gpu, uint64_t key, int32_t *frame, bool preferred, bool refresh,
                                 uint64_t *evicted) {
  struct gpu_state *card = &sim.state->gpu[gpu];
  *evicted = 0;
  if (frame_is(gpu, *frame, key)) {
    if (refresh) {
      frame_unlink(sim.state, card, *frame);
      frame_stamp(card, *frame, preferred);
    }
    return ARRIVAL_PRESENT;
  }
  if (!make_room(gpu, PAGE_BYTES, evicted) || card->free.head == FRAME_NONE)
    return ARRIVAL_NO_ROOM;
  *frame = frame_take(gpu, key, preferred);
  return ARRIVAL_NEW;
}

enum arrival frames_admit(unsigned gpu, uint64_t key, int32_t *frame, bool preferred, bool refresh,
                          uint64_t *evicted) {
  state_lock(sim.state);
  enum arrival arrival = admit_locked(gpu, key, frame, preferred, refresh, evicted);
  state_unlock(sim.state);
  return arrival;
}

bool frames_resident(unsigned gpu, uint64_t key, int32_t frame) {
  state_lock(sim.state);
  bool resident = frame_is(gpu, frame, key);
  state_unlock(sim.state);
  return resident;
}

bool frames_drop(unsigned gpu, uint64_t key, int32_t frame) {
  state_lock(sim.state);
  bool resident = frame_is(gpu, frame, key);
  if (resident)
    frame_free(sim.state, &sim.state->gpu[gpu], frame);
  state_unlock(sim.state);
  return resident;
}

int frames_pin(unsigned gpu, uint64_t bytes, uint64_t *evicted) {
  state_lock(sim.state);
  bool fits = make_room(gpu, bytes, evicted);
  if (fits) {
    count(&sim.state->gpu[gpu].pinned_bytes, bytes);
    count(&sim.slot->pinned_bytes[gpu], bytes);
  }
  state_unlock(sim.state);
  return fits ? 0 : -ENOMEM;
}

void frames_unpin(unsigned gpu, uint64_t bytes) {
  state_lock(sim.state);
  atomic_fetch_sub(&sim.state->gpu[gpu].pinned_bytes, bytes);
  atomic_fetch_sub(&sim.slot->pinned_bytes[gpu], bytes);
  state_unlock(sim.state);
}

uint64_t frames_free_bytes(unsigned gpu) {
  state_lock(sim.state);
  state_reap(sim.state);
  uint64_t bytes = room(&sim.state->gpu[gpu]);
  state_unlock(sim.state);
  return bytes;
}
