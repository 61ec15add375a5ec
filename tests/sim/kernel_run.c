/* kernel_run.c - the built-in kernels of kernels.h, computed for real, page by page, on the compute engine.
 */
#include <string.h>

#include "engine.h"
#include "kernel.h"
#include "kernels.h"
#include "managed.h"
#include "memory/swap/hash.h"
#include "vmm.h"

enum { SPIN_PIECE_NS = 100 * 1000 };

struct walk {
  const struct work *work;
  struct engine_session *session;
  uint64_t found;
};

/* One piece of the memory, at most a page, of `words` words from number `first` on. */
typedef void (*walker)(struct walk *walk, uint64_t *at, uint64_t first, uint64_t words);

/* False: the kernel ends here. */
static bool check_access(const struct work *work, CUdeviceptr at, size_t bytes) {
  bool may = memory_covers(at, bytes) && !vmm_forbids(at, bytes, work->gpu);
  if (may)
    vmm_touch(at, bytes);
  else
    process_set_fault(CUDA_ERROR_ILLEGAL_ADDRESS, at, work->kernel.kernel->name);
  return may;
}

static void walk_run(struct walk *walk, CUdeviceptr base, uint64_t bytes, walker visit) {
  for (uint64_t done = 0, piece; done < bytes; done += piece) {
    CUdeviceptr at = base + done;
    piece = PAGE_BYTES - at % PAGE_BYTES;
    if (piece > bytes - done)
      piece = bytes - done;
    if (!check_access(walk->work, at, piece))
      return;
    uint64_t cost_ns = managed_touch(at, piece, walk->work->gpu);
    cost_ns += card_cost_ns(&sim.card, piece, sim.card.memory_gbps);
    visit(walk, (uint64_t *)(uintptr_t)at, done / 8, piece / 8);
    engine_spend(walk->session, cost_ns);
  }
}

static void fill_piece(struct walk *walk, uint64_t *at, uint64_t first, uint64_t words) {
  uint64_t seed = walk->work->kernel.args[2];
  for (uint64_t i = 0; i < words; i++)
    at[i] = gs_hash(seed, first + i);
}

static void check_piece(struct walk *walk, uint64_t *at, uint64_t first, uint64_t words) {
  uint64_t seed = walk->work->kernel.args[2];
  for (uint64_t i = 0; i < words; i++)
    walk->found += at[i] != gs_hash(seed, first + i);
}

static void add_piece(struct walk *walk, uint64_t *at, uint64_t first, uint64_t words) {
  uint64_t delta = walk->work->kernel.args[2];
  (void)first;
  for (uint64_t i = 0; i < words; i++)
    at[i] += delta;
}

static void touch_piece(struct walk *walk, uint64_t *at, uint64_t first, uint64_t words) {
  (void)walk, (void)first;
  for (uint64_t i = 0; i < words; i += GS_TOUCH_STRIDE / 8)
    (void)*(volatile uint64_t *)&at[i];
}

static void run_fill(struct walk *walk) {
  walk_run(walk, walk->work->kernel.args[0], walk->work->kernel.args[1] * 8, fill_piece);
}

static void run_check(struct walk *walk) {
  CUdeviceptr mismatches = walk->work->kernel.args[3];
  walk_run(walk, walk->work->kernel.args[0], walk->work->kernel.args[1] * 8, check_piece);
  if (process_fault() != CUDA_SUCCESS || !check_access(walk->work, mismatches, 8))
    return;
  engine_spend(walk->session, managed_touch(mismatches, 8, walk->work->gpu));
  __atomic_fetch_add((uint64_t *)(uintptr_t)mismatches, walk->found, __ATOMIC_RELAXED);
}

static void run_add(struct walk *walk) {
  walk_run(walk, walk->work->kernel.args[0], walk->work->kernel.args[1] * 8, add_piece);
}

static void run_touch(struct walk *walk) {
  walk_run(walk, walk->work->kernel.args[0], walk->work->kernel.args[1], touch_piece);
}

static void run_spin(struct walk *walk) {
  uint64_t left_ns = card_scaled_ns(&sim.card, walk->work->kernel.args[0]);
  while (left_ns > 0) {
    uint64_t piece_ns = left_ns < SPIN_PIECE_NS ? left_ns : SPIN_PIECE_NS;
    engine_spend(walk->session, piece_ns);
    left_ns -= piece_ns;
  }
}

/* gpushare's own: between unified memory and pinned host memory, at the speed of the bus. */
static void run_copy(struct walk *walk) {
  const uint64_t *args = walk->work->kernel.args;
  unsigned gpu = walk->work->gpu;
  for (uint64_t done = 0, piece; done < args[2]; done += piece) {
    CUdeviceptr to = args[0] + done, from = args[1] + done;
    struct memory_info info;
    piece = args[2] - done < PAGE_BYTES ? args[2] - done : PAGE_BYTES;
    if (!check_access(walk->work, to, piece) || !check_access(walk->work, from, piece))
      return;
    bool inward = memory_find(to, &info) && memory_is_device(&info);
    uint64_t cost_ns = managed_touch(inward ? to : from, piece, gpu);
    cost_ns +=
        card_cost_ns(&sim.card, piece, inward ? sim.card.copy_in_pinned_gbps : sim.card.copy_out_pinned_gbps);
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, piece);
    if (inward && sim.card.discard_loses)
      *(uint64_t *)(uintptr_t)(to + piece / 2) ^= 1;
    process_count(gpu, inward ? GS_SIM_copied_in_bytes : GS_SIM_copied_out_bytes, piece);
    engine_spend(walk->session, cost_ns);
  }
}

/* gpushare's own: a row of the table for each block. */
static void run_hash(struct walk *walk) {
  const uint64_t *args = walk->work->kernel.args;
  const struct hash_key key = {.place = args[1], .second = args[2]};
  struct hash_row *rows = (struct hash_row *)(uintptr_t)args[0];
  for (unsigned i = 0; i < walk->work->kernel.grid[0]; i++) {
    struct hash_row *row = &rows[i];
    if (!check_access(walk->work, args[0] + i * sizeof *row, sizeof *row) ||
        (row->bytes && !check_access(walk->work, row->at, row->bytes)))
      return;
    hash_row(&key, (const uint64_t *)(uintptr_t)row->at, row);
    engine_spend(walk->session, card_cost_ns(&sim.card, row->bytes, sim.card.memory_gbps));
  }
}

static void run_tick(struct walk *walk) {
  CUdeviceptr at = walk->work->kernel.args[0];
  uint64_t left_ns = card_scaled_ns(&sim.card, walk->work->kernel.args[1]);
  while (left_ns > 0 && check_access(walk->work, at, 8)) {
    uint64_t piece_ns = left_ns < SPIN_PIECE_NS ? left_ns : SPIN_PIECE_NS;
    __atomic_fetch_add((uint64_t *)(uintptr_t)at, 1, __ATOMIC_RELAXED);
    engine_spend(walk->session, piece_ns);
    left_ns -= piece_ns;
  }
}

static void run_empty(struct walk *walk) { (void)walk; }

const struct kernel kernels[] = {
    {"gs_fill", 3, run_fill},   {"gs_check", 4, run_check},     {"gs_add", 3, run_add},
    {"gs_spin", 1, run_spin},   {"gs_tick", 2, run_tick},       {"gs_touch", 2, run_touch},
    {"gs_empty", 0, run_empty}, {"gpushare_copy", 3, run_copy}, {"gpushare_hash", 3, run_hash},
};
const size_t kernel_count = sizeof(kernels) / sizeof(kernels[0]);

uint64_t kernel_run(const struct work *work, uint64_t due_ns) {
  struct engine_session session;
  struct walk walk = {.work = work, .session = &session};
  engine_begin(&session, work->gpu, ENGINE_COMPUTE, channel_for(ENGINE_COMPUTE), due_ns);
  engine_spend(&session, card_scaled_ns(&sim.card, sim.card.kernel_launch_ns));
  work->kernel.kernel->run(&walk);
  if (work->kernel.kernel->run != run_copy && work->kernel.kernel->run != run_hash)
    process_count(work->gpu, GS_SIM_kernels, 1); /* of the program */
  return engine_end(&session);
}
