/* copy_run.c - doing copies and memory sets: real bytes, faults of managed pages, time on the right engine.
 */
#include <string.h>

#include "channels.h"
#include "engine.h"
#include "managed.h"
#include "vmm.h"
#include "work.h"

enum place { PLACE_PAGEABLE, PLACE_PINNED, PLACE_PLAIN, PLACE_MAPPED, PLACE_MANAGED };

static enum place place_of(uintptr_t at) {
  struct memory_info info;
  if (!memory_find(at, &info))
    return PLACE_PAGEABLE;
  if (!memory_is_device(&info))
    return PLACE_PINNED;
  return info.kind == MEMORY_MANAGED    ? PLACE_MANAGED
         : info.kind == MEMORY_RESERVED ? PLACE_MAPPED
                                        : PLACE_PLAIN;
}

/* What the page tables would tell as well, but without a word. */
static void check_mapped(enum place place, uintptr_t at, size_t bytes) {
  if (place != PLACE_MAPPED)
    return;
  if (vmm_lacks(at, bytes))
    process_illegal_address(at, "copy or memory set");
  vmm_touch(at, bytes);
}

static bool on_card(enum place place) { return place >= PLACE_PLAIN; }

struct route {
  enum engine_kind engine;
  enum gs_sim_counter counter;
  double gbps;
  enum place from, to;
};

static struct route route_of(const struct work *work) {
  struct route route = {.from = place_of(work->copy.from.at), .to = place_of(work->copy.to.at)};
  if (on_card(route.from) && on_card(route.to)) {
    route.engine = ENGINE_COMPUTE;
    route.counter = GS_SIM_copied_within_bytes;
    route.gbps = sim.card.memory_gbps / 2; /* read and written */
  } else if (on_card(route.from)) {
    route.engine = ENGINE_OUT;
    route.counter = GS_SIM_copied_out_bytes;
    route.gbps = route.to == PLACE_PINNED ? sim.card.copy_out_pinned_gbps : sim.card.copy_out_pageable_gbps;
  } else {
    route.engine = ENGINE_IN;
    route.counter = GS_SIM_copied_in_bytes;
    route.gbps = route.from == PLACE_PINNED ? sim.card.copy_in_pinned_gbps : sim.card.copy_in_pageable_gbps;
  }
  return route;
}

static void piece_copy(const struct work *work, const struct route *route, struct engine_session *session,
                       uintptr_t to, uintptr_t from, size_t bytes) {
  uint64_t cost_ns = card_cost_ns(&sim.card, bytes, route->gbps);
  if (route->from == PLACE_MANAGED)
    cost_ns += managed_touch(from, bytes, work->gpu);
  if (route->to == PLACE_MANAGED)
    cost_ns += managed_touch(to, bytes, work->gpu);
  check_mapped(route->from, from, bytes);
  check_mapped(route->to, to, bytes);
  memmove((void *)to, (const void *)from, bytes);
  process_count(work->gpu, route->counter, bytes);
  if (route->from == PLACE_PAGEABLE || route->to == PLACE_PAGEABLE)
    process_count(work->gpu, GS_SIM_copied_pageable_bytes, bytes);
  engine_spend(session, cost_ns);
}

static void row_copy(const struct work *work, const struct route *route, struct engine_session *session,
                     size_t y, size_t z) {
  const struct work_side *f = &work->copy.from, *t = &work->copy.to;
  uintptr_t from = f->at + z * f->slice + y * f->pitch, to = t->at + z * t->slice + y * t->pitch;
  for (size_t done = 0, piece; done < work->copy.width; done += piece) {
    piece = work->copy.width - done < PAGE_BYTES ? work->copy.width - done : PAGE_BYTES;
    piece_copy(work, route, session, to + done, from + done, piece);
  }
}

uint64_t copy_run(const struct work *work, uint64_t due_ns) {
  struct engine_session session;
  const struct route route = route_of(work);
  engine_begin(&session, work->gpu, route.engine, channel_for(route.engine), due_ns);
  for (size_t z = 0; z < work->copy.depth; z++)
    for (size_t y = 0; y < work->copy.height; y++)
      row_copy(work, &route, &session, y, z);
  process_count(work->gpu, GS_SIM_copies, 1);
  return engine_end(&session);
}

/* ---- sets ---- */

static void piece_set(const struct work *work, uintptr_t at, size_t bytes) {
  switch (work->set.element_bytes) {
  case 1:
    memset((void *)at, (int)(work->set.value & 0xff), bytes);
    return;
  case 2:
    for (size_t i = 0; i < bytes / 2; i++)
      ((uint16_t *)at)[i] = (uint16_t)work->set.value;
    return;
  default:
    for (size_t i = 0; i < bytes / 4; i++)
      ((uint32_t *)at)[i] = work->set.value;
  }
}

static void row_set(const struct work *work, struct engine_session *session, uintptr_t at, enum place place) {
  size_t bytes = work->set.width * work->set.element_bytes;
  for (size_t done = 0, piece; done < bytes; done += piece) {
    piece = bytes - done < PAGE_BYTES ? bytes - done : PAGE_BYTES;
    uint64_t cost_ns = card_cost_ns(&sim.card, piece, sim.card.memory_gbps);
    if (place == PLACE_MANAGED)
      cost_ns += managed_touch(at + done, piece, work->gpu);
    check_mapped(place, at + done, piece);
    piece_set(work, at + done, piece);
    engine_spend(session, cost_ns);
  }
}

uint64_t set_run(const struct work *work, uint64_t due_ns) {
  struct engine_session session;
  enum place place = place_of(work->set.at);
  engine_begin(&session, work->gpu, ENGINE_COMPUTE, channel_for(ENGINE_COMPUTE), due_ns);
  for (size_t y = 0; y < work->set.height; y++)
    row_set(work, &session, work->set.at + y * work->set.pitch, place);
  process_count(work->gpu, GS_SIM_copies, 1);
  return engine_end(&session);
}
