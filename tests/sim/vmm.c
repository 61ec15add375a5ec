/*
 * vmm.c - address ranges and physical memory, mapped by hand, with real protection: memory that is not
 * mapped, or has no access set, crashes whoever touches it, a kernel too.
 *
 * Physical memory is one sparse file in memory per process; a handle is an extent of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture.h"
#include "frames.h"
#include "objects.h"

struct physical {
  unsigned references; /* the program's handles, and mappings */
  bool on_card;
  unsigned gpu;
  size_t bytes;
  off_t offset;
  CUmemAllocationProp properties;
};

struct mapping {
  struct mapping *next;
  CUdeviceptr at;
  size_t bytes;
  unsigned long long access;
  struct physical *physical;
};

static struct {
  pthread_mutex_t lock;
  int file;
  off_t end;
  struct mapping *mappings;
} vmm = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

static struct physical *physical_of(CUmemGenericAllocationHandle handle) {
  return (struct physical *)(uintptr_t)handle;
}
static CUmemGenericAllocationHandle handle_of(struct physical *physical) {
  return (CUmemGenericAllocationHandle)(uintptr_t)physical;
}
static bool aligned(uint64_t value) { return value % PAGE_BYTES == 0; }

/* ---- address ranges ---- */

static void *reserve(size_t bytes, size_t alignment, void *wanted) {
  size_t larger = bytes + alignment;
  char *at = mmap(wanted, larger, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return NULL;
  char *start = (char *)(((uintptr_t)at + alignment - 1) / alignment * alignment);
  if (start > at)
    munmap(at, (size_t)(start - at));
  munmap(start + bytes, (size_t)(at + larger - (start + bytes)));
  return start;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (ptr == NULL || size == 0 || !aligned(size) || flags || (alignment & (alignment - 1)))
    return CUDA_ERROR_INVALID_VALUE;
  void *at = reserve(size, alignment > PAGE_BYTES ? alignment : PAGE_BYTES, (void *)(uintptr_t)addr);
  if (at == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const struct memory_request request = {.kind = MEMORY_RESERVED, .bytes = size};
  result = memory_adopt(&request, (CUdeviceptr)(uintptr_t)at);
  if (result == CUDA_SUCCESS)
    *ptr = (CUdeviceptr)(uintptr_t)at;
  else
    munmap(at, size);
  return result;
}

static struct mapping **mapping_find(CUdeviceptr at, size_t bytes) {
  struct mapping **link = &vmm.mappings;
  while (*link && ((*link)->at + (*link)->bytes <= at || at + bytes <= (*link)->at))
    link = &(*link)->next;
  return link;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  struct memory_info info;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  bool mapped = *mapping_find(ptr, size) != NULL;
  pthread_mutex_unlock(&vmm.lock);
  if (mapped || !memory_find(ptr, &info) || info.kind != MEMORY_RESERVED || info.base != ptr ||
      info.bytes != size)
    return CUDA_ERROR_INVALID_VALUE;
  memory_free(ptr, KIND_BIT(MEMORY_RESERVED));
  munmap((void *)(uintptr_t)ptr, size);
  return CUDA_SUCCESS;
}

/* ---- physical memory ---- */

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
  (void)prop, (void)option;
  *granularity = PAGE_BYTES;
  return process_check();
}

static bool file_extend(struct physical *physical) {
  pthread_mutex_lock(&vmm.lock);
  if (vmm.file < 0)
    vmm.file = memfd_create("gpushare-sim-vmm", MFD_CLOEXEC);
  physical->offset = vmm.end;
  bool extended = vmm.file >= 0 && ftruncate(vmm.file, vmm.end + (off_t)physical->bytes) == 0;
  if (extended)
    vmm.end += (off_t)physical->bytes;
  pthread_mutex_unlock(&vmm.lock);
  return extended;
}

static CUresult properties_check(const CUmemAllocationProp *prop) {
  if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->location.type == SIM_LOCATION_DEVICE)
    return device_check(prop->location.id);
  return prop->location.type >= SIM_LOCATION_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult physical_pin(struct physical *physical) {
  uint64_t evicted;
  if (!physical->on_card)
    return CUDA_SUCCESS;
  if (physical->bytes > sim.card.capacity_bytes || frames_pin(physical->gpu, physical->bytes, &evicted) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && (handle == NULL || size == 0 || !aligned(size) || flags))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = properties_check(prop);
  struct physical *made = result == CUDA_SUCCESS ? calloc(1, sizeof(*made)) : NULL;
  if (made == NULL)
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
  *made = (struct physical){.references = 1, .bytes = size, .properties = *prop};
  made->on_card = prop->location.type == SIM_LOCATION_DEVICE;
  made->gpu = made->on_card ? devices[prop->location.id].gpu : 0;
  result = physical_pin(made);
  if (result == CUDA_SUCCESS && !file_extend(made)) {
    if (made->on_card)
      frames_unpin(made->gpu, size);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS)
    *handle = handle_of(made);
  else
    free(made);
  return result;
}

/* vmm.lock is held. The bytes are gone with the last reference. */
static void physical_release(struct physical *physical) {
  if (--physical->references > 0)
    return;
  fallocate(vmm.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, physical->offset, (off_t)physical->bytes);
  if (physical->on_card)
    frames_unpin(physical->gpu, physical->bytes);
  free(physical);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || handle == 0)
    return handle ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&vmm.lock);
  physical_release(physical_of(handle));
  pthread_mutex_unlock(&vmm.lock);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
  *prop = physical_of(handle)->properties;
  return process_check();
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  struct mapping *mapping = *mapping_find((CUdeviceptr)(uintptr_t)addr, 1);
  if (mapping) {
    mapping->physical->references++;
    *handle = handle_of(mapping->physical);
  }
  pthread_mutex_unlock(&vmm.lock);
  return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- mapping ---- */

static CUresult map_locked(CUdeviceptr at, size_t bytes, size_t offset, struct physical *physical) {
  if (*mapping_find(at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  struct mapping *mapping = malloc(sizeof(*mapping));
  if (mapping == NULL || mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, vmm.file,
                              physical->offset + (off_t)offset) == MAP_FAILED) {
    free(mapping);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *mapping = (struct mapping){.next = vmm.mappings, .at = at, .bytes = bytes, .physical = physical};
  vmm.mappings = mapping;
  physical->references++;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  struct memory_info info;
  struct physical *physical = physical_of(handle);
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (physical == NULL || size == 0 || flags || !aligned(ptr) || !aligned(size) || !aligned(offset) ||
      offset + size > physical->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!memory_find(ptr, &info) || info.kind != MEMORY_RESERVED || !memory_covers(ptr, size))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&vmm.lock);
  result = map_locked(ptr, size, offset, physical);
  pthread_mutex_unlock(&vmm.lock);
  return result;
}

/* Whole mappings that fill the range exactly, or nothing. */
static bool range_is_mapped(CUdeviceptr at, size_t bytes) {
  size_t covered = 0;
  for (struct mapping *m = vmm.mappings; m; m = m->next)
    if (m->at >= at && m->at + m->bytes <= at + bytes)
      covered += m->bytes;
  return covered == bytes;
}

static void unmap_all(CUdeviceptr at, size_t bytes) {
  for (struct mapping **link = &vmm.mappings; *link;) {
    struct mapping *mapping = *link;
    if (mapping->at < at || mapping->at >= at + bytes) {
      link = &mapping->next;
      continue;
    }
    *link = mapping->next;
    physical_release(mapping->physical);
    free(mapping);
  }
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  if (size == 0 || !range_is_mapped(ptr, size)) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else if (mmap((void *)(uintptr_t)ptr, size, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    unmap_all(ptr, size);
  }
  pthread_mutex_unlock(&vmm.lock);
  return result;
}

static int protection(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
         : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                     : PROT_NONE;
}

/* Any part of mappings, as long as all of it is mapped. */
static bool range_has_memory(CUdeviceptr at, size_t bytes) {
  CUdeviceptr end = at + bytes;
  while (at < end) {
    struct mapping *mapping = *mapping_find(at, 1);
    if (mapping == NULL)
      return false;
    at = mapping->at + mapping->bytes;
  }
  return true;
}

static void access_note(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags) {
  for (struct mapping *m = vmm.mappings; m; m = m->next)
    if (m->at < at + bytes && at < m->at + m->bytes)
      m->access = (unsigned long long)flags;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (desc == NULL || count == 0 || size == 0 || !aligned(ptr) || !aligned(size))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&vmm.lock);
  if (!range_has_memory(ptr, size) ||
      mprotect((void *)(uintptr_t)ptr, size, protection(desc[count - 1].flags)) != 0)
    result = CUDA_ERROR_INVALID_VALUE;
  else
    access_note(ptr, size, desc[count - 1].flags);
  pthread_mutex_unlock(&vmm.lock);
  return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
  CUresult result = process_check();
  (void)location;
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  struct mapping *mapping = *mapping_find(ptr, 1);
  if (mapping)
    *flags = mapping->access;
  pthread_mutex_unlock(&vmm.lock);
  return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
