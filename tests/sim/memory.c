/* memory.c - the table of blocks, and allocations in them. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "engine.h"
#include "frames.h"
#include "pool.h"

enum { STEP_BYTES = 512 };

struct allocation {
  struct allocation *next; /* by offset */
  size_t offset, bytes;    /* as asked for */
  uint64_t id;
  bool sync_memops, leaving;
};

struct block {
  uintptr_t base;
  size_t bytes;
  struct memory_request owner;
  bool shared; /* holds small allocations */
  bool mapped; /* our own mapping */
  uint64_t pinned_bytes;
  uint64_t id, first_key;
  struct allocation *allocations;
  struct page *pages;
};

static struct {
  pthread_mutex_t lock;
  struct block **blocks; /* by base */
  size_t count, room;
  uint64_t next_id, next_key;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_id = 1, .next_key = 1};

static size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/* ---- table ---- */

/* Index of the first block whose end is above the address. */
static size_t table_lower(uintptr_t address) {
  size_t low = 0, high = memory.count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (memory.blocks[middle]->base + memory.blocks[middle]->bytes <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static struct block *table_find(uintptr_t address) {
  size_t index = table_lower(address);
  return index < memory.count && memory.blocks[index]->base <= address ? memory.blocks[index] : NULL;
}

static bool table_insert(struct block *block) {
  size_t index = table_lower(block->base);
  if (index < memory.count && memory.blocks[index]->base < block->base + block->bytes)
    return false;
  if (memory.count == memory.room) {
    size_t larger = memory.room ? memory.room * 2 : 64;
    struct block **grown = realloc(memory.blocks, larger * sizeof(struct block *));
    if (grown == NULL)
      return false;
    memory.blocks = grown;
    memory.room = larger;
  }
  memmove(&memory.blocks[index + 1], &memory.blocks[index], (memory.count - index) * sizeof(struct block *));
  memory.blocks[index] = block;
  memory.count++;
  return true;
}

static void table_remove(const struct block *block) {
  size_t index = table_lower(block->base);
  memory.count--;
  memmove(&memory.blocks[index], &memory.blocks[index + 1], (memory.count - index) * sizeof(struct block *));
}

/* ---- blocks ---- */

static bool request_pins(const struct memory_request *request) {
  enum memory_kind kind = request->kind;
  if (request->unpinned)
    return false;
  return kind == MEMORY_PLAIN || kind == MEMORY_ARRAY ||
         (kind == MEMORY_MANAGED && !sim.card.concurrent_managed_access);
}

/* Address space aligned to 2 MiB, with bytes that take no host memory until written. */
static void *map_aligned(size_t bytes) {
  size_t larger = bytes + PAGE_BYTES;
  char *at = mmap(NULL, larger, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return NULL;
  char *aligned = (char *)round_up((uintptr_t)at, PAGE_BYTES);
  if (aligned > at)
    munmap(at, (size_t)(aligned - at));
  munmap(aligned + bytes, (size_t)(at + larger - (aligned + bytes)));
  madvise(aligned, bytes, MADV_HUGEPAGE); /* much is written: fewer page faults */
  return aligned;
}

static struct page *pages_create(size_t count) {
  struct page *pages = calloc(count, sizeof(*pages));
  for (size_t i = 0; pages && i < count; i++)
    pages[i] = (struct page){.frame = FRAME_NONE,
                             .gpu = PAGE_NO_GPU,
                             .preferred = PREFER_NOTHING,
                             .last_prefetch = PREFER_NOTHING};
  return pages;
}

static struct block *block_create(const struct memory_request *request, uintptr_t base, size_t bytes) {
  struct block *block = calloc(1, sizeof(*block));
  if (block == NULL)
    return NULL;
  *block = (struct block){.base = base, .bytes = bytes, .owner = *request, .id = memory.next_id++};
  if (request->kind == MEMORY_MANAGED) {
    block->pages = pages_create(bytes / PAGE_BYTES);
    block->first_key = memory.next_key;
    memory.next_key += bytes / PAGE_BYTES;
  }
  if (request->kind == MEMORY_MANAGED && block->pages == NULL) {
    free(block);
    return NULL;
  }
  return block;
}

static void pages_release(struct block *block) {
  for (size_t i = 0; block->pages && i < block->bytes / PAGE_BYTES; i++)
    if (block->pages[i].gpu != PAGE_NO_GPU)
      frames_drop((unsigned)block->pages[i].gpu, block->first_key + i, block->pages[i].frame);
  free(block->pages);
}

static void block_destroy(struct block *block) {
  table_remove(block);
  pages_release(block);
  if (block->pinned_bytes)
    frames_unpin(block->owner.gpu, block->pinned_bytes);
  if (block->mapped)
    munmap((void *)block->base, block->bytes);
  while (block->allocations) {
    struct allocation *allocation = block->allocations;
    block->allocations = allocation->next;
    free(allocation);
  }
  free(block);
}

/* Pages that left the card for a plain allocation were copied out first; the caller waits for that. */
static CUresult block_pin(const struct memory_request *request, size_t bytes, uint64_t *due_ns) {
  uint64_t evicted = 0;
  if (!request_pins(request))
    return CUDA_SUCCESS;
  if (frames_pin(request->gpu, bytes, &evicted) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (evicted)
    *due_ns = clock_now_ns() + card_cost_ns(&sim.card, evicted * PAGE_BYTES, sim.card.evict_gbps);
  return CUDA_SUCCESS;
}

static CUresult block_map(const struct memory_request *request, size_t bytes, struct block **out,
                          uint64_t *due_ns) {
  CUresult result = block_pin(request, bytes, due_ns);
  if (result != CUDA_SUCCESS)
    return result;
  void *at = map_aligned(bytes);
  struct block *block = at ? block_create(request, (uintptr_t)at, bytes) : NULL;
  if (block == NULL || !table_insert(block)) {
    if (at)
      munmap(at, bytes);
    if (request_pins(request))
      frames_unpin(request->gpu, bytes);
    free(block);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  block->mapped = true;
  block->pinned_bytes = request_pins(request) ? bytes : 0;
  *out = block;
  return CUDA_SUCCESS;
}

/* ---- allocations in blocks ---- */

/* The first gap that is large enough: where to link, and at which offset. */
static struct allocation **block_gap(struct block *block, size_t bytes, size_t *offset) {
  struct allocation **link = &block->allocations;
  size_t at = 0;
  while (*link && (*link)->offset < at + round_up(bytes, STEP_BYTES)) {
    at = (*link)->offset + round_up((*link)->bytes, STEP_BYTES);
    link = &(*link)->next;
  }
  *offset = at;
  return at + bytes <= block->bytes ? link : NULL;
}

static CUresult block_allocate(struct block *block, size_t bytes, CUdeviceptr *address) {
  size_t offset;
  struct allocation **link = block_gap(block, bytes, &offset), *allocation;
  if (link == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  allocation = malloc(sizeof(*allocation));
  if (allocation == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *allocation = (struct allocation){.next = *link,
                                    .offset = offset,
                                    .bytes = bytes,
                                    .id = memory.next_id++,
                                    .sync_memops = block->owner.kind == MEMORY_MANAGED};
  *link = allocation;
  *address = block->base + offset;
  return CUDA_SUCCESS;
}

/* Shared blocks take small allocations; the blocks that a pool keeps take any. */
static bool block_suits(const struct block *block, const struct memory_request *request) {
  const struct memory_request *owner = &block->owner;
  return owner->kind == request->kind && owner->gpu == request->gpu && owner->context == request->context &&
         owner->pool == request->pool && owner->flags == request->flags && !owner->unpinned &&
         !request->unpinned && (block->shared ? request->bytes < PAGE_BYTES : request->pool != NULL);
}

static bool allocate_in_present(const struct memory_request *request, CUdeviceptr *address) {
  if (request->bytes >= PAGE_BYTES && request->pool == NULL)
    return false;
  for (size_t i = 0; i < memory.count; i++)
    if (block_suits(memory.blocks[i], request) &&
        block_allocate(memory.blocks[i], request->bytes, address) == CUDA_SUCCESS)
      return true;
  return false;
}

static CUresult allocate_in_new(const struct memory_request *request, CUdeviceptr *address,
                                uint64_t *due_ns) {
  struct block *block = NULL;
  CUresult result = block_map(request, round_up(request->bytes, PAGE_BYTES), &block, due_ns);
  if (result != CUDA_SUCCESS)
    return result;
  block->shared = request->bytes < PAGE_BYTES;
  return block_allocate(block, request->bytes, address);
}

static void pool_note(CUmemoryPool pool, size_t bytes) {
  if (pool == NULL)
    return;
  struct pool_usage *usage = pool_usage_of(pool);
  usage->used += bytes;
  usage->reserved = 0;
  for (size_t i = 0; i < memory.count; i++)
    if (memory.blocks[i]->owner.pool == pool)
      usage->reserved += memory.blocks[i]->bytes;
  if (usage->used > usage->used_high)
    usage->used_high = usage->used;
  if (usage->reserved > usage->reserved_high)
    usage->reserved_high = usage->reserved;
}

CUresult memory_allocate(const struct memory_request *request, CUdeviceptr *address) {
  uint64_t due_ns = 0;
  CUresult result = CUDA_SUCCESS;
  if (request_pins(request) && request->bytes > sim.card.capacity_bytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&memory.lock);
  if (!allocate_in_present(request, address))
    result = allocate_in_new(request, address, &due_ns);
  if (result == CUDA_SUCCESS)
    pool_note(request->pool, round_up(request->bytes, STEP_BYTES));
  pthread_mutex_unlock(&memory.lock);
  engine_wait_until(due_ns);
  return result;
}

CUresult memory_pin(CUdeviceptr address) {
  uint64_t evicted;
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&memory.lock);
  struct block *block = table_find((uintptr_t)address);
  if (block && block->owner.unpinned && !block->pinned_bytes) {
    result = frames_pin(block->owner.gpu, block->bytes, &evicted) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    block->pinned_bytes = result == CUDA_SUCCESS ? block->bytes : 0;
  }
  pthread_mutex_unlock(&memory.lock);
  return result;
}

CUresult memory_adopt(const struct memory_request *request, CUdeviceptr address) {
  CUdeviceptr got;
  CUresult result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  pthread_mutex_lock(&memory.lock);
  struct block *block = block_create(request, (uintptr_t)address, request->bytes);
  if (block && table_insert(block))
    result = block_allocate(block, request->bytes, &got);
  else
    free(block);
  pthread_mutex_unlock(&memory.lock);
  return result;
}

static struct allocation **allocation_at(struct block *block, CUdeviceptr address) {
  struct allocation **link = &block->allocations;
  while (*link && block->base + (*link)->offset + (*link)->bytes <= address)
    link = &(*link)->next;
  return *link && block->base + (*link)->offset <= address ? link : NULL;
}

static void pool_settle(CUmemoryPool pool, uint64_t keep_bytes) {
  for (size_t i = memory.count; i-- > 0 && pool_usage_of(pool)->reserved > keep_bytes;) {
    struct block *block = memory.blocks[i];
    if (block->owner.pool != pool || block->allocations)
      continue;
    pool_usage_of(pool)->reserved -= block->bytes;
    block_destroy(block);
  }
}

static void allocation_free(struct block *block, struct allocation **link) {
  struct allocation *allocation = *link;
  CUmemoryPool pool = block->owner.pool;
  if (pool)
    pool_usage_of(pool)->used -= round_up(allocation->bytes, STEP_BYTES);
  *link = allocation->next;
  free(allocation);
  if (pool)
    pool_settle(pool, pool_threshold(pool));
  else if (block->allocations == NULL)
    block_destroy(block);
}

CUresult memory_free(CUdeviceptr address, unsigned kinds) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&memory.lock);
  struct block *block = table_find((uintptr_t)address);
  struct allocation **link = block ? allocation_at(block, address) : NULL;
  if (link && block->base + (*link)->offset == address && (kinds & KIND_BIT(block->owner.kind))) {
    allocation_free(block, link);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&memory.lock);
  return result;
}

/* ---- questions ---- */

static void info_fill(struct memory_info *info, const struct block *block,
                      const struct allocation *allocation) {
  *info = (struct memory_info){.kind = block->owner.kind,
                               .gpu = block->owner.gpu,
                               .context = block->owner.context,
                               .pool = block->owner.pool,
                               .base = block->base + allocation->offset,
                               .bytes = allocation->bytes,
                               .block_base = block->base,
                               .block_bytes = block->bytes,
                               .id = allocation->id,
                               .block_id = block->id,
                               .flags = block->owner.flags,
                               .sync_memops = allocation->sync_memops,
                               .leaving = allocation->leaving};
}

bool memory_find(CUdeviceptr address, struct memory_info *info) {
  pthread_mutex_lock(&memory.lock);
  struct block *block = table_find((uintptr_t)address);
  struct allocation **link = block ? allocation_at(block, address) : NULL;
  if (link)
    info_fill(info, block, *link);
  pthread_mutex_unlock(&memory.lock);
  return link != NULL;
}

bool memory_set_leaving(CUdeviceptr address, bool leaving) {
  pthread_mutex_lock(&memory.lock);
  struct block *block = table_find((uintptr_t)address);
  struct allocation **link = block ? allocation_at(block, address) : NULL;
  bool changes = link && (*link)->leaving != leaving;
  if (changes)
    (*link)->leaving = leaving;
  pthread_mutex_unlock(&memory.lock);
  return changes;
}

bool memory_set_sync_memops(CUdeviceptr address, bool value) {
  pthread_mutex_lock(&memory.lock);
  struct block *block = table_find((uintptr_t)address);
  struct allocation **link = block ? allocation_at(block, address) : NULL;
  bool settable = link && block->owner.kind != MEMORY_HOST && block->owner.kind != MEMORY_REGISTERED;
  if (settable)
    (*link)->sync_memops = value;
  pthread_mutex_unlock(&memory.lock);
  return settable;
}

bool memory_covers(CUdeviceptr address, size_t bytes) {
  struct memory_info info;
  return memory_find(address, &info) && address + bytes <= info.base + info.bytes;
}

bool memory_exceeds(CUdeviceptr address, size_t bytes) {
  struct memory_info info;
  return bytes && memory_find(address, &info) && memory_is_device(&info) && !memory_covers(address, bytes);
}

bool memory_is_device(const struct memory_info *info) {
  return info->kind != MEMORY_HOST && info->kind != MEMORY_REGISTERED;
}

static void free_matching(CUcontext context, CUmemoryPool pool) {
  pthread_mutex_lock(&memory.lock);
  for (size_t i = memory.count; i-- > 0;) {
    struct block *block = memory.blocks[i];
    if (pool ? block->owner.pool == pool : (block->owner.context == context && block->owner.pool == NULL))
      block_destroy(block);
  }
  pthread_mutex_unlock(&memory.lock);
}

void memory_free_context(CUcontext context) { free_matching(context, NULL); }
void memory_free_pool(CUmemoryPool pool) { free_matching(NULL, pool); }

void memory_pool_usage(CUmemoryPool pool, struct pool_usage *usage, bool reset_reserved, bool reset_used) {
  pthread_mutex_lock(&memory.lock);
  struct pool_usage *own = pool_usage_of(pool);
  if (reset_reserved)
    own->reserved_high = own->reserved;
  if (reset_used)
    own->used_high = own->used;
  *usage = *own;
  pthread_mutex_unlock(&memory.lock);
}

void memory_pool_trim(CUmemoryPool pool, uint64_t keep_bytes) {
  pthread_mutex_lock(&memory.lock);
  pool_settle(pool, keep_bytes);
  pthread_mutex_unlock(&memory.lock);
}

void memory_visit_pages(CUdeviceptr address, size_t bytes, page_visitor visit, void *context) {
  pthread_mutex_lock(&memory.lock);
  uintptr_t end = (uintptr_t)address + bytes;
  for (size_t i = table_lower((uintptr_t)address); i < memory.count && memory.blocks[i]->base < end; i++) {
    struct block *block = memory.blocks[i];
    uintptr_t from = address > block->base ? (uintptr_t)address : block->base;
    uintptr_t to = end < block->base + block->bytes ? end : block->base + block->bytes;
    for (size_t p = (from - block->base) / PAGE_BYTES;
         block->pages && p < round_up(to - block->base, PAGE_BYTES) / PAGE_BYTES; p++)
      if (visit(&block->pages[p], block->first_key + p, context) == VISIT_STOP)
        goto done;
  }
done:
  pthread_mutex_unlock(&memory.lock);
}
