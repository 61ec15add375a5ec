/*
 * streams.h - the process' streams, to tell whether a GPU has unfinished work without waiting for it.
 *
 * Threading: any thread.
 */
#ifndef GS_STREAMS_H
#define GS_STREAMS_H

#include <stdbool.h>

#include "driver/driver.h"
#include "gate/capture.h"

/* The context of a stream; of one that is no handle, the calling thread's. NULL: there is none. */
static inline CUcontext streams_context(CUstream stream) {
  CUcontext context = NULL;
  bool is_handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  if (!is_handle || driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
    driver.cuCtxGetCurrent(&context);
  return context;
}

enum streams_state { STREAMS_FINISHED, STREAMS_BUSY, STREAMS_UNKNOWN };

/* Whether all work submitted to the device has finished, by asking only. Unknown: nothing that can be asked
 * about is unfinished, but there are streams that can't. A context that is being destroyed is busy. Call it
 * while no capture is open and none can begin.
 */
enum streams_state streams_ask(CUdevice device);

/* The same at any time: while a capture is open the device is busy, and none begins meanwhile. */
static inline enum streams_state streams_look(CUdevice device) {
  capture_forbid();
  enum streams_state state = capture_count() ? STREAMS_BUSY : streams_ask(device);
  capture_allow();
  return state;
}

/* Whether all has finished, where nothing has been submitted for quiet_ns: streams that can't be asked have
 * then, after a while. */
#define STREAMS_UNKNOWN_NS UINT64_C(20000000)
static inline bool streams_have_finished(CUdevice device, uint64_t quiet_ns) {
  enum streams_state state = streams_look(device);
  return state == STREAMS_FINISHED || (state == STREAMS_UNKNOWN && quiet_ns >= STREAMS_UNKNOWN_NS);
}

/* Moves whenever a stream is gone: until then its handle means the same stream. */
uint64_t streams_generation(void);

/* A call on this stream has been seen. */
void streams_note(CUstream stream);

/* The context is gone, its streams with it. */
void streams_context_gone(CUcontext context);

void streams_fork_child(void);

#endif
