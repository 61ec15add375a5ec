/* pieces.c - create, map, set access, unmap. */
#include "memory/swap/pieces.h"

#include "driver/driver.h"
#include "memory/device.h"
#include "memory/swap/passing.h"

static CUmemLocation card(CUdevice device) {
  return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* In such a way that it can be passed to another process, where the driver can do that. */
static CUresult create(const struct space *space, uint64_t bytes, CUmemGenericAllocationHandle *handle) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = card(space->device)};
  bool passable = bytes == PIECE_BYTES && passing_can(space->device);
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

/* Memory that was passed has another job's contents: it is for a piece that is about to get its own. What is
 * left of it must not keep the card full. */
static CUresult map_one(const struct space *space, struct block *block, size_t i) {
  CUdeviceptr at = piece_at(block, i);
  uint64_t bytes = piece_bytes(block, i);
  bool heir = block->piece[i].state == PIECE_AWAY && bytes == PIECE_BYTES;
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

/* One call for a run of pieces. */
static CUresult open_up(const struct space *space, const struct block *block, size_t first, size_t count) {
  CUmemAccessDesc access[DEVICES + 1];
  size_t users = 0;
  for (CUdevice device = 0; device < DEVICES; device++)
    if (device == space->device || space->peers >> device & 1)
      access[users++] =
          (CUmemAccessDesc){.location = card(device), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver.cuMemSetAccess(piece_at(block, first), run_bytes(block, first, count), access, users);
}

CUresult pieces_map(const struct space *space, struct block *block, size_t first, size_t count,
                    size_t *mapped) {
  CUresult result = CUDA_SUCCESS;
  for (*mapped = 0; *mapped < count; ++*mapped)
    if ((result = map_one(space, block, first + *mapped)) != CUDA_SUCCESS)
      break;
  if (!*mapped)
    return result;
  CUresult opened = open_up(space, block, first, *mapped);
  if (opened == CUDA_SUCCESS)
    return result;
  pieces_unmap(block, first, *mapped);
  *mapped = 0;
  return opened;
}

CUresult pieces_unmap(struct block *block, size_t first, size_t count) {
  for (size_t i = first; i < first + count; i++)
    passing_forget(block, i);
  return driver.cuMemUnmap(piece_at(block, first), run_bytes(block, first, count));
}

CUresult pieces_set_peer(const struct block *block, size_t first, size_t count, CUdevice peer, bool access) {
  CUmemAccessDesc change = {.location = card(peer),
                            .flags =
                                access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
  return driver.cuMemSetAccess(piece_at(block, first), run_bytes(block, first, count), &change, 1);
}
