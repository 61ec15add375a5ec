/* stream_api.c - the API of streams: life, waiting, host functions, memory operations. */
#include <string.h>

#include "capture.h"
#include "objects.h"

static CUresult create(CUstream *out, unsigned flags, int priority) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS)
    return result;
  if (out == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  result = stream_create_locked(context, flags, priority, out);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) { return create(phStream, Flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
  return create(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (hStream == NULL || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&objects_lock);
  stream_close_locked(hStream);
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream) { return cuStreamDestroy_v2(hStream); }

/* The checks that any waiting for, or asking about, a stream must pass. */
static CUresult check_ask_locked(CUstream stream) {
  CUresult result = capture_check_stream_locked(stream);
  if (result == CUDA_SUCCESS)
    result = capture_check_submit_locked(stream);
  return result == CUDA_SUCCESS ? capture_check_unsafe_locked() : result;
}

static CUresult synchronize(CUstream handle) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  result = check_ask_locked(stream);
  if (result == CUDA_SUCCESS)
    stream_wait_locked(stream);
  pthread_mutex_unlock(&objects_lock);
  return result == CUDA_SUCCESS ? process_fault() : result;
}

static CUresult query(CUstream handle) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  result = check_ask_locked(stream);
  if (result == CUDA_SUCCESS && !stream_idle_locked(stream))
    result = CUDA_ERROR_NOT_READY;
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuStreamSynchronize(CUstream hStream) { return synchronize(hStream); }
CUresult cuStreamSynchronize_ptsz(CUstream hStream) { return synchronize(PER_THREAD(hStream)); }
CUresult cuStreamQuery(CUstream hStream) { return query(hStream); }
CUresult cuStreamQuery_ptsz(CUstream hStream) { return query(PER_THREAD(hStream)); }

/* ---- what a stream is ---- */

#define STREAM_GETTER(name, type, expression)                                                                \
  static CUresult name##_of(CUstream handle, type *out) {                                                    \
    CUstream stream;                                                                                         \
    CUresult result = stream_resolve(handle, &stream);                                                       \
    if (result == CUDA_SUCCESS)                                                                              \
      *out = (expression);                                                                                   \
    return result;                                                                                           \
  }                                                                                                          \
  CUresult name(CUstream hStream, type *out) { return name##_of(hStream, out); }                             \
  CUresult name##_ptsz(CUstream hStream, type *out) { return name##_of(PER_THREAD(hStream), out); }

STREAM_GETTER(cuStreamGetFlags, unsigned int, stream->flags)
STREAM_GETTER(cuStreamGetPriority, int, stream->priority)
STREAM_GETTER(cuStreamGetCtx, CUcontext, stream->context)
STREAM_GETTER(cuStreamGetId, unsigned long long, stream->id)
#if CUDA_VERSION >= 12080
STREAM_GETTER(cuStreamGetDevice, CUdevice, (CUdevice)stream->context->device)
#endif

/* ---- host functions ---- */

static CUresult submit_to(CUstream handle, struct work *work) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  work->gpu = stream->context->gpu;
  return stream_submit(stream, work);
}

static CUresult host_function(CUstream handle, CUhostFn function, void *data) {
  struct work work = {.kind = WORK_HOST_FUNCTION};
  work.host.function = function;
  work.host.data = data;
  return function ? submit_to(handle, &work) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
  return host_function(hStream, fn, userData);
}
CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData) {
  return host_function(PER_THREAD(hStream), fn, userData);
}

/* A callback gets the handle that the program knows; it cannot be captured. */
static CUresult callback(CUstream handle, CUstreamCallback function, void *data) {
  struct work work = {.kind = WORK_CALLBACK};
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || function == NULL)
    return function ? result : CUDA_ERROR_INVALID_VALUE;
  work.callback.function = function;
  work.callback.stream = handle;
  work.callback.data = data;
  pthread_mutex_lock(&objects_lock);
  result = capture_check_stream_locked(stream);
  pthread_mutex_unlock(&objects_lock);
  return result == CUDA_SUCCESS ? submit_to(handle, &work) : result;
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback_function, void *userData,
                             unsigned int flags) {
  return flags ? CUDA_ERROR_INVALID_VALUE : callback(hStream, callback_function, userData);
}
CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback_function, void *userData,
                                  unsigned int flags) {
  return flags ? CUDA_ERROR_INVALID_VALUE : callback(PER_THREAD(hStream), callback_function, userData);
}

/* ---- memory operations ---- */

/* Managed memory is refused, as by the real driver. */
static CUresult value_operation(CUstream handle, enum work_kind kind, CUdeviceptr address, uint64_t value,
                                unsigned bytes, unsigned flags) {
  struct work work = {.kind = kind};
  struct memory_info info;
  if (!memory_find(address, &info) || info.kind == MEMORY_MANAGED || address % bytes)
    return process_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
  work.value.at = (uintptr_t)address;
  work.value.value = value;
  work.value.bytes = bytes;
  work.value.flags = flags;
  return submit_to(handle, &work);
}

#define VALUE_OPERATION(name, kind, type)                                                                    \
  CUresult name(CUstream stream, CUdeviceptr addr, type value, unsigned int flags) {                         \
    return value_operation(stream, kind, addr, value, sizeof(type), flags);                                  \
  }                                                                                                          \
  CUresult name##_ptsz(CUstream stream, CUdeviceptr addr, type value, unsigned int flags) {                  \
    return value_operation(PER_THREAD(stream), kind, addr, value, sizeof(type), flags);                      \
  }

VALUE_OPERATION(cuStreamWaitValue32, WORK_WAIT_VALUE, cuuint32_t)
VALUE_OPERATION(cuStreamWaitValue32_v2, WORK_WAIT_VALUE, cuuint32_t)
VALUE_OPERATION(cuStreamWaitValue64, WORK_WAIT_VALUE, cuuint64_t)
VALUE_OPERATION(cuStreamWaitValue64_v2, WORK_WAIT_VALUE, cuuint64_t)
VALUE_OPERATION(cuStreamWriteValue32, WORK_WRITE_VALUE, cuuint32_t)
VALUE_OPERATION(cuStreamWriteValue32_v2, WORK_WRITE_VALUE, cuuint32_t)
VALUE_OPERATION(cuStreamWriteValue64, WORK_WRITE_VALUE, cuuint64_t)
VALUE_OPERATION(cuStreamWriteValue64_v2, WORK_WRITE_VALUE, cuuint64_t)

static CUresult batch_one(CUstream stream, const CUstreamBatchMemOpParams *p) {
  switch (p->operation) {
  case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    return value_operation(stream, WORK_WAIT_VALUE, p->waitValue.address, p->waitValue.value, 4,
                           p->waitValue.flags);
  case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    return value_operation(stream, WORK_WAIT_VALUE, p->waitValue.address, p->waitValue.value64, 8,
                           p->waitValue.flags);
  case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    return value_operation(stream, WORK_WRITE_VALUE, p->writeValue.address, p->writeValue.value, 4,
                           p->writeValue.flags);
  case CU_STREAM_MEM_OP_WRITE_VALUE_64:
    return value_operation(stream, WORK_WRITE_VALUE, p->writeValue.address, p->writeValue.value64, 8,
                           p->writeValue.flags);
  case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
  case CU_STREAM_MEM_OP_BARRIER:
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

static CUresult batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *params,
                      unsigned flags) {
  CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = batch_one(stream, &params[i]);
  return result;
}

#define BATCH(name)                                                                                          \
  CUresult name(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,                   \
                unsigned int flags) {                                                                        \
    return batch(stream, count, paramArray, flags);                                                          \
  }                                                                                                          \
  CUresult name##_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,            \
                       unsigned int flags) {                                                                 \
    return batch(PER_THREAD(stream), count, paramArray, flags);                                              \
  }

BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_v2)

/* ---- attributes: accepted, and nothing follows from them ---- */

static CUresult attribute_accept(CUstream handle) {
  CUstream stream;
  return stream_resolve(handle, &stream);
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *param) {
  (void)attr, (void)param;
  return attribute_accept(hStream);
}
CUresult cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value) {
  (void)attr, (void)value;
  return attribute_accept(PER_THREAD(hStream));
}
CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  (void)srcStream;
  return attribute_accept(dstStream);
}
CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src) {
  (void)src;
  return attribute_accept(PER_THREAD(dst));
}
