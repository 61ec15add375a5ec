/* set_api.c - the API of memory sets: three widths, one and two dimensions, with and without a stream. */
#include "objects.h"

struct set {
  CUdeviceptr at;
  size_t pitch, width, height;
  uint32_t value;
  unsigned element_bytes;
};

static CUresult set_submit(CUstream handle, const struct set *set, bool wait) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || set->width == 0 || set->height == 0)
    return result;
  size_t bytes = (set->height - 1) * set->pitch + set->width * set->element_bytes;
  if (set->at % set->element_bytes || !memory_covers(set->at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  struct work work = {.kind = WORK_SET, .gpu = stream->context->gpu};
  work.set.at = (uintptr_t)set->at;
  work.set.pitch = set->pitch;
  work.set.width = set->width;
  work.set.height = set->height;
  work.set.value = set->value;
  work.set.element_bytes = set->element_bytes;
  return wait ? stream_submit_wait(stream, &work) : stream_submit(stream, &work);
}

#define LINE(bytes) (&(struct set){dstDevice, 0, N, 1, value, bytes})
#define PLANE(bytes) (&(struct set){dstDevice, dstPitch, Width, Height, value, bytes})

#define SETS(bits, type)                                                                                     \
  CUresult cuMemsetD##bits##_v2(CUdeviceptr dstDevice, type value, size_t N) {                               \
    return set_submit(CU_STREAM_LEGACY, LINE(bits / 8), true);                                               \
  }                                                                                                          \
  CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr dstDevice, type value, size_t N) {                          \
    return set_submit(CU_STREAM_PER_THREAD, LINE(bits / 8), true);                                           \
  }                                                                                                          \
  CUresult cuMemsetD##bits##Async(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream) {           \
    return set_submit(hStream, LINE(bits / 8), false);                                                       \
  }                                                                                                          \
  CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream) {      \
    return set_submit(PER_THREAD(hStream), LINE(bits / 8), false);                                           \
  }                                                                                                          \
  CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,          \
                                  size_t Height) {                                                           \
    return set_submit(CU_STREAM_LEGACY, PLANE(bits / 8), true);                                              \
  }                                                                                                          \
  CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,     \
                                       size_t Height) {                                                      \
    return set_submit(CU_STREAM_PER_THREAD, PLANE(bits / 8), true);                                          \
  }                                                                                                          \
  CUresult cuMemsetD2D##bits##Async(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,        \
                                    size_t Height, CUstream hStream) {                                       \
    return set_submit(hStream, PLANE(bits / 8), false);                                                      \
  }                                                                                                          \
  CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,   \
                                         size_t Height, CUstream hStream) {                                  \
    return set_submit(PER_THREAD(hStream), PLANE(bits / 8), false);                                          \
  }

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)
