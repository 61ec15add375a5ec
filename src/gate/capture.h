/*
 * capture.h - stream captures of this process. A drain waits for open captures to end (waiting for a stream,
 * or the whole context, would invalidate them), and no new one begins meanwhile. A stop does not.
 *
 * Threading: any thread.
 */
#ifndef GS_CAPTURE_H
#define GS_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* Captures open now. */
unsigned capture_count(void);

/* Until capture_allow no capture begins (the calls wait). */
void capture_forbid(void);
void capture_allow(void);

/* Within capture_forbid, around a wait for the GPU that may take long: a capture begins soon after all, as
 * the work may be waiting for its thread. Measured on driver 580: what waits by then does not invalidate it.
 */
void capture_wait_begin(void);
void capture_wait_end(void);

/* Wait until no capture is open. False after timeout_ns. */
bool capture_wait_none(uint64_t timeout_ns);

/* The stream is about to be destroyed: whether it was capturing; and that it was not destroyed after all. */
bool capture_stream_leaves(CUstream stream);
void capture_stream_stays(CUstream stream);

/* The context is gone, and its captures with it. */
void capture_context_gone(CUcontext context);

void capture_fork_child(void);

#endif
