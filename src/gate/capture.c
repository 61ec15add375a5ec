/* capture.c - the streams that capture, from the calls that begin and end it. */
#include "gate/capture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/gate.h"
#include "gate/streams.h"

#define CAPTURES_MAX 1024

/* Who says that it waits is in the driver after this time. */
#define WAITS_NS (50 * NS_PER_MS)

/* Protects all below, of which the count may be read without. Never held over a call of the driver. */
static struct lock lock = LOCK(LOCK_CAPTURE);
static struct condition changed;
static struct {
  CUstream stream;
  CUcontext context;
} captures[CAPTURES_MAX]; /* capturing, or about to */
static _Atomic unsigned count;
static unsigned forbidden;
static unsigned lenient; /* of those that forbid: they wait in the driver, or are about to */
static uint64_t lenient_since_ns;

/* Until when no capture begins, as it stands; 0: one may. Lock held. */
static uint64_t forbidden_until_ns(void) {
  if (forbidden > lenient)
    return UINT64_MAX;
  uint64_t until_ns = lenient ? lenient_since_ns + WAITS_NS : 0;
  return until_ns > clock_now_ns() ? until_ns : 0;
}

/* Streams of one process may be more than the table holds: what does not fit is not waited for. */
static bool add(CUstream stream, CUcontext context) {
  lock_take(&lock);
  bool allowed = count > 0 || !forbidden ||
                 !forbidden_until_ns(); /* within an open capture, another may belong to the same graph */
  if (allowed && count < CAPTURES_MAX) {
    captures[count].stream = stream;
    captures[count++].context = context;
    condition_wake_all(&changed);
  }
  lock_release(&lock);
  return allowed;
}

static void wait_allowed(void) {
  lock_take(&lock);
  for (uint64_t until_ns; count == 0 && (until_ns = forbidden_until_ns());)
    condition_wait(&changed, &lock, until_ns);
  lock_release(&lock);
}

static bool drop(CUstream stream) {
  bool found = false;
  if (capture_count() == 0)
    return false;
  lock_take(&lock);
  for (unsigned i = 0; i < count && !found; i++)
    if (captures[i].stream == stream) {
      captures[i] = captures[--count];
      found = true;
      condition_wake_all(&changed);
    }
  lock_release(&lock);
  return found;
}

bool capture_stream_leaves(CUstream stream) { return drop(stream); }

void capture_stream_stays(CUstream stream) {
  CUcontext context = streams_context(stream);
  lock_take(&lock);
  if (count < CAPTURES_MAX) {
    captures[count].stream = stream;
    captures[count++].context = context;
    condition_wake_all(&changed);
  }
  lock_release(&lock);
}

void capture_context_gone(CUcontext context) {
  lock_take(&lock);
  for (unsigned i = 0; i < count;)
    if (captures[i].context == context)
      captures[i] = captures[--count];
    else
      i++;
  condition_wake_all(&changed);
  lock_release(&lock);
}

unsigned capture_count(void) { return atomic_load(&count); }

void capture_forbid(void) {
  lock_take(&lock);
  forbidden++;
  lock_release(&lock);
}

void capture_allow(void) {
  lock_take(&lock);
  forbidden--;
  condition_wake_all(&changed);
  lock_release(&lock);
}

void capture_wait_begin(void) {
  lock_take(&lock);
  lenient++;
  lenient_since_ns = clock_now_ns();
  condition_wake_all(&changed);
  lock_release(&lock);
}

void capture_wait_end(void) {
  lock_take(&lock);
  lenient--;
  lock_release(&lock);
}

bool capture_wait_none(uint64_t timeout_ns) {
  uint64_t deadline_ns = timeout_ns == UINT64_MAX ? UINT64_MAX : clock_now_ns() + timeout_ns;
  lock_take(&lock);
  while (count > 0 && condition_wait(&changed, &lock, deadline_ns))
    ;
  bool none = count == 0;
  lock_release(&lock);
  return none;
}

void capture_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_CAPTURE);
  count = forbidden = lenient = 0;
}

/* ---- the hooks ---- */

/* A capture begins as a holder, so that its end is never waited for behind another job's turn. The stream
 * counts as capturing before the driver knows, so that a hand-over can't slip in between. */
static void begin(CUstream stream) {
  int saved = errno;
  CUcontext context = streams_context(stream);
  for (;;) {
    gate_enter(stream);
    if (add(stream, context))
      break;
    gate_leave();
    wait_allowed();
  }
  errno = saved;
}

static CUresult begun(CUstream stream, CUresult result) {
  gate_leave();
  if (result != CUDA_SUCCESS)
    drop(stream);
  return result;
}

#define BEGIN(stream, call) (begin(stream), begun(stream, call))

CUresult hook_cuStreamBeginCapture(CUstream hStream) {
  return BEGIN(hStream, driver.cuStreamBeginCapture(hStream));
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream hStream) {
  return BEGIN(PER_THREAD(hStream), driver.cuStreamBeginCapture_ptsz(hStream));
}

CUresult hook_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return BEGIN(hStream, driver.cuStreamBeginCapture_v2(hStream, mode));
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return BEGIN(PER_THREAD(hStream), driver.cuStreamBeginCapture_v2_ptsz(hStream, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                          CUstreamCaptureMode mode) {
  return BEGIN(hStream, driver.cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
                                                           numDependencies, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                               const CUgraphNode *dependencies,
                                               const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                               CUstreamCaptureMode mode) {
  return BEGIN(PER_THREAD(hStream),
               driver.cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
                                                       numDependencies, mode));
}

CUresult hook_cuStreamBeginCaptureToCig(CUstream hStream, CUstreamCigCaptureParams *streamCigCaptureParams) {
  return BEGIN(hStream, driver.cuStreamBeginCaptureToCig(hStream, streamCigCaptureParams));
}

CUresult hook_cuStreamBeginCaptureToCig_ptsz(CUstream hStream,
                                             CUstreamCigCaptureParams *streamCigCaptureParams) {
  return BEGIN(PER_THREAD(hStream), driver.cuStreamBeginCaptureToCig_ptsz(hStream, streamCigCaptureParams));
}

CUresult hook_cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                            CUgraphRecaptureCallback callbackFunc, void *userData) {
  return BEGIN(hStream, driver.cuStreamBeginRecaptureToGraph(hStream, mode, hGraph, callbackFunc, userData));
}

CUresult hook_cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                                 CUgraphRecaptureCallback callbackFunc, void *userData) {
  return BEGIN(PER_THREAD(hStream),
               driver.cuStreamBeginRecaptureToGraph_ptsz(hStream, mode, hGraph, callbackFunc, userData));
}

/* An end from the wrong thread changes nothing; any other end, also a failed one, takes the stream out. */
static CUresult ended(CUstream stream, CUresult result) {
  if (result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    drop(stream);
  return result;
}

CUresult hook_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
  return ended(hStream, driver.cuStreamEndCapture(hStream, phGraph));
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
  return ended(PER_THREAD(hStream), driver.cuStreamEndCapture_ptsz(hStream, phGraph));
}

CUresult hook_cuStreamEndCaptureToCig(CUstream hStream) {
  return ended(hStream, driver.cuStreamEndCaptureToCig(hStream));
}

CUresult hook_cuStreamEndCaptureToCig_ptsz(CUstream hStream) {
  return ended(PER_THREAD(hStream), driver.cuStreamEndCaptureToCig_ptsz(hStream));
}
