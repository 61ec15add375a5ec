/*
 * capture.h - stream captures: what is recorded, and which calls break them.
 *
 * The rules are those observed on a real driver (580): a potentially unsafe call by a thread whose mode
 * forbids it fails with STREAM_CAPTURE_UNSUPPORTED and invalidates the captures in question; cuCtxSynchronize
 * does so whatever the modes are; the legacy stream must not be used while a blocking stream captures.
 */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "objects.h"

struct capture {
  struct capture *next;
  uint64_t id, thread;
  CUstreamCaptureMode mode;
  CUstream origin;
  CUgraph graph;
  bool graph_given; /* the graph is the program's (cuStreamBeginCaptureToGraph) */
  bool invalid;
};

/* Before a call that is unsafe while others capture (allocation, synchronisation, queries). */
CUresult capture_check_unsafe(void);
CUresult capture_check_unsafe_locked(void);
/* Before waiting for, or asking about, this very stream. */
CUresult capture_check_stream_locked(CUstream stream);
/* Before waiting for a whole context. */
CUresult capture_check_context_locked(CUcontext context);
/* Before submitting to the stream: an implicit dependency of the legacy stream? */
CUresult capture_check_submit_locked(CUstream stream);

CUresult capture_record_locked(CUstream stream, const struct work *work);
CUresult capture_event_record_locked(CUstream stream, CUevent event);
/* The event was recorded in an active capture: the stream joins it. */
CUresult capture_event_wait_locked(CUstream stream, CUevent event);
bool capture_event_is_captured_locked(CUevent event);
void capture_stream_destroyed_locked(CUstream stream);

#endif
