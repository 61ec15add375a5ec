/* managed_api.c - the API of unified memory: advice, prefetch, discard, in both ABIs, and questions about
 * ranges. */
#include <string.h>

#include "capture.h"
#include "managed.h"
#include "objects.h"

/* A place of the API as a card or PREFER_HOST. False if there is no such place. */
static bool place_of_location(CUmemLocation location, int *place) {
  if (location.type == SIM_LOCATION_DEVICE) {
    if (location.id < 0 || location.id >= sim.device_count)
      return false;
    *place = (int)devices[location.id].gpu;
    return true;
  }
  *place = PREFER_HOST;
  return location.type >= SIM_LOCATION_HOST && location.type <= SIM_LOCATION_HOST_NUMA_CURRENT;
}

static CUmemLocation location_of_device(CUdevice device) {
  if (device == CU_DEVICE_CPU)
    return (CUmemLocation){.type = SIM_LOCATION_HOST};
  return (CUmemLocation){.type = SIM_LOCATION_DEVICE, .id = device};
}

static CUresult range_check(CUdeviceptr address, size_t bytes, struct memory_info *info) {
  if (bytes == 0 || !memory_find(address, info) || info->kind != MEMORY_MANAGED ||
      !memory_covers(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* ---- advice ---- */

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  struct memory_info info;
  struct managed_advice place = {.advice = advice, .place = PREFER_NOTHING};
  bool placed = advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    result = capture_check_unsafe();
  if (result == CUDA_SUCCESS)
    result = range_check(address, bytes, &info);
  if (result != CUDA_SUCCESS)
    return result;
  if (info.pool)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (placed && !place_of_location(location, &place.place))
    return CUDA_ERROR_INVALID_DEVICE;
  if (placed && place.place >= 0 && !sim.card.concurrent_managed_access)
    return CUDA_ERROR_INVALID_DEVICE;
  managed_advise(address, bytes, &place);
  return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  return advise(devPtr, count, advice, location_of_device(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location);
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
  return advise(devPtr, count, advice, location);
}

/* ---- prefetch ---- */

static CUresult range_submit(CUstream handle, enum work_kind kind, CUdeviceptr address, size_t bytes,
                             int to) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  struct work work = {.kind = kind, .gpu = to >= 0 ? (unsigned)to : stream->context->gpu};
  work.range.at = address;
  work.range.bytes = bytes;
  work.range.to = to;
  return stream_submit(stream, &work);
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, CUstream stream) {
  struct memory_info info;
  int place;
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    result = range_check(address, bytes, &info);
  if (result != CUDA_SUCCESS)
    return result;
  if (!place_of_location(location, &place) || !sim.card.concurrent_managed_access)
    return CUDA_ERROR_INVALID_DEVICE;
  return range_submit(stream, WORK_PREFETCH, address, bytes, place);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
  return prefetch(devPtr, count, location_of_device(dstDevice), hStream);
}
CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
  return prefetch(devPtr, count, location_of_device(dstDevice), PER_THREAD(hStream));
}

#define PREFETCH_V2_PARAMETERS                                                                               \
  CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream
CUresult cuMemPrefetchAsync_v2(PREFETCH_V2_PARAMETERS);
CUresult cuMemPrefetchAsync_v2(PREFETCH_V2_PARAMETERS) {
  return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, location, hStream);
}
CUresult cuMemPrefetchAsync_v2_ptsz(PREFETCH_V2_PARAMETERS);
CUresult cuMemPrefetchAsync_v2_ptsz(PREFETCH_V2_PARAMETERS) {
  return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, location, PER_THREAD(hStream));
}

/* ---- discard, and batches ---- */

#if CUDA_VERSION >= 13000
static CUresult batch_check(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                            unsigned long long flags) {
  struct memory_info info;
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && (flags || count == 0))
    result = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = range_check(addresses[i], sizes[i], &info);
  return result;
}

static CUresult discard_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                              unsigned long long flags, CUstream stream) {
  CUresult result = batch_check(addresses, sizes, count, flags);
  if (result == CUDA_SUCCESS && sim.card.driver_version < 13000)
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS)
    result = (CUresult)sim.card.discard_status;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = range_submit(stream, WORK_DISCARD, addresses[i], sizes[i], PREFER_HOST);
  return result;
}

struct prefetch_places { /* place n holds from address index[n] on */
  const CUmemLocation *locations;
  const size_t *index;
  size_t count;
};

static CUresult prefetch_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                               const struct prefetch_places *places, unsigned long long flags,
                               CUstream stream) {
  size_t place = 0;
  CUresult result = batch_check(addresses, sizes, count, flags);
  if (result == CUDA_SUCCESS && places->count == 0)
    result = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    while (place + 1 < places->count && places->index[place + 1] <= i)
      place++;
    result = prefetch(addresses[i], sizes[i], places->locations[place], stream);
  }
  return result;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream hStream) {
  return discard_batch(dptrs, sizes, count, flags, hStream);
}
CUresult cuMemDiscardBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                     unsigned long long flags, CUstream hStream) {
  return discard_batch(dptrs, sizes, count, flags, PER_THREAD(hStream));
}

#define PREFETCH_BATCH_PARAMETERS                                                                            \
  CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,     \
      size_t numPrefetchLocs, unsigned long long flags, CUstream hStream
#define PLACES (&(struct prefetch_places){prefetchLocs, prefetchLocIdxs, numPrefetchLocs})

CUresult cuMemPrefetchBatchAsync(PREFETCH_BATCH_PARAMETERS) {
  return prefetch_batch(dptrs, sizes, count, PLACES, flags, hStream);
}
CUresult cuMemPrefetchBatchAsync_ptsz(PREFETCH_BATCH_PARAMETERS) {
  return prefetch_batch(dptrs, sizes, count, PLACES, flags, PER_THREAD(hStream));
}
CUresult cuMemDiscardAndPrefetchBatchAsync(PREFETCH_BATCH_PARAMETERS) {
  CUresult result = discard_batch(dptrs, sizes, count, flags, hStream);
  return result == CUDA_SUCCESS ? prefetch_batch(dptrs, sizes, count, PLACES, flags, hStream) : result;
}
CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(PREFETCH_BATCH_PARAMETERS) {
  CUresult result = discard_batch(dptrs, sizes, count, flags, PER_THREAD(hStream));
  return result == CUDA_SUCCESS ? prefetch_batch(dptrs, sizes, count, PLACES, flags, PER_THREAD(hStream))
                                : result;
}
#endif

/* Ranges attached to one stream are a matter of cards without concurrent access. */
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
  CUstream stream;
  (void)dptr, (void)length, (void)flags;
  return stream_resolve(hStream, &stream);
}
CUresult cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
  return cuStreamAttachMemAsync(PER_THREAD(hStream), dptr, length, flags);
}

/* ---- questions ---- */

/* A place as the API's old numbering: a device, -1 for the host, -2 for none. */
static int32_t device_of_place(int place) {
  if (place == PREFER_HOST)
    return CU_DEVICE_CPU;
  for (int d = 0; place >= 0 && d < sim.device_count; d++)
    if ((int)devices[d].gpu == place)
      return d;
  return CU_DEVICE_INVALID;
}

static int32_t location_type_of_place(int place) {
  return place == PREFER_HOST ? (int32_t)SIM_LOCATION_HOST : place >= 0 ? (int32_t)SIM_LOCATION_DEVICE : 0;
}

static void accessed_by(int32_t *out, size_t count, unsigned cards) {
  size_t filled = 0;
  for (int d = 0; d < sim.device_count && filled < count; d++)
    if (cards & (1u << devices[d].gpu))
      out[filled++] = d;
  while (filled < count)
    out[filled++] = CU_DEVICE_INVALID;
}

static CUresult range_attribute(int32_t *out, size_t bytes, int attribute,
                                const struct managed_range *range) {
  switch (attribute) {
  case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
    *out = 0;
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    *out = device_of_place(range->preferred);
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
    accessed_by(out, bytes / 4, range->accessed_by);
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    *out = device_of_place(range->last_prefetch);
    return CUDA_SUCCESS;
  case 5: /* the types and ids of CUDA 12.2 */
    *out = location_type_of_place(range->preferred);
    return CUDA_SUCCESS;
  case 6:
    *out = range->preferred >= 0 ? device_of_place(range->preferred) : 0;
    return CUDA_SUCCESS;
  case 7:
    *out = location_type_of_place(range->last_prefetch);
    return CUDA_SUCCESS;
  case 8:
    *out = range->last_prefetch >= 0 ? device_of_place(range->last_prefetch) : 0;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  struct memory_info info;
  struct managed_range range;
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    result = data && dataSize >= 4 && dataSize % 4 == 0 ? range_check(devPtr, count, &info)
                                                        : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  managed_range(devPtr, count, &range);
  return range_attribute(data, dataSize, (int)attribute, &range);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  CUresult result = numAttributes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; result == CUDA_SUCCESS && i < numAttributes; i++)
    result = cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
  return result;
}
