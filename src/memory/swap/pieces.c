/*
 * pieces.c - create, map, set access, unmap.
 *
 * What is mapped at its own address keeps its physical memory. Memory of cuMemCreate has no access there
 * until it is to move and no alias does for that: each change of access costs as much as a mapping.
 */
#include "memory/swap/pieces.h"

#include "driver/driver.h"
#include "memory/device.h"
#include "memory/swap/passing.h"

static CUmemLocation card(CUdevice device) {
  return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* In such a way that it can be passed to another process, or shared with one, where the driver can do that.
 */
static CUresult create(const struct space *space, uint64_t bytes, CUmemGenericAllocationHandle *handle) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = card(space->device)};
  bool passable = passing_can(space->device);
  prop.requestedHandleTypes = passable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  CUresult result = driver.cuMemCreate(handle, bytes, &prop, 0);
  if (!passable || result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
    return result;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  result = driver.cuMemCreate(handle, bytes, &prop, 0);
  if (result == CUDA_SUCCESS)
    passing_forbid(space->device);
  return result;
}

/* The mapping alone keeps the memory: unmapping it is what frees it. */
static CUresult map_new(const struct space *space, CUdeviceptr at, uint64_t bytes) {
  CUmemGenericAllocationHandle handle;
  CUresult result = create(space, bytes, &handle);
  if (result != CUDA_SUCCESS)
    return result;
  result = driver.cuMemMap(at, bytes, 0, handle, 0);
  driver.cuMemRelease(handle);
  return result;
}

/* Memory that was passed has another job's contents: it is for a piece that is about to get its own. It is
 * not for a block that may have to be lent again, as the driver might not export it. What is left of it must
 * not keep the card full. */
static CUresult map_one(const struct space *space, struct block *block, size_t i) {
  CUdeviceptr at = piece_at(block, i);
  uint64_t bytes = piece_bytes(block, i);
  bool heir = block->piece[i].state == PIECE_AWAY && bytes == PIECE_BYTES && !block->lent.name;
  if (heir && passing_map(space, block, i))
    return CUDA_SUCCESS;
  CUresult result = map_new(space, at, bytes);
  if (result != CUDA_ERROR_OUT_OF_MEMORY)
    return result;
  if (heir && passing_map(space, block, i)) /* it has come since then */
    return CUDA_SUCCESS;
  return passing_drop(space) ? map_new(space, at, bytes) : result;
}

static uint64_t run_bytes(const struct block *block, size_t first, size_t count) {
  return piece_at(block, first + count - 1) + piece_bytes(block, first + count - 1) - piece_at(block, first);
}

static CUresult unmap_own(struct block *block, size_t first, size_t count) {
  for (size_t i = first; i < first + count; i++) {
    passing_forget(block, i);
    block->piece[i].opened = block->piece[i].foreign = false;
  }
  return driver.cuMemUnmap(piece_at(block, first), run_bytes(block, first, count));
}

/* One call for a run of pieces. */
static CUresult open_up(const struct space *space, struct block *block, size_t first, size_t count) {
  CUmemAccessDesc access[DEVICES + 1];
  size_t users = 0;
  for (CUdevice device = 0; device < DEVICES; device++)
    if (device == space->device || (!block->by_handle && space->peers >> device & 1))
      access[users++] =
          (CUmemAccessDesc){.location = card(device), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult result =
      driver.cuMemSetAccess(piece_at(block, first), run_bytes(block, first, count), access, users);
  for (size_t i = first; i < first + count && result == CUDA_SUCCESS; i++)
    block->piece[i].opened = true;
  return result;
}

/* ---- aliases ---- */

static CUdeviceptr alias_at(const struct block *block, size_t i, const struct alias *alias) {
  return alias->at + (piece_at(block, i) - block->base);
}

static CUresult map_alias_of_piece(const struct block *block, size_t i, const struct alias *alias) {
  CUmemGenericAllocationHandle handle;
  CUresult result = driver.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)piece_at(block, i));
  if (result != CUDA_SUCCESS)
    return result;
  result = driver.cuMemMap(alias_at(block, i, alias), piece_bytes(block, i), 0, handle, 0);
  driver.cuMemRelease(handle);
  return result;
}

CUresult pieces_set_access(const struct block *block, size_t first, size_t count, const struct alias *alias,
                           const CUmemAccessDesc *access, size_t users) {
  return users ? driver.cuMemSetAccess(alias_at(block, first, alias), run_bytes(block, first, count), access,
                                       users)
               : CUDA_SUCCESS;
}

size_t alias_rights(const struct alias *alias, CUmemAccessDesc access[DEVICES]) {
  size_t users = 0;
  for (CUdevice device = 0; device < DEVICES; device++)
    if (alias->rights[device])
      access[users++] =
          (CUmemAccessDesc){.location = card(device), .flags = (CUmemAccess_flags)alias->rights[device]};
  return users;
}

static CUresult give_rights(const struct block *block, size_t first, size_t count,
                            const struct alias *alias) {
  CUmemAccessDesc access[DEVICES];
  size_t users = alias_rights(alias, access);
  return pieces_set_access(block, first, count, alias, access, users);
}

CUresult pieces_unmap_alias(const struct block *block, size_t first, size_t count,
                            const struct alias *alias) {
  return driver.cuMemUnmap(alias_at(block, first, alias), run_bytes(block, first, count));
}

CUresult pieces_map_alias(const struct block *block, size_t first, size_t count, const struct alias *alias) {
  CUresult result = CUDA_SUCCESS;
  size_t mapped = 0;
  for (; mapped < count; mapped++)
    if ((result = map_alias_of_piece(block, first + mapped, alias)) != CUDA_SUCCESS)
      break;
  if (result == CUDA_SUCCESS)
    result = give_rights(block, first, count, alias);
  if (result != CUDA_SUCCESS && mapped)
    pieces_unmap_alias(block, first, mapped, alias);
  return result;
}

static CUresult map_aliases(const struct block *block, size_t first, size_t count) {
  CUresult result = CUDA_SUCCESS;
  const struct alias *alias = block->aliases;
  for (; alias && result == CUDA_SUCCESS; alias = result == CUDA_SUCCESS ? alias->next : alias)
    result = pieces_map_alias(block, first, count, alias);
  for (const struct alias *done = block->aliases; result != CUDA_SUCCESS && done != alias; done = done->next)
    pieces_unmap_alias(block, first, count, done);
  return result;
}

CUresult pieces_reach(const struct space *space, struct block *block, size_t i, CUdeviceptr *at) {
  const struct alias *alias = block->aliases;
  *at = piece_at(block, i);
  if (block->piece[i].opened)
    return CUDA_SUCCESS;
  while (alias && alias->rights[space->device] != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    alias = alias->next;
  if (!alias)
    return open_up(space, block, i, 1);
  *at = alias_at(block, i, alias);
  return CUDA_SUCCESS;
}

/* ---- runs of pieces ---- */

CUresult pieces_map(const struct space *space, struct block *block, size_t first, size_t count,
                    size_t *mapped) {
  CUresult result = CUDA_SUCCESS;
  for (*mapped = 0; *mapped < count; ++*mapped)
    if ((result = map_one(space, block, first + *mapped)) != CUDA_SUCCESS)
      break;
  if (!*mapped)
    return result;
  CUresult opened =
      block->by_handle ? map_aliases(block, first, *mapped) : open_up(space, block, first, *mapped);
  if (opened == CUDA_SUCCESS)
    return result;
  unmap_own(block, first, *mapped);
  *mapped = 0;
  return opened;
}

CUresult pieces_unmap(struct block *block, size_t first, size_t count) {
  CUresult result = CUDA_SUCCESS;
  for (const struct alias *alias = block->aliases; alias && result == CUDA_SUCCESS; alias = alias->next)
    result = pieces_unmap_alias(block, first, count, alias);
  return result == CUDA_SUCCESS ? unmap_own(block, first, count) : result;
}

CUresult pieces_set_peer(const struct block *block, size_t first, size_t count, CUdevice peer, bool access) {
  CUmemAccessDesc change = {.location = card(peer),
                            .flags =
                                access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
  return driver.cuMemSetAccess(piece_at(block, first), run_bytes(block, first, count), &change, 1);
}
