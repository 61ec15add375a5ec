/* copy_api.c - the API of copies: every shape, kind of address and stream, brought into one description. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "array.h"
#include "copy.h"
#include "managed.h"
#include "objects.h"

enum { STAGED_BYTES = 64 * 1024 };

/* Whether this end is host memory that the driver does not know. */
static bool pageable(uintptr_t at) {
  struct memory_info info;
  return !memory_find(at, &info);
}

static bool stream_captures(CUstream stream) {
  pthread_mutex_lock(&objects_lock);
  bool captures = stream->capture != NULL;
  pthread_mutex_unlock(&objects_lock);
  return captures;
}

/*
 * Copies of pageable memory are not asynchronous: a small source is staged, so that the program may reuse it
 * at once; else the call returns when the copy is done.
 */
static bool stage(struct work *work) {
  size_t bytes = work->copy.width;
  if (!pageable(work->copy.from.at) || pageable(work->copy.to.at) ||
      work->copy.height * work->copy.depth != 1 || bytes > STAGED_BYTES)
    return false;
  work->copy.staged = malloc(bytes);
  if (work->copy.staged == NULL)
    return false;
  memcpy(work->copy.staged, (void *)work->copy.from.at, bytes);
  work->copy.from.at = (uintptr_t)work->copy.staged;
  return true;
}

static bool is_unified(uintptr_t at) {
  struct memory_info info;
  return memory_find(at, &info) && info.kind == MEMORY_MANAGED;
}

static bool is_on_card(uintptr_t at, size_t bytes) {
  struct managed_range range;
  managed_range(at, bytes, &range);
  return range.resident_pages > 0;
}

/* What is counted says that it has begun. The first one goes on once its memory has left the card. */
static CUresult copy_by_processor(CUstream stream, const struct work *work) {
  static atomic_flag begun = ATOMIC_FLAG_INIT;
  uintptr_t from = work->copy.from.at, to = work->copy.to.at;
  size_t bytes = work->copy.width;
  pthread_mutex_lock(&objects_lock);
  stream_wait_locked(stream);
  pthread_mutex_unlock(&objects_lock);
  process_count(work->gpu, GS_SIM_copied_pageable_bytes, bytes);
  for (bool first = !atomic_flag_test_and_set(&begun);
       first && (is_on_card(from, bytes) || is_on_card(to, bytes));)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  memmove((void *)to, (const void *)from, bytes);
  process_count(work->gpu, GS_SIM_copies, 1);
  process_count(work->gpu, GS_SIM_processor_copies, 1);
  return process_fault();
}

CUresult copy_submit(CUstream handle, struct work *work, bool wait) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || work->copy.width == 0 || work->copy.height == 0 || work->copy.depth == 0)
    return result;
  work->gpu = stream->context->gpu;
  if (!wait && !stream_captures(stream) && !stage(work))
    wait = pageable(work->copy.from.at) || pageable(work->copy.to.at);
  if (wait && sim.card.processor_copies && work->copy.height * work->copy.depth == 1 &&
      (is_unified(work->copy.from.at) || is_unified(work->copy.to.at)))
    return copy_by_processor(stream, work);
  return wait ? stream_submit_wait(stream, work) : stream_submit(stream, work);
}

struct work copy_line(uintptr_t to, uintptr_t from, size_t bytes) {
  struct work work = {.kind = WORK_COPY};
  work.copy.to.at = to;
  work.copy.from.at = from;
  work.copy.width = bytes;
  work.copy.height = work.copy.depth = 1;
  return work;
}

/* ---- lines ---- */

enum ends { ENDS_ANY, ENDS_TO_DEVICE = 1, ENDS_FROM_DEVICE = 2 };

static CUresult line(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes, unsigned ends,
                     bool wait) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (bytes && (!to || !from))
    return CUDA_ERROR_INVALID_VALUE;
  if (bytes && (((ends & ENDS_TO_DEVICE) && !memory_covers(to, bytes)) ||
                ((ends & ENDS_FROM_DEVICE) && !memory_covers(from, bytes))))
    return CUDA_ERROR_INVALID_VALUE;
  if (memory_exceeds(to, bytes) || memory_exceeds(from, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  struct work work = copy_line((uintptr_t)to, (uintptr_t)from, bytes);
  return copy_submit(stream, &work, wait);
}

#define HOST(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

#define LINES(name, to_type, to, from_type, from, to_address, from_address, ends)                            \
  CUresult name##_v2(to_type to, from_type from, size_t ByteCount) {                                         \
    return line(CU_STREAM_LEGACY, to_address, from_address, ByteCount, ends, true);                          \
  }                                                                                                          \
  CUresult name##_v2_ptds(to_type to, from_type from, size_t ByteCount) {                                    \
    return line(CU_STREAM_PER_THREAD, to_address, from_address, ByteCount, ends, true);                      \
  }                                                                                                          \
  CUresult name##Async_v2(to_type to, from_type from, size_t ByteCount, CUstream hStream) {                  \
    return line(hStream, to_address, from_address, ByteCount, ends, false);                                  \
  }                                                                                                          \
  CUresult name##Async_v2_ptsz(to_type to, from_type from, size_t ByteCount, CUstream hStream) {             \
    return line(PER_THREAD(hStream), to_address, from_address, ByteCount, ends, false);                      \
  }

LINES(cuMemcpyHtoD, CUdeviceptr, dstDevice, const void *, srcHost, dstDevice, HOST(srcHost), ENDS_TO_DEVICE)
LINES(cuMemcpyDtoH, void *, dstHost, CUdeviceptr, srcDevice, HOST(dstHost), srcDevice, ENDS_FROM_DEVICE)
LINES(cuMemcpyDtoD, CUdeviceptr, dstDevice, CUdeviceptr, srcDevice, dstDevice, srcDevice,
      ENDS_TO_DEVICE | ENDS_FROM_DEVICE)

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return line(CU_STREAM_LEGACY, dst, src, ByteCount, ENDS_ANY, true);
}
CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return line(CU_STREAM_PER_THREAD, dst, src, ByteCount, ENDS_ANY, true);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return line(hStream, dst, src, ByteCount, ENDS_ANY, false);
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return line(PER_THREAD(hStream), dst, src, ByteCount, ENDS_ANY, false);
}

#define PEER_ENDS (ENDS_TO_DEVICE | ENDS_FROM_DEVICE)
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  (void)dstContext, (void)srcContext;
  return line(CU_STREAM_LEGACY, dstDevice, srcDevice, ByteCount, PEER_ENDS, true);
}
CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount) {
  (void)dstContext, (void)srcContext;
  return line(CU_STREAM_PER_THREAD, dstDevice, srcDevice, ByteCount, PEER_ENDS, true);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  (void)dstContext, (void)srcContext;
  return line(hStream, dstDevice, srcDevice, ByteCount, PEER_ENDS, false);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  (void)dstContext, (void)srcContext;
  return line(PER_THREAD(hStream), dstDevice, srcDevice, ByteCount, PEER_ENDS, false);
}

/* ---- arrays as lines ---- */

static bool array_holds(CUarray array, size_t offset, size_t bytes) {
  return array && offset <= array->bytes && bytes <= array->bytes - offset;
}

static CUresult to_array(CUstream stream, CUarray array, size_t offset, CUdeviceptr from, size_t bytes,
                         bool wait) {
  if (!array_holds(array, offset, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return line(stream, array->at + offset, from, bytes, ENDS_TO_DEVICE, wait);
}

static CUresult from_array(CUstream stream, CUdeviceptr to, CUarray array, size_t offset, size_t bytes,
                           bool wait) {
  if (!array_holds(array, offset, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return line(stream, to, array->at + offset, bytes, ENDS_FROM_DEVICE, wait);
}

#define TO_ARRAY(name, type, from, address)                                                                  \
  CUresult name(CUarray dstArray, size_t dstOffset, type from, size_t ByteCount) {                           \
    return to_array(CU_STREAM_LEGACY, dstArray, dstOffset, address, ByteCount, true);                        \
  }                                                                                                          \
  CUresult name##_ptds(CUarray dstArray, size_t dstOffset, type from, size_t ByteCount) {                    \
    return to_array(CU_STREAM_PER_THREAD, dstArray, dstOffset, address, ByteCount, true);                    \
  }
#define FROM_ARRAY(name, type, to, address)                                                                  \
  CUresult name(type to, CUarray srcArray, size_t srcOffset, size_t ByteCount) {                             \
    return from_array(CU_STREAM_LEGACY, address, srcArray, srcOffset, ByteCount, true);                      \
  }                                                                                                          \
  CUresult name##_ptds(type to, CUarray srcArray, size_t srcOffset, size_t ByteCount) {                      \
    return from_array(CU_STREAM_PER_THREAD, address, srcArray, srcOffset, ByteCount, true);                  \
  }

TO_ARRAY(cuMemcpyDtoA_v2, CUdeviceptr, srcDevice, srcDevice)
TO_ARRAY(cuMemcpyHtoA_v2, const void *, srcHost, HOST(srcHost))
FROM_ARRAY(cuMemcpyAtoD_v2, CUdeviceptr, dstDevice, dstDevice)
FROM_ARRAY(cuMemcpyAtoH_v2, void *, dstHost, HOST(dstHost))

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                              CUstream hStream) {
  return to_array(hStream, dstArray, dstOffset, HOST(srcHost), ByteCount, false);
}
CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                                   CUstream hStream) {
  return to_array(PER_THREAD(hStream), dstArray, dstOffset, HOST(srcHost), ByteCount, false);
}
CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return from_array(hStream, HOST(dstHost), srcArray, srcOffset, ByteCount, false);
}
CUresult cuMemcpyAtoHAsync_v2_ptsz(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                                   CUstream hStream) {
  return from_array(PER_THREAD(hStream), HOST(dstHost), srcArray, srcOffset, ByteCount, false);
}

static CUresult array_to_array(CUstream stream, CUarray to, size_t to_offset, CUarray from,
                               size_t from_offset, size_t bytes) {
  if (!array_holds(from, from_offset, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return to_array(stream, to, to_offset, from->at + from_offset, bytes, true);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return array_to_array(CU_STREAM_LEGACY, dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}
CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                              size_t ByteCount) {
  return array_to_array(CU_STREAM_PER_THREAD, dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}
