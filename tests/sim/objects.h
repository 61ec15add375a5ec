/*
 * objects.h - devices, contexts, streams and events, and the one lock that protects them, their queues,
 * captures and graphs.
 *
 * objects_lock is held for short moments only: never while work runs, and never while a function of the
 * program is called. Waiting is done on objects_done, which is broadcast whenever a piece of work ends.
 */
#ifndef SIM_OBJECTS_H
#define SIM_OBJECTS_H

#include <pthread.h>

#include "channels.h"
#include "pool.h"
#include "process.h"
#include "work.h"

enum { GPU_UUID_TEXT_SIZE = 41, CONTEXT_STACK = 32 };

struct op { /* a piece of work in a stream's queue */
  unsigned references;
  bool done;
  bool counts; /* keeps the process "in flight" */
  uint64_t done_ns;
  struct op *next;
  struct work work;
  struct op **after; /* must be done first, besides what precedes it in the stream */
  size_t after_count;
};

struct CUstream_st {
  CUcontext context;
  unsigned flags;
  int priority;
  bool legacy;        /* the default stream that all blocking streams synchronise with */
  bool moves;         /* made by the thread with which gpushare moves memory while others run */
  bool closing, gone; /* destroyed by the program; its thread has ended */
  uint64_t thread;    /* whose per-thread default stream it is, or 0 */
  uint64_t id;
  uint64_t due_ns;
  bool running; /* its thread exists */
  pthread_cond_t wake;
  struct op *head, *tail_queued; /* waiting and running */
  struct op *last;               /* the latest ever submitted, holds a reference */
  struct capture *capture;
  CUgraphNode *frontier; /* in a capture: what the next node depends on */
  size_t frontier_count;
  CUstream next; /* of the context's */
};

struct CUevent_st {
  CUcontext context;
  unsigned flags;
  struct op *recorded; /* holds a reference */
  uint64_t capture_id; /* recorded into that capture */
  CUgraphNode *frontier;
  size_t frontier_count;
};

struct CUctx_st {
  unsigned device;
  unsigned gpu;
  bool primary, alive;
  unsigned flags, references;
  uint64_t id;
  CUcontext parent; /* of a green context: the primary one, whose synchronisation includes it */
  CUstream legacy_stream;
  struct channel_set channels;
  CUstream streams; /* all of them, the legacy one too */
  CUcontext next;
};

struct device {
  unsigned gpu;
  struct CUctx_st primary;
  struct CUmemPoolHandle_st plain_pool, managed_pool;
  CUmemoryPool current_pool, current_managed_pool;
};

extern pthread_mutex_t objects_lock;
extern pthread_cond_t objects_done;
extern struct device devices[STATE_GPUS];

void devices_init(void);
CUresult device_check(CUdevice device);
void device_uuid_bytes(unsigned gpu, unsigned char bytes[16]);
void device_uuid_text(unsigned gpu, char text[GPU_UUID_TEXT_SIZE]);

/* A new context that is not made current. */
CUresult context_make(CUcontext *context, unsigned flags, CUdevice device, CUcontext parent);
/* Initialised, and a living context current to this thread. */
CUresult context_current(CUcontext *context);
/* The same without the need: NULL if there is none. */
CUcontext context_peek(void);
/* Wait for all work of a context, or of all contexts on a card. */
void context_drain(CUcontext context);
void gpu_drain(unsigned gpu);
/* Calls the visitor for each context that exists. */
CUcontext context_first(void);
uint64_t thread_number(void);

/* ---- streams (stream.c); functions with _locked want objects_lock held ---- */

/* The stream that a handle means in the current context. */
CUresult stream_resolve(CUstream handle, CUstream *stream);
CUresult stream_create_locked(CUcontext context, unsigned flags, int priority, CUstream *stream);
void stream_close_locked(CUstream stream);

/* Hand work to a stream, or record it if the stream captures. The work's resources are taken over. */
CUresult stream_submit(CUstream stream, const struct work *work);
/* The same and wait for its end. */
CUresult stream_submit_wait(CUstream stream, const struct work *work);
struct op *stream_submit_locked(CUstream stream, const struct work *work, struct op *after);

void op_reference(struct op *op);
void op_release(struct op *op);
void op_wait_locked(struct op *op);
bool stream_idle_locked(CUstream stream);
void stream_wait_locked(CUstream stream);

/* In the functions with a suffix _ptsz or _ptds, NULL is the thread's own stream. */
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#endif
