/* copy_box.c - the API of copies in two and three dimensions, and of batches. */
#include <string.h>

#include "array.h"
#include "copy.h"

struct end { /* one end as the API describes it */
  CUmemorytype type;
  uintptr_t host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z, pitch, height;
};

/* Rows of arrays are packed; x counts bytes everywhere. */
static CUresult end_resolve(const struct end *end, size_t width, size_t height, size_t depth,
                            struct work_side *side) {
  size_t pitch = end->pitch ? end->pitch : width;
  size_t rows = end->height ? end->height : height + end->y;
  uintptr_t base;
  if (end->type == CU_MEMORYTYPE_ARRAY) {
    if (end->array == NULL)
      return CUDA_ERROR_INVALID_VALUE;
    base = (uintptr_t)end->array->at;
    pitch = end->array->pitch;
    rows = end->array->slice / pitch;
  } else {
    base = end->type == CU_MEMORYTYPE_HOST ? end->host : (uintptr_t)end->device;
  }
  if (base == 0 || pitch < width)
    return CUDA_ERROR_INVALID_VALUE;
  *side = (struct work_side){
      .at = base + (end->z * rows + end->y) * pitch + end->x, .pitch = pitch, .slice = rows * pitch};
  bool empty = !width || !height || !depth || end->type == CU_MEMORYTYPE_ARRAY;
  size_t last = empty ? 0 : (depth - 1) * side->slice + (height - 1) * pitch + width;
  return !empty && memory_exceeds(base, side->at - base + last) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult box_resolve(struct work *work, const struct end *from, const struct end *to, size_t width,
                            size_t height, size_t depth) {
  *work = (struct work){.kind = WORK_COPY};
  work->copy.width = width;
  work->copy.height = height;
  work->copy.depth = depth;
  CUresult result = end_resolve(from, width, height, depth, &work->copy.from);
  return result == CUDA_SUCCESS ? end_resolve(to, width, height, depth, &work->copy.to) : result;
}

#define SOURCE_2D(c)                                                                                         \
  (&(struct end){(c)->srcMemoryType, (uintptr_t)(c)->srcHost, (c)->srcDevice, (c)->srcArray,                 \
                 (c)->srcXInBytes, (c)->srcY, 0, (c)->srcPitch, 0})
#define TARGET_2D(c)                                                                                         \
  (&(struct end){(c)->dstMemoryType, (uintptr_t)(c)->dstHost, (c)->dstDevice, (c)->dstArray,                 \
                 (c)->dstXInBytes, (c)->dstY, 0, (c)->dstPitch, 0})
#define SOURCE_3D(c)                                                                                         \
  (&(struct end){(c)->srcMemoryType, (uintptr_t)(c)->srcHost, (c)->srcDevice, (c)->srcArray,                 \
                 (c)->srcXInBytes, (c)->srcY, (c)->srcZ, (c)->srcPitch, (c)->srcHeight})
#define TARGET_3D(c)                                                                                         \
  (&(struct end){(c)->dstMemoryType, (uintptr_t)(c)->dstHost, (c)->dstDevice, (c)->dstArray,                 \
                 (c)->dstXInBytes, (c)->dstY, (c)->dstZ, (c)->dstPitch, (c)->dstHeight})

CUresult copy_from_3d(struct work *work, const CUDA_MEMCPY3D *copy) {
  return box_resolve(work, SOURCE_3D(copy), TARGET_3D(copy), copy->WidthInBytes, copy->Height, copy->Depth);
}

static CUresult plane(CUstream stream, const CUDA_MEMCPY2D *copy, bool wait) {
  struct work work;
  CUresult result =
      copy ? box_resolve(&work, SOURCE_2D(copy), TARGET_2D(copy), copy->WidthInBytes, copy->Height, 1)
           : CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? copy_submit(stream, &work, wait) : result;
}

static CUresult box(CUstream stream, const CUDA_MEMCPY3D *copy, bool wait) {
  struct work work;
  CUresult result = copy ? copy_from_3d(&work, copy) : CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? copy_submit(stream, &work, wait) : result;
}

static CUresult peer_box(CUstream stream, const CUDA_MEMCPY3D_PEER *copy, bool wait) {
  struct work work;
  CUresult result = copy ? box_resolve(&work, SOURCE_3D(copy), TARGET_3D(copy), copy->WidthInBytes,
                                       copy->Height, copy->Depth)
                         : CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? copy_submit(stream, &work, wait) : result;
}

#define BOX_SYNC(name, per_thread, type, call)                                                               \
  CUresult name(const type *pCopy) { return call(CU_STREAM_LEGACY, pCopy, true); }                           \
  CUresult per_thread(const type *pCopy) { return call(CU_STREAM_PER_THREAD, pCopy, true); }
#define BOX_ASYNC(name, type, call)                                                                          \
  CUresult name(const type *pCopy, CUstream hStream) { return call(hStream, pCopy, false); }                 \
  CUresult name##_ptsz(const type *pCopy, CUstream hStream) {                                                \
    return call(PER_THREAD(hStream), pCopy, false);                                                          \
  }

BOX_SYNC(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, plane)
BOX_SYNC(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, plane)
BOX_SYNC(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, box)
BOX_SYNC(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, peer_box)
BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, plane)
BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, box)
BOX_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, peer_box)

/* ---- batches ---- */

#if CUDA_VERSION >= 12080
static CUresult batch(CUstream stream, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                      size_t count, size_t *failed) {
  for (size_t i = 0; i < count; i++) {
    struct work work = copy_line((uintptr_t)to[i], (uintptr_t)from[i], bytes[i]);
    bool exceeds = memory_exceeds(to[i], bytes[i]) || memory_exceeds(from[i], bytes[i]);
    CUresult result = exceeds ? CUDA_ERROR_INVALID_VALUE : copy_submit(stream, &work, false);
    if (result == CUDA_SUCCESS)
      continue;
    if (failed)
      *failed = i;
    return result;
  }
  return CUDA_SUCCESS;
}

static CUresult operand_resolve(const CUmemcpy3DOperand *operand, const CUextent3D *extent,
                                struct work_side *side) {
  const bool array = operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  const struct end end = {.type = array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE,
                          .device = array ? 0 : operand->op.ptr.ptr,
                          .array = array ? operand->op.array.array : NULL,
                          .x = array ? operand->op.array.offset.x : 0,
                          .y = array ? operand->op.array.offset.y : 0,
                          .z = array ? operand->op.array.offset.z : 0,
                          .pitch = array ? 0 : operand->op.ptr.rowLength,
                          .height = array ? 0 : operand->op.ptr.layerHeight};
  return end_resolve(&end, extent->width, extent->height, extent->depth, side);
}

static CUresult batch_3d(CUstream stream, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, size_t *failed) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    struct work work = {.kind = WORK_COPY};
    work.copy.width = ops[i].extent.width;
    work.copy.height = ops[i].extent.height;
    work.copy.depth = ops[i].extent.depth;
    result = operand_resolve(&ops[i].src, &ops[i].extent, &work.copy.from);
    if (result == CUDA_SUCCESS)
      result = operand_resolve(&ops[i].dst, &ops[i].extent, &work.copy.to);
    if (result == CUDA_SUCCESS)
      result = copy_submit(stream, &work, false);
    if (result != CUDA_SUCCESS && failed)
      *failed = i;
  }
  return result;
}

/* Not allowed on the legacy stream. */
#define BATCH_STREAM(stream) ((stream) == NULL || (stream) == CU_STREAM_LEGACY)

#define BATCH_PARAMETERS                                                                                     \
  CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,              \
      size_t *attrsIdxs, size_t numAttrs

CUresult cuMemcpyBatchAsync(BATCH_PARAMETERS, size_t *failIdx, CUstream hStream) {
  (void)attrs, (void)attrsIdxs, (void)numAttrs;
  return BATCH_STREAM(hStream) ? CUDA_ERROR_INVALID_VALUE : batch(hStream, dsts, srcs, sizes, count, failIdx);
}
CUresult cuMemcpyBatchAsync_ptsz(BATCH_PARAMETERS, size_t *failIdx, CUstream hStream) {
  (void)attrs, (void)attrsIdxs, (void)numAttrs;
  return batch(PER_THREAD(hStream), dsts, srcs, sizes, count, failIdx);
}
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                              unsigned long long flags, CUstream hStream) {
  return flags || BATCH_STREAM(hStream) ? CUDA_ERROR_INVALID_VALUE
                                        : batch_3d(hStream, opList, numOps, failIdx);
}
CUresult cuMemcpy3DBatchAsync_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                   unsigned long long flags, CUstream hStream) {
  return flags ? CUDA_ERROR_INVALID_VALUE : batch_3d(PER_THREAD(hStream), opList, numOps, failIdx);
}
#endif

#if CUDA_VERSION >= 13000
CUresult cuMemcpyBatchAsync_v2(BATCH_PARAMETERS, CUstream hStream) {
  return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}
CUresult cuMemcpyBatchAsync_v2_ptsz(BATCH_PARAMETERS, CUstream hStream) {
  return cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                 CUstream hStream) {
  return cuMemcpy3DBatchAsync(numOps, opList, NULL, flags, hStream);
}
CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                      CUstream hStream) {
  return cuMemcpy3DBatchAsync_ptsz(numOps, opList, NULL, flags, hStream);
}
#endif
