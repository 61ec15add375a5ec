/*
 * handles.c - changes of aliases, run by run of what is mapped; and how a block becomes memory of the
 * driver's own: as it is, if it is one piece, and else by an exchange. Its contents wait in host memory
 * meanwhile, so that the card need not have room for both.
 */
#include "memory/swap/handles.h"

#include "common/log.h"
#include "driver/driver.h"
#include "memory/backend.h"
#include "memory/swap/blocks.h"
#include "memory/swap/copies.h"
#include "memory/swap/mover.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"
#include "memory/swap/swap.h"

bool handle_blocks_supported(CUdevice device) { return backend_swap.supported(device); }

CUresult handle_block_make(CUdevice device, uint64_t bytes, struct block **block) {
  struct extent *extent;
  CUresult result = swap_take(space_of(device), bytes, true, &extent);
  if (result == CUDA_SUCCESS)
    *block = extent->block;
  return result;
}

void handle_block_end(struct block *block) {
  CUstreamCaptureMode mode = capture_relax();
  extent_free(block->extents, true);
  capture_unrelax(mode);
}

/* ---- aliases ---- */

/* What is done to one run of mapped pieces. */
struct change {
  CUresult (*make)(const struct block *block, size_t first, size_t count, const struct change *change);
  const struct alias *alias;
  const CUmemAccessDesc *access;
  size_t users;
};

static CUresult map(const struct block *block, size_t first, size_t count, const struct change *change) {
  return pieces_map_alias(block, first, count, change->alias);
}

static CUresult unmap(const struct block *block, size_t first, size_t count, const struct change *change) {
  return pieces_unmap_alias(block, first, count, change->alias);
}

static CUresult set_access(const struct block *block, size_t first, size_t count,
                           const struct change *change) {
  return pieces_set_access(block, first, count, change->alias, change->access, change->users);
}

/* Each run of mapped pieces up to `end`; `*done`: the first piece that is not done. */
static CUresult each_run(const struct block *block, size_t end, const struct change *change, size_t *done) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0, run; i < end; i = run ? i + run : i + 1) {
    for (run = 0; i + run < end && !piece_is_absent(block, i + run);)
      run++;
    *done = i;
    if (run && (result = change->make(block, i, run, change)) != CUDA_SUCCESS)
      return result;
  }
  *done = end;
  return result;
}

/* What is in flight may have to be finished. */
static CUstreamCaptureMode begin(struct block *block) {
  CUstreamCaptureMode mode = capture_relax();
  space_lock(block->space);
  mover_finish_block(block->space, block);
  return mode;
}

static void end(struct block *block, CUstreamCaptureMode mode) {
  space_unlock(block->space);
  capture_unrelax(mode);
}

CUresult alias_add(struct block *block, struct alias *alias) {
  size_t done;
  CUstreamCaptureMode mode = begin(block);
  CUresult result = each_run(block, block->pieces, &(struct change){.make = map, .alias = alias}, &done);
  if (result == CUDA_SUCCESS) {
    alias->next = block->aliases;
    block->aliases = alias;
  } else {
    each_run(block, done, &(struct change){.make = unmap, .alias = alias}, &done);
  }
  end(block, mode);
  return result;
}

static void unlist(struct block *block, const struct alias *alias) {
  struct alias **link = &block->aliases;
  while (*link != alias)
    link = &(*link)->next;
  *link = alias->next;
}

CUresult alias_remove(struct block *block, struct alias *alias) {
  size_t done;
  CUstreamCaptureMode mode = begin(block);
  CUresult result = each_run(block, block->pieces, &(struct change){.make = unmap, .alias = alias}, &done);
  unlist(block, alias);
  end(block, mode);
  return result;
}

CUresult alias_set_access(struct block *block, struct alias *alias, const CUmemAccessDesc *access,
                          size_t users) {
  size_t done;
  CUstreamCaptureMode mode = begin(block);
  CUresult result =
      each_run(block, block->pieces,
               &(struct change){.make = set_access, .alias = alias, .access = access, .users = users}, &done);
  for (size_t i = 0; i < users && result == CUDA_SUCCESS; i++)
    alias->rights[access[i].location.id] = (uint8_t)access[i].flags;
  end(block, mode);
  return result;
}

/* ---- the driver's own ---- */

/* Memory that has come from another process the driver does not export again. */
bool handle_block_is_exportable(struct block *block) {
  space_lock(block->space);
  const struct piece *piece = &block->piece[0];
  bool whole = block->pieces == 1 && piece->state == PIECE_RESIDENT && !piece->foreign;
  space_unlock(block->space);
  return whole && passing_can(block->space->device);
}

CUresult handle_block_give(struct block *block, CUmemGenericAllocationHandle *handle) {
  CUstreamCaptureMode mode = begin(block);
  CUresult result = driver.cuMemRetainAllocationHandle(handle, (void *)(uintptr_t)block->base);
  if (result == CUDA_SUCCESS) {
    copies_drop(block->space, block, 0);
    block->aliases = NULL;
    pieces_unmap(block, 0, 1);
    piece_become(block->space, block, 0, PIECE_FRESH);
  }
  end(block, mode);
  return result;
}

/* The contents of every mapped piece into a slot, not kept from before. */
static CUresult copy_out(struct space *space, struct block *block) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < block->pieces; i++)
    if (block->piece[i].state == PIECE_RESIDENT)
      copies_drop(space, block, i);
  for (size_t i = 0; i < block->pieces && result == CUDA_SUCCESS; i++) {
    CUdeviceptr from;
    if (block->piece[i].state != PIECE_RESIDENT)
      continue;
    block->piece[i].hashed = block->piece[i].zero = false;
    block->piece[i].slot = copies_get_slot(space, piece_bytes(block, i));
    result = block->piece[i].slot ? pieces_reach(space, block, i, &from) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
      result = driver.cuMemcpyDtoH_v2(block->piece[i].slot, from, piece_bytes(block, i));
  }
  return result;
}

static void drop_slots(struct block *block) {
  for (size_t i = 0; i < block->pieces; i++)
    if (block->piece[i].state == PIECE_RESIDENT && block->piece[i].slot) {
      slabs_put(block->piece[i].slot, piece_bytes(block, i));
      block->piece[i].slot = NULL;
    }
}

/* All of it leaves the card; what has no contents is FRESH. */
static CUresult take_off(struct space *space, struct block *block) {
  CUresult result = copy_out(space, block);
  for (size_t i = 0; i < block->pieces && result == CUDA_SUCCESS; i++)
    if (block->piece[i].state == PIECE_RESIDENT && (result = pieces_unmap(block, i, 1)) == CUDA_SUCCESS)
      piece_become(space, block, i, PIECE_AWAY);
  if (result != CUDA_SUCCESS)
    drop_slots(block);
  return result;
}

/* What is AWAY comes to this address; without a slot it is all zero. */
static CUresult copy_piece(const struct block *block, size_t i, CUdeviceptr to) {
  const void *slot = block->piece[i].slot;
  return slot ? driver.cuMemcpyHtoD_v2(to, slot, piece_bytes(block, i))
              : driver.cuMemsetD32_v2(to, 0, piece_bytes(block, i) / 4);
}

static CUresult copy_in(const struct block *block) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < block->pieces && result == CUDA_SUCCESS; i++)
    if (block->piece[i].state == PIECE_AWAY)
      result = copy_piece(block, i, piece_at(block, i));
  CUresult finished = driver.cuStreamSynchronize(NULL); /* zeros are set in stream order */
  return result == CUDA_SUCCESS ? finished : result;
}

/* An open space has all of its memory there. Should that fail, the driver is at its end. */
static void bring_back(struct space *space, struct block *block) {
  for (size_t i = 0; i < block->pieces && space->open; i++) {
    struct piece *piece = &block->piece[i];
    size_t mapped;
    CUdeviceptr to;
    if (!piece_is_absent(block, i) || pieces_map(space, block, i, 1, &mapped) != CUDA_SUCCESS)
      continue;
    if (piece->state == PIECE_AWAY) {
      if (pieces_reach(space, block, i, &to) == CUDA_SUCCESS)
        copy_piece(block, i, to);
      copies_drop(space, block, i);
    }
    piece_become(space, block, i, PIECE_RESIDENT);
  }
}

/* By way of the block's own addresses, which nothing is mapped at any more. */
static CUresult fill(const struct space *space, const struct block *block,
                     CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = space->device},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult result = driver.cuMemMap(block->base, block->bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS)
    return result;
  result = driver.cuMemSetAccess(block->base, block->bytes, &access, 1);
  if (result == CUDA_SUCCESS)
    result = copy_in(block);
  driver.cuMemUnmap(block->base, block->bytes);
  return result;
}

static CUresult map_whole(const struct alias *alias, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access[DEVICES];
  size_t users = alias_rights(alias, access);
  CUresult result = driver.cuMemMap(alias->at, bytes, 0, handle, 0);
  return result == CUDA_SUCCESS && users ? driver.cuMemSetAccess(alias->at, bytes, access, users) : result;
}

static CUresult map_all(const struct block *block, CUmemGenericAllocationHandle handle) {
  CUresult result = CUDA_SUCCESS;
  const struct alias *alias = block->aliases;
  for (; alias && result == CUDA_SUCCESS; alias = alias->next)
    result = map_whole(alias, block->bytes, handle);
  for (const struct alias *done = block->aliases; result != CUDA_SUCCESS && done != alias; done = done->next)
    driver.cuMemUnmap(done->at, block->bytes);
  return result;
}

CUresult handle_block_exchange(struct block *block, CUresult (*make)(void *argument), void *argument,
                               const CUmemGenericAllocationHandle *handle) {
  struct space *space = block->space;
  bool made = false;
  CUstreamCaptureMode mode = begin(block);
  CUresult result = take_off(space, block);
  if (result == CUDA_SUCCESS)
    made = (result = make(argument)) == CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    result = fill(space, block, *handle);
  if (result == CUDA_SUCCESS)
    result = map_all(block, *handle);
  if (result != CUDA_SUCCESS) {
    if (made)
      driver.cuMemRelease(*handle);
    bring_back(space, block);
  } else {
    block->aliases = NULL;
  }
  end(block, mode);
  return result;
}
