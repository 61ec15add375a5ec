/* managed.c - unified memory as the GPU sees it: faults, remote access, prefetch, discard; see managed.h. */
#include "managed.h"

#include <string.h>
#include <sys/mman.h>

#include "engine.h"
#include "frames.h"
#include "memory.h"

/* ---- access by the GPU ---- */

struct touch {
  unsigned gpu;
  uint64_t cost_ns;
};

static void touch_remote(struct touch *touch, struct page *page) {
  page->populated = true;
  process_count(touch->gpu, GS_SIM_remote_bytes, PAGE_BYTES);
  touch->cost_ns += card_cost_ns(&sim.card, PAGE_BYTES, sim.card.remote_gbps);
}

/* A page that wants to stay in host memory, or is mapped for this card where it is, is not moved by an
 * access. */
static bool page_stays_remote(const struct page *page, unsigned gpu) {
  return page->preferred == PREFER_HOST || (page->populated && (page->accessed_by & (1u << gpu)));
}

static void touch_arrived(struct touch *touch, struct page *page, uint64_t evicted) {
  double gbps = page->populated ? sim.card.fault_gbps : sim.card.first_touch_gbps;
  process_count(touch->gpu, GS_SIM_faults, 1);
  process_count(touch->gpu, page->populated ? GS_SIM_fault_bytes : GS_SIM_first_touch_bytes, PAGE_BYTES);
  touch->cost_ns += card_cost_ns(&sim.card, PAGE_BYTES, gbps);
  touch->cost_ns += card_cost_ns(&sim.card, evicted * PAGE_BYTES, sim.card.evict_gbps);
  page->populated = true;
  page->gpu = (int8_t)touch->gpu;
}

static enum page_visit touch_page(struct page *page, uint64_t key, void *context) {
  struct touch *touch = context;
  uint64_t evicted = 0;
  if (page->gpu != PAGE_NO_GPU && frames_resident((unsigned)page->gpu, key, page->frame)) {
    if (page->gpu == (int8_t)touch->gpu)
      return VISIT_GO_ON;
    if (!page_stays_remote(page, touch->gpu))
      frames_drop((unsigned)page->gpu, key, page->frame);
  }
  if (page_stays_remote(page, touch->gpu)) {
    touch_remote(touch, page);
    return VISIT_GO_ON;
  }
  bool preferred = page->preferred == (int8_t)touch->gpu;
  if (frames_admit(touch->gpu, key, &page->frame, preferred, false, &evicted) == ARRIVAL_NO_ROOM)
    touch_remote(touch, page);
  else
    touch_arrived(touch, page, evicted);
  return VISIT_GO_ON;
}

uint64_t managed_touch(CUdeviceptr address, size_t bytes, unsigned gpu) {
  struct touch touch = {.gpu = gpu};
  if (sim.card.concurrent_managed_access)
    memory_visit_pages(address, bytes, touch_page, &touch);
  return touch.cost_ns;
}

/* ---- prefetch, one page at a time so that the engine can be shared ---- */

struct move {
  int8_t to; /* a card, or PREFER_HOST */
  uint64_t cost_ns;
};

static void prefetch_out(struct move *move, struct page *page, uint64_t key) {
  unsigned gpu = (unsigned)page->gpu;
  page->populated = true;
  if (page->gpu == PAGE_NO_GPU || !frames_drop(gpu, key, page->frame))
    return;
  page->gpu = PAGE_NO_GPU;
  process_count(gpu, GS_SIM_prefetched_out_bytes, PAGE_BYTES);
  move->cost_ns += card_cost_ns(&sim.card, PAGE_BYTES, sim.card.prefetch_out_gbps);
}

static void prefetch_in(struct move *move, struct page *page, uint64_t key) {
  unsigned gpu = (unsigned)move->to;
  uint64_t evicted = 0;
  if (page->gpu != PAGE_NO_GPU && page->gpu != move->to)
    frames_drop((unsigned)page->gpu, key, page->frame);
  enum arrival arrival = frames_admit(gpu, key, &page->frame, page->preferred == move->to, true, &evicted);
  if (arrival != ARRIVAL_NEW)
    return;
  page->gpu = move->to;
  move->cost_ns += card_cost_ns(&sim.card, evicted * PAGE_BYTES, sim.card.evict_gbps);
  if (!page->populated)
    return; /* new zeroes: made on the card, not moved */
  process_count(gpu, GS_SIM_prefetched_in_bytes, PAGE_BYTES);
  move->cost_ns += card_cost_ns(&sim.card, PAGE_BYTES, sim.card.prefetch_in_gbps);
}

static enum page_visit prefetch_page(struct page *page, uint64_t key, void *context) {
  struct move *move = context;
  page->last_prefetch = move->to;
  if (move->to == PREFER_HOST)
    prefetch_out(move, page, key);
  else
    prefetch_in(move, page, key);
  return VISIT_GO_ON;
}

uint64_t managed_prefetch(CUdeviceptr address, size_t bytes, int to, unsigned gpu, uint64_t due_ns) {
  struct engine_session session;
  CUdeviceptr end = address + bytes;
  engine_begin(&session, gpu, to == PREFER_HOST ? ENGINE_OUT : ENGINE_IN, (struct rm_channel){0}, due_ns);
  for (CUdeviceptr at = address; at < end; at = (at / PAGE_BYTES + 1) * PAGE_BYTES) {
    struct move move = {.to = (int8_t)to};
    memory_visit_pages(at, 1, prefetch_page, &move);
    engine_spend(&session, move.cost_ns);
  }
  process_count(gpu, GS_SIM_prefetches, 1);
  return engine_end(&session);
}

/* ---- discard ---- */

static enum page_visit discard_page(struct page *page, uint64_t key, void *context) {
  unsigned *gpu = context;
  if (page->gpu != PAGE_NO_GPU)
    frames_drop((unsigned)page->gpu, key, page->frame);
  page->gpu = PAGE_NO_GPU;
  page->populated = false;
  process_count(*gpu, GS_SIM_discarded_bytes, PAGE_BYTES);
  return VISIT_GO_ON;
}

/* Garbage, which no program has written: one that still needs the contents fails. */
static void spoil(CUdeviceptr from, CUdeviceptr to) { memset((void *)(uintptr_t)from, 0xD5, to - from); }

/* Only whole pages lose their contents. */
void managed_discard(CUdeviceptr address, size_t bytes, unsigned gpu) {
  CUdeviceptr from = (address + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
              to = (address + bytes) / PAGE_BYTES * PAGE_BYTES;
  process_note_start(gpu);
  if (from >= to)
    return;
  memory_visit_pages(from, to - from, discard_page, &gpu);
  spoil(from, to);
}

/* ---- advice and questions ---- */

static enum page_visit advise_page(struct page *page, uint64_t key, void *context) {
  const struct managed_advice *advice = context;
  uint8_t bit = advice->place >= 0 ? (uint8_t)(1u << advice->place) : 0;
  (void)key;
  switch (advice->advice) {
  case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
    page->preferred = (int8_t)advice->place;
    break;
  case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
    page->preferred = PREFER_NOTHING;
    break;
  case CU_MEM_ADVISE_SET_ACCESSED_BY:
    page->accessed_by |= bit;
    break;
  case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
    page->accessed_by &= (uint8_t)~bit;
    break;
  default:
    break;
  }
  return VISIT_GO_ON;
}

void managed_advise(CUdeviceptr address, size_t bytes, struct managed_advice *advice) {
  memory_visit_pages(address, bytes, advise_page, advice);
}

static enum page_visit range_page(struct page *page, uint64_t key, void *context) {
  struct managed_range *range = context;
  if (range->pages == 0) {
    range->preferred = page->preferred;
    range->last_prefetch = page->last_prefetch;
    range->accessed_by = page->accessed_by;
  }
  if (range->preferred != page->preferred)
    range->preferred = PREFER_NOTHING;
  if (range->last_prefetch != page->last_prefetch)
    range->last_prefetch = PREFER_NOTHING;
  range->accessed_by &= page->accessed_by;
  if (page->gpu != PAGE_NO_GPU && frames_resident((unsigned)page->gpu, key, page->frame))
    range->resident_pages++;
  range->pages++;
  return VISIT_GO_ON;
}

void managed_range(CUdeviceptr address, size_t bytes, struct managed_range *range) {
  *range = (struct managed_range){.preferred = PREFER_NOTHING, .last_prefetch = PREFER_NOTHING};
  memory_visit_pages(address, bytes, range_page, range);
}

uint64_t gs_sim_resident_bytes(uint64_t device_pointer, uint64_t bytes) {
  struct managed_range range;
  if (process_check() != CUDA_SUCCESS)
    return 0;
  managed_range(device_pointer, bytes, &range);
  return range.resident_pages * PAGE_BYTES;
}
