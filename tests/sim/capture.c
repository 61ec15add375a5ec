/* capture.c - stream captures; the rules are in capture.h. */
#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "graph.h"

static struct capture *captures;
static uint64_t last_capture_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  CUstreamCaptureMode before = thread_mode;
  if (mode == NULL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  thread_mode = *mode;
  *mode = before;
  return process_check();
}

/* ---- what breaks captures ---- */

/* Does the capture forbid unsafe calls to this thread? */
static bool capture_forbids(const struct capture *capture) {
  bool own = capture->thread == thread_number() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  switch (thread_mode) {
  case CU_STREAM_CAPTURE_MODE_GLOBAL:
    return own || capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
    return own;
  default:
    return false;
  }
}

CUresult capture_check_unsafe_locked(void) {
  CUresult result = CUDA_SUCCESS;
  for (struct capture *capture = captures; capture; capture = capture->next)
    if (capture_forbids(capture)) {
      capture->invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  return result;
}

CUresult capture_check_unsafe(void) {
  pthread_mutex_lock(&objects_lock);
  CUresult result = capture_check_unsafe_locked();
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult capture_check_stream_locked(CUstream stream) {
  if (stream->capture == NULL)
    return CUDA_SUCCESS;
  stream->capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_check_context_locked(CUcontext context) {
  (void)context;
  for (struct capture *capture = captures; capture; capture = capture->next)
    capture->invalid = true;
  return captures ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* A capturing stream that synchronises with the legacy one. */
static struct capture *blocking_capture(CUcontext context) {
  for (CUstream stream = context->streams; stream; stream = stream->next)
    if (stream->capture && !(stream->flags & CU_STREAM_NON_BLOCKING))
      return stream->capture;
  return NULL;
}

CUresult capture_check_submit_locked(CUstream stream) {
  struct capture *capture = stream->legacy && captures ? blocking_capture(stream->context) : NULL;
  if (capture == NULL)
    return CUDA_SUCCESS;
  capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/* ---- recording ---- */

static void frontier_set(CUstream stream, const CUgraphNode *nodes, size_t count) {
  CUgraphNode *copy = NULL;
  if (count) {
    copy = malloc(count * sizeof(CUgraphNode));
    if (copy == NULL)
      abort();
    memcpy(copy, nodes, count * sizeof(CUgraphNode));
  }
  free(stream->frontier);
  stream->frontier = copy;
  stream->frontier_count = count;
}

static bool frontier_has(const struct CUstream_st *stream, CUgraphNode node) {
  for (size_t i = 0; i < stream->frontier_count; i++)
    if (stream->frontier[i] == node)
      return true;
  return false;
}

static void frontier_add(CUstream stream, const CUgraphNode *nodes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (frontier_has(stream, nodes[i]))
      continue;
    CUgraphNode *larger = realloc(stream->frontier, (stream->frontier_count + 1) * sizeof(CUgraphNode));
    if (larger == NULL)
      abort();
    stream->frontier = larger;
    stream->frontier[stream->frontier_count++] = nodes[i];
  }
}

CUresult capture_record_locked(CUstream stream, const struct work *work) {
  struct capture *capture = stream->capture;
  if (capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (work->kind == WORK_COPY && work_lacks_memory(work)) /* but not of a memory set */
    return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node = graph_add(capture->graph, work, stream->frontier, stream->frontier_count);
  frontier_set(stream, &node, 1);
  return CUDA_SUCCESS;
}

CUresult capture_event_record_locked(CUstream stream, CUevent event) {
  if (stream->capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  free(event->frontier);
  event->frontier = NULL;
  event->frontier_count = stream->frontier_count;
  if (stream->frontier_count) {
    event->frontier = malloc(stream->frontier_count * sizeof(CUgraphNode));
    if (event->frontier == NULL)
      abort();
    memcpy(event->frontier, stream->frontier, stream->frontier_count * sizeof(CUgraphNode));
  }
  event->capture_id = stream->capture->id;
  op_release(event->recorded);
  event->recorded = NULL;
  return CUDA_SUCCESS;
}

static struct capture *capture_by_id(uint64_t id) {
  struct capture *capture = captures;
  while (capture && capture->id != id)
    capture = capture->next;
  return id ? capture : NULL;
}

bool capture_event_is_captured_locked(CUevent event) { return capture_by_id(event->capture_id) != NULL; }

CUresult capture_event_wait_locked(CUstream stream, CUevent event) {
  struct capture *capture = capture_by_id(event->capture_id);
  if (capture->invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture && stream->capture != capture) {
    capture->invalid = stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  stream->capture = capture;
  frontier_add(stream, event->frontier, event->frontier_count);
  return CUDA_SUCCESS;
}

/* ---- begin and end ---- */

static CUresult begin_locked(CUstream stream, CUstreamCaptureMode mode, CUgraph graph) {
  if (stream->legacy)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture)
    return CUDA_ERROR_ILLEGAL_STATE;
  struct capture *capture = calloc(1, sizeof(*capture));
  if (capture == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *capture = (struct capture){.next = captures,
                              .id = ++last_capture_id,
                              .thread = thread_number(),
                              .mode = mode,
                              .origin = stream,
                              .graph = graph ? graph : graph_create(),
                              .graph_given = graph != NULL};
  captures = capture;
  stream->capture = capture;
  frontier_set(stream, NULL, 0);
  return CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, CUgraph graph, const CUgraphNode *after,
                      size_t count) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  result = begin_locked(stream, mode, graph);
  if (result == CUDA_SUCCESS)
    frontier_add(stream, after, count);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

/* Some node that nothing depends on is not an end of the origin's: a forked stream was not joined. */
static bool capture_unjoined(const struct capture *capture) {
  for (CUgraphNode node = capture->graph->first; node; node = node->next) {
    bool followed = frontier_has(capture->origin, node);
    for (CUgraphNode other = node->next; other && !followed; other = other->next)
      for (size_t i = 0; i < other->after_count; i++)
        followed |= other->after[i] == node;
    if (!followed)
      return !capture->graph_given;
  }
  return false;
}

static void capture_forget(struct capture *capture) {
  struct capture **link = &captures;
  while (*link != capture)
    link = &(*link)->next;
  *link = capture->next;
  for (CUcontext context = context_first(); context; context = context->next)
    for (CUstream stream = context->streams; stream; stream = stream->next)
      if (stream->capture == capture) {
        stream->capture = NULL;
        frontier_set(stream, NULL, 0);
      }
}

/* The capture is over, well or not. */
static CUresult capture_finish(struct capture *capture, CUgraph *graph) {
  CUresult result = capture->invalid            ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : capture_unjoined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                : CUDA_SUCCESS;
  capture_forget(capture);
  if (result != CUDA_SUCCESS && !capture->graph_given)
    graph_destroy(capture->graph);
  if (graph)
    *graph = result == CUDA_SUCCESS ? capture->graph : NULL;
  free(capture);
  return result;
}

static CUresult end_locked(CUstream stream, CUgraph *graph) {
  struct capture *capture = stream->capture;
  if (capture == NULL)
    return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream)
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->thread != thread_number() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  return capture_finish(capture, graph);
}

static CUresult end(CUstream handle, CUgraph *graph) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || graph == NULL)
    return graph ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  result = end_locked(stream, graph);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

void capture_stream_destroyed_locked(CUstream stream) {
  struct capture *capture = stream->capture;
  if (capture == NULL)
    return;
  capture->invalid = true;
  stream->capture = NULL;
  if (capture->origin == stream)
    capture_finish(capture, NULL);
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}
CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  return begin(PER_THREAD(hStream), CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(hStream, mode, NULL, NULL, 0);
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(PER_THREAD(hStream), mode, NULL, NULL, 0);
}
CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) { return end(hStream, phGraph); }
CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
  return end(PER_THREAD(hStream), phGraph);
}

#if CUDA_VERSION >= 12030
CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  (void)dependencyData;
  return hGraph ? begin(hStream, mode, hGraph, dependencies, numDependencies) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                          CUstreamCaptureMode mode) {
  return cuStreamBeginCaptureToGraph(PER_THREAD(hStream), hGraph, dependencies, dependencyData,
                                     numDependencies, mode);
}
#endif

/* ---- questions ---- */

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream) {
  if (stream->capture == NULL)
    return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

struct capture_answer {
  CUstreamCaptureStatus *status;
  cuuint64_t *id;
  CUgraph *graph;
  const CUgraphNode **after;
  size_t *count;
};

static void answer_locked(const struct CUstream_st *stream, const struct capture_answer *out) {
  *out->status = status_of(stream);
  if (*out->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return;
  if (out->id)
    *out->id = stream->capture->id;
  if (out->graph)
    *out->graph = stream->capture->graph;
  if (out->after)
    *out->after = stream->frontier;
  if (out->count)
    *out->count = stream->frontier_count;
}

/* Asking about the legacy stream while a blocking stream captures is an error, but breaks nothing. */
static CUresult ask(CUstream handle, const struct capture_answer *out) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || out->status == NULL)
    return out->status ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  if (stream->legacy && captures && blocking_capture(stream->context))
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  else
    answer_locked(stream, out);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

#define ANSWER_V1 (&(struct capture_answer){captureStatus_out, id_out, NULL, NULL, NULL})
#define ANSWER_V2                                                                                            \
  (&(struct capture_answer){captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out})
#define INFO_V1_PARAMETERS CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out
#define INFO_V2_PARAMETERS                                                                                   \
  INFO_V1_PARAMETERS, CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out
#define INFO_V3_PARAMETERS                                                                                   \
  INFO_V1_PARAMETERS, CUgraph *graph_out, const CUgraphNode **dependencies_out,                              \
      const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
  return ask(hStream, &(struct capture_answer){.status = captureStatus});
}
CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
  return ask(PER_THREAD(hStream), &(struct capture_answer){.status = captureStatus});
}
CUresult cuStreamGetCaptureInfo(INFO_V1_PARAMETERS) { return ask(hStream, ANSWER_V1); }
CUresult cuStreamGetCaptureInfo_ptsz(INFO_V1_PARAMETERS) { return ask(PER_THREAD(hStream), ANSWER_V1); }
CUresult cuStreamGetCaptureInfo_v2(INFO_V2_PARAMETERS) { return ask(hStream, ANSWER_V2); }
CUresult cuStreamGetCaptureInfo_v2_ptsz(INFO_V2_PARAMETERS) { return ask(PER_THREAD(hStream), ANSWER_V2); }
#if CUDA_VERSION >= 12030
CUresult cuStreamGetCaptureInfo_v3(INFO_V3_PARAMETERS) {
  if (edgeData_out)
    *edgeData_out = NULL;
  return ask(hStream, ANSWER_V2);
}
CUresult cuStreamGetCaptureInfo_v3_ptsz(INFO_V3_PARAMETERS) {
  if (edgeData_out)
    *edgeData_out = NULL;
  return ask(PER_THREAD(hStream), ANSWER_V2);
}
#endif

static CUresult update(CUstream handle, const CUgraphNode *nodes, size_t count, unsigned flags) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  if (stream->capture == NULL)
    result = CUDA_ERROR_ILLEGAL_STATE;
  else if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    frontier_set(stream, nodes, count);
  else
    frontier_add(stream, nodes, count);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return update(hStream, dependencies, numDependencies, flags);
}
CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream, CUgraphNode *dependencies,
                                                size_t numDependencies, unsigned int flags) {
  return update(PER_THREAD(hStream), dependencies, numDependencies, flags);
}
#if CUDA_VERSION >= 12030
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                              unsigned int flags) {
  (void)dependencyData;
  return update(hStream, dependencies, numDependencies, flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream, CUgraphNode *dependencies,
                                                   const CUgraphEdgeData *dependencyData,
                                                   size_t numDependencies, unsigned int flags) {
  (void)dependencyData;
  return update(PER_THREAD(hStream), dependencies, numDependencies, flags);
}
#endif
