/*
 * vmm.c - address ranges and physical memory, mapped by hand, with real protection: memory that is not
 * mapped, or has no access set, crashes whoever touches it, a kernel too. (A real driver looks at the
 * addresses of a copy when it is submitted, and refuses it if nothing is mapped there; here that is a crash
 * as well.)
 *
 * Physical memory is shared memory without a name, that mappings are further views of. What may be exported
 * has a descriptor, which the program can close: then it can't be exported any more. As in the real driver
 * (580), what was imported is not exported again; but its descriptor may be passed on, and imported by any
 * number of processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "engine.h"
#include "frames.h"
#include "objects.h"
#include "process.h"
#include "shared.h"
#include "sim.h"
#include "vmm.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* glibc 2.37 */
#endif

#define SPARES_MOST_BYTES ((size_t)256 << 20)

struct physical {
  struct physical *next;
  unsigned handles, mappings; /* it is gone with the last of them */
  bool on_card;
  unsigned gpu;
  size_t bytes;
  void *memory; /* shared with its mappings */
  int fd;       /* -1: it has no file (yet) */
  ino_t inode;
  uint64_t shared; /* its id in shared.h; 0: it was neither exported nor imported */
  uint64_t id;
  CUmemAllocationProp properties;
};

struct mapping {
  CUdeviceptr at;
  size_t bytes;
  unsigned char access[STATE_GPUS]; /* CUmemAccess_flags */
  unsigned char any;                /* likewise: of hosts */
  struct physical *physical;
};

static struct {
  pthread_mutex_t lock;
  uint64_t next_id;
  struct physical *physicals;
  struct mapping *mappings; /* by address */
  size_t count, room;
  /* Those that are gone: their memory of the host is that of the next one of their size, with other contents.
   * To take memory from the kernel costs more than to fill it. */
  struct physical *spares;
  size_t spare_bytes;
} vmm = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_id = 1};

static CUmemGenericAllocationHandle handle_of(struct physical *physical) {
  return (CUmemGenericAllocationHandle)(uintptr_t)physical;
}

/* NULL for what is no handle, or no longer one. vmm.lock is held. */
static struct physical *physical_of(CUmemGenericAllocationHandle handle) {
  for (struct physical *p = vmm.physicals; p; p = p->next)
    if (handle_of(p) == handle && p->handles > 0)
      return p;
  return NULL;
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

/* ---- the table of mappings; vmm.lock is held ---- */

/* Index of the first mapping whose end is above the address. */
static size_t mapping_lower(CUdeviceptr at) {
  size_t low = 0, high = vmm.count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (vmm.mappings[middle].at + vmm.mappings[middle].bytes <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static struct mapping *mapping_find(CUdeviceptr at) {
  size_t index = mapping_lower(at);
  return index < vmm.count && vmm.mappings[index].at <= at ? &vmm.mappings[index] : NULL;
}

static bool range_is_free(CUdeviceptr at, size_t bytes) {
  size_t index = mapping_lower(at);
  return index == vmm.count || at + bytes <= vmm.mappings[index].at;
}

/* Whole mappings that fill the range exactly: the first and how many, or 0. */
static size_t range_mappings(CUdeviceptr at, size_t bytes, struct mapping **first) {
  size_t index = mapping_lower(at), count = 0;
  CUdeviceptr next = at;
  while (index + count < vmm.count && next < at + bytes && vmm.mappings[index + count].at == next)
    next += vmm.mappings[index + count++].bytes;
  *first = &vmm.mappings[index];
  return next == at + bytes ? count : 0;
}

static bool mapping_insert(const struct mapping *mapping) {
  size_t index = mapping_lower(mapping->at), larger = vmm.room ? vmm.room * 2 : 64;
  if (vmm.count == vmm.room) {
    struct mapping *grown = realloc(vmm.mappings, larger * sizeof(struct mapping));
    if (grown == NULL)
      return false;
    vmm.mappings = grown;
    vmm.room = larger;
  }
  memmove(&vmm.mappings[index + 1], &vmm.mappings[index], (vmm.count - index) * sizeof(struct mapping));
  vmm.mappings[index] = *mapping;
  vmm.count++;
  return true;
}

static void mappings_remove(struct mapping *first, size_t count) {
  size_t index = (size_t)(first - vmm.mappings);
  memmove(first, first + count, (vmm.count - index - count) * sizeof(struct mapping));
  vmm.count -= count;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  struct memory_info info;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  bool mapped = !range_is_free(ptr, size);
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

enum { FIRST_NUMBER = 700 };            /* those below are the program's */
#define FILE_AT_ONCE ((size_t)32 << 20) /* smaller memory has a file once it is exported */

static bool is_ours(const struct physical *physical) {
  struct stat file;
  return physical->fd >= 0 && fstat(physical->fd, &file) == 0 && file.st_ino == physical->inode;
}

/* Takes over what was just opened. */
static void keep_descriptor(struct physical *physical, int fd) {
  struct stat file;
  physical->fd = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_NUMBER);
  if (fd >= 0)
    close(fd);
  if (physical->fd >= 0 && fstat(physical->fd, &file) == 0)
    physical->inode = file.st_ino;
}

static void make_descriptor(struct physical *physical) {
  int fd = memfd_create("gpushare-sim", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)physical->bytes) == 0)
    keep_descriptor(physical, fd);
  else if (fd >= 0)
    close(fd);
}

static void *spare_take(size_t bytes) {
  void *memory = NULL;
  pthread_mutex_lock(&vmm.lock);
  struct physical **link = &vmm.spares, *spare;
  while (*link && (*link)->bytes != bytes)
    link = &(*link)->next;
  if ((spare = *link)) {
    memory = spare->memory;
    *link = spare->next;
    vmm.spare_bytes -= bytes;
    free(spare);
  }
  pthread_mutex_unlock(&vmm.lock);
  return memory ? memset(memory, 0xD5, bytes) : NULL;
}

/* vmm.lock is held. */
static bool spare_keep(struct physical *physical) {
  if (physical->fd >= 0 || physical->shared || vmm.spare_bytes + physical->bytes > SPARES_MOST_BYTES)
    return false;
  physical->next = vmm.spares;
  vmm.spares = physical;
  vmm.spare_bytes += physical->bytes;
  return true;
}

static bool memory_make(struct physical *physical) {
  physical->fd = -1;
  if (physical->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && physical->bytes >= FILE_AT_ONCE)
    make_descriptor(physical);
  if (physical->fd < 0 && (physical->memory = spare_take(physical->bytes)))
    return true;
  physical->memory = mmap(NULL, physical->bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | (physical->fd < 0 ? MAP_ANONYMOUS : 0), physical->fd, 0);
  return physical->memory != MAP_FAILED;
}

static CUresult properties_check(const CUmemAllocationProp *prop) {
  if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  bool on_device = prop->location.type == SIM_LOCATION_DEVICE;
  if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      (!on_device || prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->location.type == SIM_LOCATION_DEVICE)
    return device_check(prop->location.id);
  return prop->location.type >= SIM_LOCATION_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Unified memory that left the card for it was copied out first. */
static CUresult physical_pin(const struct physical *physical) {
  uint64_t evicted = 0;
  if (!physical->on_card)
    return CUDA_SUCCESS;
  if (physical->bytes > sim.card.capacity_bytes || frames_pin(physical->gpu, physical->bytes, &evicted) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (evicted)
    engine_wait_until(clock_now_ns() + card_cost_ns(&sim.card, evicted * PAGE_BYTES, sim.card.evict_gbps));
  return CUDA_SUCCESS;
}

static CUresult physical_fill(struct physical *physical) {
  CUresult result = physical_pin(physical);
  if (result != CUDA_SUCCESS || memory_make(physical))
    return result;
  if (physical->on_card)
    frames_unpin(physical->gpu, physical->bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUmemGenericAllocationHandle physical_publish(struct physical *physical) {
  pthread_mutex_lock(&vmm.lock);
  physical->id = vmm.next_id++;
  physical->next = vmm.physicals;
  vmm.physicals = physical;
  pthread_mutex_unlock(&vmm.lock);
  return handle_of(physical);
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
  *made = (struct physical){.handles = 1, .bytes = size, .properties = *prop};
  made->on_card = prop->location.type == SIM_LOCATION_DEVICE;
  made->gpu = made->on_card ? devices[prop->location.id].gpu : 0;
  result = physical_fill(made);
  if (result == CUDA_SUCCESS) {
    process_count(made->gpu, GS_SIM_created, 1);
    *handle = physical_publish(made);
  } else {
    free(made);
  }
  return result;
}

/* If nothing refers to it any more, it is gone. vmm.lock is held. */
static void physical_settle(struct physical *physical) {
  struct physical **link = &vmm.physicals;
  if (physical->handles > 0 || physical->mappings > 0)
    return;
  while (*link != physical)
    link = &(*link)->next;
  *link = physical->next;
  if (is_ours(physical))
    close(physical->fd);
  if (physical->shared)
    shared_leave(sim.state, sim.slot_index, physical->shared);
  else if (physical->on_card)
    frames_unpin(physical->gpu, physical->bytes);
  if (spare_keep(physical))
    return;
  munmap(physical->memory, physical->bytes);
  free(physical);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  struct physical *physical = physical_of(handle);
  if (physical) {
    physical->handles--;
    physical_settle(physical);
  }
  pthread_mutex_unlock(&vmm.lock);
  return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  struct physical *physical = physical_of(handle);
  if (physical)
    *prop = physical->properties;
  pthread_mutex_unlock(&vmm.lock);
  return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  struct mapping *mapping = mapping_find((CUdeviceptr)(uintptr_t)addr);
  if (mapping) {
    mapping->physical->handles++;
    *handle = handle_of(mapping->physical);
  }
  pthread_mutex_unlock(&vmm.lock);
  return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- between processes ---- */

static int protection_of(const struct mapping *mapping) {
  unsigned any = mapping->any;
  for (int g = 0; g < STATE_GPUS; g++)
    any |= mapping->access[g];
  return any == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
         : any == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                   : PROT_NONE;
}

/* The same contents in a file, at all the addresses. Why so late: for a moment each file has one of the
 * program's numbers. No work writes meanwhile. vmm.lock is held. */
static void move_to_file(struct physical *physical) {
  make_descriptor(physical);
  if (physical->fd < 0 ||
      pwrite(physical->fd, physical->memory, physical->bytes, 0) != (ssize_t)physical->bytes ||
      mmap(physical->memory, physical->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->fd,
           0) == MAP_FAILED)
    return;
  for (const struct mapping *mapping = vmm.mappings; mapping < vmm.mappings + vmm.count; mapping++) {
    void *at = (void *)(uintptr_t)mapping->at;
    if (mapping->physical == physical)
      mprotect(mremap(physical->memory, 0, mapping->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at), mapping->bytes,
               protection_of(mapping));
  }
}

/* vmm.lock is held. */
static bool needs_file(const struct physical *physical) {
  return physical && !physical->shared && physical->fd < 0 &&
         physical->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
}

/* Each time a new one; not of what has been imported. vmm.lock is held. */
static int export_locked(struct physical *physical) {
  bool again = physical->shared;
  if (needs_file(physical))
    move_to_file(physical);
  if (!is_ours(physical))
    return -EINVAL;
  int fd = shared_export(physical->fd, &physical->shared);
  if (again)
    return fd;
  if (fd >= 0 && !shared_enter(sim.state, sim.slot_index, physical->shared, physical->gpu, physical->bytes)) {
    close(fd);
    fd = -ENOMEM;
  }
  if (fd < 0)
    physical->shared = 0;
  return fd;
}

CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (shared == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&vmm.lock);
  struct engine_pause pause = {.count = 0};
  if (needs_file(physical_of(handle))) {
    pthread_mutex_unlock(&vmm.lock);
    engine_pause_begin(&pause);
    pthread_mutex_lock(&vmm.lock);
  }
  struct physical *physical = physical_of(handle);
  int fd = physical ? export_locked(physical) : -EINVAL;
  pthread_mutex_unlock(&vmm.lock);
  engine_pause_end(&pause);
  if (fd >= 0)
    *(int *)shared = fd;
  return fd >= 0 ? CUDA_SUCCESS : fd == -EINVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct physical *find_shared(uint64_t id) {
  struct physical *found = vmm.physicals;
  while (found && found->shared != id)
    found = found->next;
  return found;
}

static int device_of(unsigned gpu) {
  for (int device = 0; device < sim.device_count; device++)
    if (devices[device].gpu == gpu)
      return device;
  return -1;
}

/* Takes over the descriptor. NULL: it can't be had. */
static struct physical *adopt(int fd, uint64_t id) {
  struct physical *made = calloc(1, sizeof(*made));
  struct stat file;
  if (made == NULL || fstat(fd, &file) < 0 || !shared_join(sim.state, sim.slot_index, id, &made->gpu)) {
    close(fd);
    free(made);
    return NULL;
  }
  *made = (struct physical){
      .handles = 1, .on_card = true, .gpu = made->gpu, .bytes = (size_t)file.st_size, .fd = -1, .shared = id};
  made->properties =
      (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_of(made->gpu)}};
  made->memory = mmap(NULL, made->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (made->memory != MAP_FAILED && made->properties.location.id >= 0)
    return made;
  shared_leave(sim.state, sim.slot_index, id);
  free(made);
  return NULL;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared,
                                        CUmemAllocationHandleType type) {
  uint64_t id;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  int fd = shared_import((int)(uintptr_t)shared, &id);
  if (fd < 0)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&vmm.lock);
  struct physical *known = find_shared(id);
  if (known) {
    known->handles++;
    *handle = handle_of(known);
  }
  pthread_mutex_unlock(&vmm.lock);
  struct physical *made = NULL;
  if (known)
    close(fd);
  else if ((made = adopt(fd, id)))
    *handle = physical_publish(made);
  if (made)
    process_count(made->gpu, GS_SIM_imported, 1);
  return known || made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- mapping ---- */

/* As the real driver (580): all of the handle. */
static CUresult map_locked(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle) {
  struct physical *physical = physical_of(handle);
  if (physical == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  if (offset || bytes != physical->bytes)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!aligned(at) || !range_is_free(at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const struct mapping mapping = {.at = at, .bytes = bytes, .physical = physical};
  if (!mapping_insert(&mapping))
    return CUDA_ERROR_OUT_OF_MEMORY;
  void *mapped = mremap(physical->memory, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)at);
  if (mapped == MAP_FAILED || mprotect(mapped, bytes, PROT_NONE) < 0) {
    mappings_remove(mapping_find(at), 1);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical->mappings++;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  struct memory_info info;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (size == 0 || flags || !aligned(size) || !aligned(offset))
    return CUDA_ERROR_INVALID_VALUE;
  if (!memory_find(ptr, &info) || info.kind != MEMORY_RESERVED || !memory_covers(ptr, size))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&vmm.lock);
  result = map_locked(ptr, size, offset, handle);
  pthread_mutex_unlock(&vmm.lock);
  return result;
}

/* Whole mappings and, as the real driver has it, what is between them. */
static CUresult unmap_locked(CUdeviceptr at, size_t bytes) {
  size_t index = mapping_lower(at), count = 0;
  CUdeviceptr end = at + bytes;
  struct mapping *first = &vmm.mappings[index];
  while (index + count < vmm.count && first[count].at < end)
    count++;
  if (count && (first[0].at < at || first[count - 1].at + first[count - 1].bytes > end))
    return CUDA_ERROR_INVALID_VALUE;
  if (mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
           -1, 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < count; i++) {
    first[i].physical->mappings--;
    physical_settle(first[i].physical);
  }
  mappings_remove(first, count);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  struct memory_info info;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (!memory_find(ptr, &info) || info.kind != MEMORY_RESERVED || !memory_covers(ptr, size))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&vmm.lock);
  result = unmap_locked(ptr, size);
  pthread_mutex_unlock(&vmm.lock);
  return result;
}

/* ---- access ---- */

static CUresult access_check(const CUmemAccessDesc *desc, size_t count) {
  if (desc == NULL || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++)
    if (desc[i].location.type == SIM_LOCATION_DEVICE && device_check(desc[i].location.id) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* The host's processor reads and writes for all GPUs: what one of them may, the mapping must allow. */
static bool mapping_open(struct mapping *mapping, const CUmemAccessDesc *desc, size_t count) {
  mapping->any = 0;
  for (size_t i = 0; i < count; i++)
    if (desc[i].location.type == SIM_LOCATION_DEVICE)
      mapping->access[devices[desc[i].location.id].gpu] = (unsigned char)desc[i].flags;
    else
      mapping->any |= (unsigned char)desc[i].flags;
  return mprotect((void *)(uintptr_t)mapping->at, mapping->bytes, protection_of(mapping)) == 0;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  struct mapping *first;
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    result = access_check(desc, count);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  size_t mappings = range_mappings(ptr, size, &first);
  result = mappings ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < mappings && result == CUDA_SUCCESS; i++)
    if (!mapping_open(&first[i], desc, count))
      result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_unlock(&vmm.lock);
  return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && location->type == SIM_LOCATION_DEVICE)
    result = device_check(location->id);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&vmm.lock);
  struct mapping *mapping = mapping_find(ptr);
  if (mapping)
    *flags = location->type == SIM_LOCATION_DEVICE ? mapping->access[devices[location->id].gpu] : 0;
  pthread_mutex_unlock(&vmm.lock);
  return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- for the rest of the simulator ---- */

bool vmm_find(CUdeviceptr at, struct vmm_info *info) {
  pthread_mutex_lock(&vmm.lock);
  struct mapping *mapping = mapping_find(at);
  if (mapping)
    *info = (struct vmm_info){.base = mapping->at,
                              .bytes = mapping->bytes,
                              .on_card = mapping->physical->on_card,
                              .gpu = mapping->physical->gpu,
                              .id = mapping->physical->id};
  pthread_mutex_unlock(&vmm.lock);
  return mapping != NULL;
}

static bool mapping_opens(const struct mapping *mapping, int gpu) {
  return gpu < 0 || mapping->access[gpu] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* gpu < 0: mapped is enough. */
static bool range_holds(CUdeviceptr at, size_t bytes, int gpu) {
  pthread_mutex_lock(&vmm.lock);
  CUdeviceptr end = at + bytes;
  for (struct mapping *mapping; at < end; at = mapping->at + mapping->bytes) {
    mapping = mapping_find(at);
    if (mapping == NULL || !mapping_opens(mapping, gpu))
      break;
  }
  pthread_mutex_unlock(&vmm.lock);
  return at >= end;
}

static bool is_reserved(CUdeviceptr at) {
  struct memory_info info;
  return memory_find(at, &info) && info.kind == MEMORY_RESERVED;
}

bool vmm_lacks(CUdeviceptr at, size_t bytes) { return is_reserved(at) && !range_holds(at, bytes, -1); }

bool vmm_forbids(CUdeviceptr at, size_t bytes, unsigned gpu) {
  return is_reserved(at) && !range_holds(at, bytes, (int)gpu);
}

/* Why: shared memory comes in small pages, and a fault for each takes eight times as long. Only from
 * Linux 6.1 on. */
void vmm_touch(CUdeviceptr at, size_t bytes) {
  CUdeviceptr end = at + bytes;
  if (!is_reserved(at))
    return;
  for (at = (at + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; at + PAGE_BYTES <= end; at += PAGE_BYTES) {
    unsigned char present = 1;
    if (mincore((void *)(uintptr_t)at, 1, &present) < 0 || present)
      continue;
    (void)*(volatile char *)(uintptr_t)at; /* what is entirely empty does not collapse */
    madvise((void *)(uintptr_t)at, PAGE_BYTES, MADV_COLLAPSE);
  }
}

void gs_sim_touch(uint64_t device_pointer, uint64_t bytes) { vmm_touch(device_pointer, bytes); }
