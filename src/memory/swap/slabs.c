/*
 * slabs.c - the slots in the slabs, first fit, and the thread that makes slabs ahead of need and gives them
 * back: both take long, and need a context.
 */
#include "memory/swap/slabs.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/host.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"
#include "driver/driver.h"
#include "gate/contexts.h"
#include "memory/device.h"
#include "memory/forked.h"

#define GRAINS (SLABS_SLAB_BYTES / SLABS_GRAIN_BYTES)
#define SMALLEST_BYTES (SLABS_SLAB_BYTES / 8)
#define IDLE_NS (30 * NS_PER_S)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES 4096 /* the smallest there is */
#define TOUCHERS 8
#define TOUCHER_BYTES ((size_t)32 << 20) /* less is not worth a thread */

struct slab {
  struct slab *next;
  char *memory;
  uint64_t bytes;
  uint64_t idle_since_ns; /* while used_bytes is 0 */
  uint64_t used_bytes;
  CUcontext context; /* its registration dies with it; NULL: it has none */
  bool lost;         /* its registration, which it is to get again */
  bool taken[GRAINS];
};

/* One slab is made at a time, so that two threads don't make two where one does. Taken before `lock`, and by
 * who visits a context: never visit one with it. */
static struct lock making = LOCK(LOCK_SLABS_MAKING);

/* Protects all below. Never held while the driver is called or memory is touched. */
static struct lock lock = LOCK(LOCK_SLABS);
static struct slab *slabs;   /* oldest first, which fill first */
static struct slab *leaving; /* to be given back */
static uint64_t pinned_bytes, used_bytes;
static uint64_t prepared_bytes; /* kept ready */
static uint64_t need_bytes[DEVICES][BACKINGS];
static _Atomic bool expected[DEVICES]; /* moves */
static bool tight;
static bool renewing; /* registrations are lost, and there may be a context for new ones */
static bool keeper_runs;

/* ---- memory to be pinned: mapped, and touched by several threads at once (the kernel clears pages at a few
 * GB/s per core); then registering it is fast, as the huge pages are there. A context is current. ---- */

/* Aligned to a huge page; NULL: no address space. */
static char *map_aligned(size_t bytes) {
  char *start =
      mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    return NULL;
  size_t before = (HUGE_PAGE_BYTES - (uintptr_t)start % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
  if (before)
    munmap(start, before);
  munmap(start + before + bytes, HUGE_PAGE_BYTES - before);
  return start + before;
}

/* The child of a fork has no use for it, and would make the kernel copy what is pinned; nor has a core dump.
 */
static void advise(char *memory, size_t bytes) {
  madvise(memory, bytes, MADV_HUGEPAGE);
  madvise(memory, bytes, MADV_DONTFORK);
  madvise(memory, bytes, MADV_DONTDUMP);
}

struct stripe {
  char *start;
  size_t bytes;
};

static void *touch(void *argument) {
  const struct stripe *stripe = argument;
  for (size_t at = 0; at < stripe->bytes; at += PAGE_BYTES)
    *(volatile char *)(stripe->start + at) = 0;
  return NULL;
}

static size_t toucher_count(size_t bytes) {
  cpu_set_t usable;
  size_t cpus = sched_getaffinity(0, sizeof usable, &usable) == 0 ? (size_t)CPU_COUNT(&usable) : 1;
  size_t count = bytes / TOUCHER_BYTES;
  count = count < cpus ? count : cpus;
  return count < 1 ? 1 : count < TOUCHERS ? count : TOUCHERS;
}

/* The calling thread does the last stripe, and what no thread could be made for. */
static void touch_all(char *memory, size_t bytes) {
  struct stripe stripes[TOUCHERS];
  pthread_t threads[TOUCHERS];
  bool started[TOUCHERS];
  size_t count = toucher_count(bytes), each = bytes / count / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  for (size_t i = 0; i < count; i++) {
    bool last = i == count - 1;
    stripes[i] = (struct stripe){memory + i * each, last ? bytes - i * each : each};
    started[i] = !last && thread_start(&threads[i], touch, &stripes[i]) == 0;
    if (!started[i])
      touch(&stripes[i]);
  }
  for (size_t i = 0; i < count; i++)
    if (started[i])
      pthread_join(threads[i], NULL);
}

/* What is registered still has outlived the context that it was registered in. */
static CUresult pin(void *memory, size_t bytes, CUcontext *context) {
  CUresult result = driver.cuCtxGetCurrent(context);
  if (result == CUDA_SUCCESS)
    result = driver.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  return result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED ? CUDA_SUCCESS : result;
}

/* Register memory for all contexts. The registration dies with the one that is returned; NULL: the driver
 * does not do it, and copies are slower. */
static CUcontext pin_for_all(void *memory, size_t bytes) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  CUcontext context = NULL;
  CUstreamCaptureMode mode = capture_relax();
  CUresult result = pin(memory, bytes, &context);
  capture_unrelax(mode);
  if (result != CUDA_SUCCESS && !atomic_flag_test_and_set(&said))
    log_warn("host memory can't be pinned (CUDA error %d): moves to it and from it are slower", result);
  return result == CUDA_SUCCESS ? context : NULL;
}

/* What died with its context is no longer registered. */
static bool unpin(char *memory) {
  CUstreamCaptureMode mode = capture_relax();
  CUresult result = driver.cuMemHostUnregister(memory);
  capture_unrelax(mode);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* NULL: no address space. Does not ask whether the host can spare it. */
static void *make_pages(size_t bytes) {
  char *memory = map_aligned(bytes);
  if (!memory)
    return NULL;
  advise(memory, bytes);
  touch_all(memory, bytes);
  return memory;
}

/* False: the driver does not let go of it, so it must stay. */
static bool give_pages_back(void *memory, size_t bytes, bool registered) {
  if (registered && !unpin(memory))
    return false;
  munmap(memory, bytes);
  return true;
}

/* ---- the list. With the lock held. ---- */

static void link_last(struct slab *slab) {
  struct slab **end = &slabs;
  while (*end)
    end = &(*end)->next;
  slab->next = NULL;
  *end = slab;
}

static void leave(struct slab **link) {
  struct slab *slab = *link;
  *link = slab->next;
  slab->next = leaving;
  leaving = slab;
}

static void leave_all_idle(void) {
  for (struct slab **link = &slabs; *link;)
    if ((*link)->used_bytes == 0)
      leave(link);
    else
      link = &(*link)->next;
}

static bool any_lost(void) {
  struct slab *slab = slabs;
  while (slab && !slab->lost)
    slab = slab->next;
  return slab != NULL;
}

/* The first run of free grains that is long enough; GRAINS: there is none. */
static size_t find_run(const struct slab *slab, size_t grains) {
  size_t free_grains = 0;
  if (slab->bytes - slab->used_bytes < grains * SLABS_GRAIN_BYTES)
    return GRAINS;
  for (size_t i = 0; i < slab->bytes / SLABS_GRAIN_BYTES; i++) {
    free_grains = slab->taken[i] ? 0 : free_grains + 1;
    if (free_grains == grains)
      return i + 1 - grains;
  }
  return GRAINS;
}

static void mark(struct slab *slab, size_t first, uint64_t bytes, bool taken) {
  for (size_t i = first; i < first + bytes / SLABS_GRAIN_BYTES; i++)
    slab->taken[i] = taken;
  slab->used_bytes += taken ? bytes : -bytes;
  used_bytes += taken ? bytes : -bytes;
}

/* Slots. */

static void *take_slot(uint64_t bytes) {
  void *slot = NULL;
  lock_take(&lock);
  for (struct slab *slab = slabs; slab && !slot; slab = slab->next) {
    size_t first = find_run(slab, bytes / SLABS_GRAIN_BYTES);
    if (first == GRAINS)
      continue;
    mark(slab, first, bytes, true);
    slot = slab->memory + first * SLABS_GRAIN_BYTES;
  }
  lock_release(&lock);
  return slot;
}

/* A slab large enough for `needed_bytes`, better for `wanted_bytes`, and best not larger than what the host
 * can spare; 0: the host has no more. */
static uint64_t choose_bytes(uint64_t needed_bytes, uint64_t wanted_bytes) {
  uint64_t bytes = SMALLEST_BYTES, available = host_available_bytes();
  while (bytes < SLABS_SLAB_BYTES && bytes < wanted_bytes)
    bytes *= 2;
  while (bytes > available && bytes / 2 >= needed_bytes && bytes > SMALLEST_BYTES)
    bytes /= 2;
  return bytes <= available ? bytes : 0;
}

/* With the making lock held, and a context current. */
static bool add_slab(uint64_t needed_bytes, uint64_t wanted_bytes) {
  uint64_t bytes = choose_bytes(needed_bytes, wanted_bytes);
  struct slab *slab = bytes ? calloc(1, sizeof *slab) : NULL;
  if (!slab || !(slab->memory = make_pages(bytes))) {
    free(slab);
    return false;
  }
  slab->bytes = bytes;
  slab->context = pin_for_all(slab->memory, bytes);
  slab->idle_since_ns = clock_now_ns();
  lock_take(&lock);
  link_last(slab);
  pinned_bytes += bytes;
  lock_release(&lock);
  return true;
}

/* Slabs grow with what there is, so that a small program pins little. */
static void *make_slot(uint64_t bytes) {
  void *slot;
  int saved = errno;
  lock_take(&making);
  while (!(slot = take_slot(bytes))) {
    uint64_t wanted_bytes = slabs_pinned_bytes() + SLABS_GRAIN_BYTES;
    if (!add_slab(bytes, wanted_bytes > bytes ? wanted_bytes : bytes))
      break;
  }
  lock_release(&making);
  errno = saved;
  return slot;
}

void *slabs_get(uint64_t bytes) {
  if (!bytes || bytes > SLABS_SLAB_BYTES || bytes % SLABS_GRAIN_BYTES)
    return NULL;
  void *slot = take_slot(bytes);
  return slot ? slot : make_slot(bytes);
}

/* The keeper: a thread that ends when nothing is left to do. */

static struct slab *take_leaving(void) {
  lock_take(&lock);
  struct slab *slab = leaving;
  if (slab)
    leaving = slab->next;
  lock_release(&lock);
  return slab;
}

static void give_back(struct slab *slab) {
  uint64_t bytes = slab->bytes;
  bool gone = give_pages_back(slab->memory, bytes, slab->context != NULL);
  lock_take(&lock);
  if (gone) {
    pinned_bytes -= bytes;
  } else {
    slab->idle_since_ns = clock_now_ns();
    link_last(slab);
  }
  lock_release(&lock);
  if (gone)
    free(slab);
}

static uint64_t missing_bytes(void) {
  lock_take(&lock);
  uint64_t missing = prepared_bytes > pinned_bytes && !tight ? prepared_bytes - pinned_bytes : 0;
  lock_release(&lock);
  return missing;
}

/* What can't be made now is made when it is needed, or asked for again. */
static void stop_preparing(void) {
  lock_take(&lock);
  if (prepared_bytes > pinned_bytes)
    prepared_bytes = pinned_bytes;
  lock_release(&lock);
}

static void prepare_one(void) {
  lock_take(&making);
  uint64_t missing = missing_bytes();
  bool added = !missing || add_slab(SLABS_GRAIN_BYTES, missing);
  lock_release(&making);
  if (!added)
    stop_preparing();
}

/* One that has lost its registration, which it is about to get again. It stays in the list meanwhile: only
 * this thread frees one. */
static struct slab *take_lost(void) {
  lock_take(&lock);
  struct slab *slab = slabs;
  while (slab && !slab->lost)
    slab = slab->next;
  renewing = slab != NULL;
  if (slab)
    slab->lost = false;
  lock_release(&lock);
  return slab;
}

static void renew(struct slab *slab) {
  CUcontext context = pin_for_all(slab->memory, slab->bytes);
  lock_take(&lock);
  slab->context = context;
  lock_release(&lock);
}

/* In a context. */
static void keep(void *unused) {
  struct slab *slab;
  (void)unused;
  if ((slab = take_leaving()))
    give_back(slab);
  else if ((slab = take_lost()))
    renew(slab);
  else
    prepare_one();
}

/* With the lock held. */
static bool has_work(void) { return leaving || renewing || (prepared_bytes > pinned_bytes && !tight); }

static bool keeper_may_end(void) {
  lock_take(&lock);
  keeper_runs = has_work();
  bool ends = !keeper_runs;
  lock_release(&lock);
  return ends;
}

/* Without a context: nothing can be made, and what is registered must stay. */
static void give_up(void) {
  stop_preparing();
  lock_take(&lock);
  renewing = false;
  while (leaving) {
    struct slab *slab = leaving;
    leaving = slab->next;
    slab->idle_since_ns = clock_now_ns();
    link_last(slab);
  }
  lock_release(&lock);
}

static void keep_once(void *done) {
  keep(NULL);
  *(bool *)done = true;
}

/* False: there is no context. Where the program's stand still, nothing is done in them. */
static bool keep_in_any_context(bool *done) {
  bool any = false;
  for (CUdevice device = 0; device < DEVICES && !*done; device++)
    any |= contexts_any(device, keep_once, done);
  return any;
}

static void *keeper(void *unused) {
  thread_begin("gpushare-slabs");
  while (!keeper_may_end()) {
    bool done = false;
    if (!keep_in_any_context(&done))
      give_up();
    else if (!done)
      clock_sleep(NS_PER_MS);
  }
  return unused;
}

static void start_keeper(void) {
  lock_take(&lock);
  bool start = has_work() && !keeper_runs;
  keeper_runs |= start;
  lock_release(&lock);
  if (!start)
    return;
  if (thread_start(NULL, keeper, NULL) == 0)
    return;
  lock_take(&lock);
  keeper_runs = false;
  lock_release(&lock);
}

/* What the rest of the room asks. */

/* With the lock held: the slab becomes free in part. True: it is to be given back. */
static bool put(struct slab **link, const char *slot, uint64_t bytes) {
  struct slab *slab = *link;
  mark(slab, (size_t)(slot - slab->memory) / SLABS_GRAIN_BYTES, bytes, false);
  if (slab->used_bytes)
    return false;
  slab->idle_since_ns = clock_now_ns();
  if (tight)
    leave(link);
  return tight;
}

/* With the lock held. */
static struct slab **find(const char *slot) {
  struct slab **link = &slabs;
  while (*link && (slot < (*link)->memory || slot >= (*link)->memory + (*link)->bytes))
    link = &(*link)->next;
  return link;
}

CUcontext slabs_context(const void *slot) {
  lock_take(&lock);
  const struct slab *slab = *find(slot);
  CUcontext context = slab ? slab->context : NULL;
  lock_release(&lock);
  return context;
}

void slabs_put(void *slot, uint64_t bytes) {
  lock_take(&lock);
  struct slab **link = find(slot);
  bool left = *link && put(link, slot, bytes);
  lock_release(&lock);
  if (left)
    start_keeper();
}

static void prepare(CUdevice changed, enum backing backing, uint64_t bytes) {
  lock_take(&lock);
  need_bytes[changed][backing] = bytes;
  prepared_bytes = 0;
  for (CUdevice device = 0; device < DEVICES; device++)
    for (int i = 0; i < BACKINGS && atomic_load(&expected[device]); i++)
      prepared_bytes += need_bytes[device][i];
  renewing |= any_lost();
  lock_release(&lock);
  start_keeper();
}

bool slabs_is_expected(CUdevice device) { return atomic_load(&expected[device]); }

void slabs_need(CUdevice device, enum backing backing, uint64_t bytes) {
  if (slabs_is_expected(device))
    prepare(device, backing, bytes);
}

bool slabs_expect(CUdevice device, bool now_expected) {
  bool changed = atomic_exchange(&expected[device], now_expected) != now_expected;
  if (changed && !now_expected)
    prepare(device, BACKING_SWAP, 0);
  return changed && now_expected;
}

void slabs_set_tight(bool now_tight) {
  lock_take(&lock);
  tight = now_tight;
  if (tight)
    leave_all_idle();
  lock_release(&lock);
  start_keeper();
}

bool slabs_is_tight(void) {
  lock_take(&lock);
  bool now_tight = tight;
  lock_release(&lock);
  return now_tight;
}

/* With the lock held: when the slab may go. */
static uint64_t due_ns(const struct slab *slab) {
  return slab->used_bytes ? UINT64_MAX : slab->idle_since_ns + IDLE_NS;
}

uint64_t slabs_trim(uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  lock_take(&lock);
  uint64_t staying = pinned_bytes;
  for (struct slab *slab = leaving; slab; slab = slab->next)
    staying -= slab->bytes;
  for (struct slab **link = &slabs; *link;) {
    uint64_t bytes = (*link)->bytes, due = due_ns(*link);
    bool spare = staying >= bytes && (tight || staying - bytes >= prepared_bytes);
    if (spare && due <= now_ns) {
      staying -= bytes;
      leave(link);
      continue;
    }
    next_ns = spare && due < next_ns ? due : next_ns;
    link = &(*link)->next;
  }
  lock_release(&lock);
  start_keeper();
  return next_ns;
}

void slabs_context_gone(CUcontext context) {
  lock_take(&lock);
  for (struct slab *slab = slabs; slab; slab = slab->next)
    if (slab->context == context) {
      slab->context = NULL;
      slab->lost = renewing = true;
    }
  lock_release(&lock);
  start_keeper();
}

uint64_t slabs_pinned_bytes(void) {
  lock_take(&lock);
  uint64_t bytes = pinned_bytes;
  lock_release(&lock);
  return bytes;
}

uint64_t slabs_used_bytes(void) {
  lock_take(&lock);
  uint64_t bytes = used_bytes;
  lock_release(&lock);
  return bytes;
}

/* The slabs are not mapped in the child. */
static void forget(void) {
  making = (struct lock)LOCK(LOCK_SLABS_MAKING);
  lock = (struct lock)LOCK(LOCK_SLABS);
  slabs = leaving = NULL;
  pinned_bytes = used_bytes = prepared_bytes = 0;
  tight = renewing = keeper_runs = false;
  for (CUdevice device = 0; device < DEVICES; device++)
    atomic_store(&expected[device], false);
}
IN_FORKED_CHILD(forget);
