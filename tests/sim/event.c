/* event.c - events: marks in streams that others wait for, with the time at which they were passed. */
#include <stdlib.h>

#include "capture.h"
#include "objects.h"

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS)
    return result;
  if (phEvent == NULL || (Flags & ~7u) ||
      ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)))
    return CUDA_ERROR_INVALID_VALUE;
  CUevent made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = context;
  made->flags = Flags;
  *phEvent = made;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (hEvent == NULL)
    return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&objects_lock);
  op_release(hEvent->recorded);
  free(hEvent->frontier);
  pthread_mutex_unlock(&objects_lock);
  free(hEvent);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent) { return cuEventDestroy_v2(hEvent); }

static void record_locked(CUevent event, CUstream stream) {
  const struct work marker = {.kind = WORK_EMPTY, .gpu = stream->context->gpu};
  struct op *op = stream_submit_locked(stream, &marker, NULL);
  op_reference(op);
  op_release(event->recorded);
  event->recorded = op;
  event->capture_id = 0;
}

static CUresult record(CUevent event, CUstream handle) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || event == NULL)
    return event ? result : CUDA_ERROR_INVALID_HANDLE;
  if (event->context != stream->context)
    return CUDA_ERROR_INVALID_HANDLE;
  process_count(stream->context->gpu, GS_SIM_events, 1);
  pthread_mutex_lock(&objects_lock);
  result = capture_check_submit_locked(stream);
  if (result == CUDA_SUCCESS && stream->capture)
    result = capture_event_record_locked(stream, event);
  else if (result == CUDA_SUCCESS)
    record_locked(event, stream);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) { return record(hEvent, hStream); }
CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) { return record(hEvent, PER_THREAD(hStream)); }
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(hEvent, hStream);
}
CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(hEvent, PER_THREAD(hStream));
}

static CUresult wait(CUstream handle, CUevent event) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || event == NULL)
    return event ? result : CUDA_ERROR_INVALID_HANDLE;
  const struct work marker = {.kind = WORK_EMPTY, .gpu = stream->context->gpu};
  pthread_mutex_lock(&objects_lock);
  result = capture_check_submit_locked(stream);
  if (result == CUDA_SUCCESS && capture_event_is_captured_locked(event))
    result = capture_event_wait_locked(stream, event);
  else if (result == CUDA_SUCCESS && stream->capture)
    result = capture_check_stream_locked(stream); /* work outside the capture: not to be waited for in it */
  else if (result == CUDA_SUCCESS && event->recorded && !event->recorded->done)
    stream_submit_locked(stream, &marker, event->recorded);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return Flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait(hStream, hEvent);
}
CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return Flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait(PER_THREAD(hStream), hEvent);
}

static CUresult check_ask_locked(CUevent event) {
  return capture_event_is_captured_locked(event) ? CUDA_ERROR_CAPTURED_EVENT : capture_check_unsafe_locked();
}

CUresult cuEventQuery(CUevent hEvent) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || hEvent == NULL)
    return hEvent ? result : CUDA_ERROR_INVALID_HANDLE;
  process_count(hEvent->context->gpu, GS_SIM_event_queries, 1);
  pthread_mutex_lock(&objects_lock);
  result = check_ask_locked(hEvent);
  if (result == CUDA_SUCCESS && hEvent->recorded && !hEvent->recorded->done)
    result = CUDA_ERROR_NOT_READY;
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuEventSynchronize(CUevent hEvent) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || hEvent == NULL)
    return hEvent ? result : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&objects_lock);
  result = check_ask_locked(hEvent);
  if (result == CUDA_SUCCESS && hEvent->recorded)
    op_wait_locked(hEvent->recorded);
  pthread_mutex_unlock(&objects_lock);
  return result == CUDA_SUCCESS ? process_fault() : result;
}

static CUresult elapsed_locked(float *milliseconds, CUevent start, CUevent end) {
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
    return CUDA_ERROR_INVALID_HANDLE;
  if (start->recorded == NULL || end->recorded == NULL)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!start->recorded->done || !end->recorded->done)
    return CUDA_ERROR_NOT_READY;
  *milliseconds = (float)((double)(int64_t)(end->recorded->done_ns - start->recorded->done_ns) / 1e6);
  return CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || start == NULL || end == NULL)
    return start && end ? result : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&objects_lock);
  result = elapsed_locked(milliseconds, start, end);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd);
}
#if CUDA_VERSION >= 12080
CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd);
}
#endif
