/* pieces.c - create, map, set access, unmap. */
#include "memory/swap/pieces.h"

#include "interpose/driver.h"
#include "memory/device.h"

static CUmemLocation card(CUdevice device) {
  return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* The mapping alone keeps the memory: unmapping it is what frees it. */
static CUresult map_one(const struct space *space, const struct block *block, size_t i) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = card(space->device)};
  CUmemGenericAllocationHandle handle;
  uint64_t bytes = piece_bytes(block, i);
  CUresult result = driver.cuMemCreate(&handle, bytes, &prop, 0);
  if (result != CUDA_SUCCESS)
    return result;
  result = driver.cuMemMap(piece_at(block, i), bytes, 0, handle, 0);
  driver.cuMemRelease(handle);
  return result;
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

CUresult pieces_map(const struct space *space, const struct block *block, size_t first, size_t count,
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

CUresult pieces_unmap(const struct block *block, size_t first, size_t count) {
  return driver.cuMemUnmap(piece_at(block, first), run_bytes(block, first, count));
}

CUresult pieces_set_peer(const struct block *block, size_t first, size_t count, CUdevice peer, bool access) {
  CUmemAccessDesc change = {.location = card(peer),
                            .flags =
                                access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
  return driver.cuMemSetAccess(piece_at(block, first), run_bytes(block, first, count), &change, 1);
}
