/* stream.c - streams as queues: submission, order between streams, and the thread that does a stream's work.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "capture.h"
#include "common/clock.h"
#include "objects.h"

enum { WORKER_STACK_BYTES = 512 * 1024 };

static uint64_t next_stream_id;

/* ---- ops ---- */

void op_reference(struct op *op) { op->references++; }

void op_release(struct op *op) {
  if (op == NULL || --op->references > 0)
    return;
  for (size_t i = 0; i < op->after_count; i++)
    op_release(op->after[i]);
  free(op->after);
  free(op);
}

/* No cancellation point: the driver survives threads that are cancelled. */
void op_wait_locked(struct op *op) {
  int cancellation;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
  op_reference(op);
  while (!op->done)
    pthread_cond_wait(&objects_done, &objects_lock);
  pthread_setcancelstate(cancellation, NULL);
  op_release(op);
}

static void op_after(struct op *op, struct op *other) {
  if (other == NULL || other->done)
    return;
  struct op **larger = realloc(op->after, (op->after_count + 1) * sizeof(struct op *));
  if (larger == NULL)
    abort();
  op->after = larger;
  op_reference(other);
  op->after[op->after_count++] = other;
}

static bool stream_blocks(const struct CUstream_st *stream) {
  return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* The legacy stream waits for all blocking streams, and they for it. */
static void op_order(struct op *op, CUstream stream) {
  if (!stream->legacy) {
    if (stream_blocks(stream) && stream->context->legacy_stream)
      op_after(op, stream->context->legacy_stream->last);
    return;
  }
  for (CUstream other = stream->context->streams; other; other = other->next)
    if (other != stream && stream_blocks(other))
      op_after(op, other->last);
}

static void op_finish(struct op *op) {
  if (op->counts)
    process_finish(op->work.gpu);
  op->done = true;
  op->done_ns = clock_now_ns();
  for (size_t i = 0; i < op->after_count; i++)
    op_release(op->after[i]);
  op->after_count = 0;
  pthread_cond_broadcast(&objects_done);
  op_release(op);
}

/* ---- the thread ---- */

static void stream_free(CUstream stream) {
  op_release(stream->last);
  free(stream->frontier);
  pthread_cond_destroy(&stream->wake);
  free(stream);
}

static void stream_run_head(CUstream stream) {
  struct op *op = stream->head;
  for (size_t i = 0; i < op->after_count; i++)
    while (!op->after[i]->done)
      pthread_cond_wait(&objects_done, &objects_lock);
  pthread_mutex_unlock(&objects_lock);
  uint64_t due_ns = work_run(&op->work, stream->due_ns);
  work_release(&op->work);
  bool in_channel = work_in_channel(&op->work);
  if (in_channel)
    rm_enter(channel_for(ENGINE_COMPUTE));
  pthread_mutex_lock(&objects_lock);
  stream->due_ns = due_ns;
  stream->head = op->next;
  if (stream->head == NULL)
    stream->tail_queued = NULL;
  op_finish(op);
  if (in_channel)
    rm_leave(channel_for(ENGINE_COMPUTE));
}

static void *stream_main(void *argument) {
  CUstream stream = argument;
  process_ignore_overlaps(stream->moves);
  channels_use(&stream->context->channels, stream->id);
  pthread_mutex_lock(&objects_lock);
  for (;;) {
    while (stream->head == NULL && !stream->closing)
      pthread_cond_wait(&stream->wake, &objects_lock);
    if (stream->head == NULL)
      break;
    stream_run_head(stream);
  }
  stream_free(stream);
  pthread_mutex_unlock(&objects_lock);
  return NULL;
}

/* The program's signals are not for the driver's threads; faults of their own are. */
static void signals_block(sigset_t *before) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
  sigset_t blocked;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
    sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, before);
}

static void stream_start(CUstream stream) {
  pthread_t worker;
  pthread_attr_t attributes;
  sigset_t before;
  if (stream->running)
    return;
  signals_block(&before);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
  stream->running = pthread_create(&worker, &attributes, stream_main, stream) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- submission ---- */

struct op *stream_submit_locked(CUstream stream, const struct work *work, struct op *after) {
  struct op *op = calloc(1, sizeof(*op));
  if (op == NULL)
    abort();
  op->references = 2; /* the queue's, and stream->last */
  op->work = *work;
  op_order(op, stream);
  op_after(op, after);
  op->counts = work_counts(work) && !stream->moves;
  if (op->counts)
    process_submit(work->gpu);
  if (stream->tail_queued)
    stream->tail_queued->next = op;
  else
    stream->head = op;
  stream->tail_queued = op;
  op_release(stream->last);
  stream->last = op;
  stream_start(stream);
  pthread_cond_signal(&stream->wake);
  return op;
}

CUresult stream_submit(CUstream stream, const struct work *work) {
  pthread_mutex_lock(&objects_lock);
  CUresult result = capture_check_submit_locked(stream);
  if (result == CUDA_SUCCESS && stream->capture)
    result = capture_record_locked(stream, work);
  else if (result == CUDA_SUCCESS)
    stream_submit_locked(stream, work, NULL);
  pthread_mutex_unlock(&objects_lock);
  if (result != CUDA_SUCCESS) {
    struct work refused = *work;
    work_release(&refused);
  }
  return result;
}

CUresult stream_submit_wait(CUstream stream, const struct work *work) {
  pthread_mutex_lock(&objects_lock);
  CUresult result = capture_check_submit_locked(stream);
  if (result == CUDA_SUCCESS)
    result = capture_check_stream_locked(stream);
  if (result == CUDA_SUCCESS)
    op_wait_locked(stream_submit_locked(stream, work, NULL));
  pthread_mutex_unlock(&objects_lock);
  if (result != CUDA_SUCCESS) {
    struct work refused = *work;
    work_release(&refused);
  }
  return result == CUDA_SUCCESS ? process_fault() : result;
}

/* ---- life ---- */

/* gpushare moves memory on streams of its own, which are meant to overlap other processes' work. */
static bool is_mover(void) {
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  return strcmp(name, "gpushare-gpu") == 0;
}

CUresult stream_create_locked(CUcontext context, unsigned flags, int priority, CUstream *stream) {
  CUstream made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = context;
  made->flags = flags;
  made->priority = priority;
  made->id = ++next_stream_id;
  made->moves = is_mover();
  pthread_cond_init(&made->wake, NULL);
  made->next = context->streams;
  context->streams = made;
  *stream = made;
  return CUDA_SUCCESS;
}

/* What is queued is still done. */
void stream_close_locked(CUstream stream) {
  CUstream *link = &stream->context->streams;
  while (*link && *link != stream)
    link = &(*link)->next;
  if (*link)
    *link = stream->next;
  capture_stream_destroyed_locked(stream);
  stream->closing = true;
  if (stream->running)
    pthread_cond_signal(&stream->wake);
  else
    stream_free(stream);
}

/* ---- handles and waiting ---- */

static CUresult per_thread_stream(CUcontext context, CUstream *stream) {
  CUresult result = CUDA_SUCCESS;
  uint64_t number = thread_number();
  pthread_mutex_lock(&objects_lock);
  *stream = context->streams;
  while (*stream && (*stream)->thread != number)
    *stream = (*stream)->next;
  if (*stream == NULL)
    result = stream_create_locked(context, 0, 0, stream);
  if (result == CUDA_SUCCESS)
    (*stream)->thread = number;
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult stream_resolve(CUstream handle, CUstream *stream) {
  CUcontext context;
  if (handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    *stream = handle;
    return process_check();
  }
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS)
    return result;
  if (handle == CU_STREAM_PER_THREAD)
    return per_thread_stream(context, stream);
  *stream = context->legacy_stream;
  return CUDA_SUCCESS;
}

static bool op_busy(const struct op *op) { return op && !op->done; }

bool stream_idle_locked(CUstream stream) {
  if (op_busy(stream->last))
    return false;
  for (CUstream other = stream->context->streams; stream->legacy && other; other = other->next)
    if (stream_blocks(other) && op_busy(other->last))
      return false;
  return true;
}

void stream_wait_locked(CUstream stream) {
  const struct work marker = {.kind = WORK_EMPTY, .gpu = stream->context->gpu};
  if (stream_idle_locked(stream))
    return;
  /* A marker on the legacy stream comes after all blocking streams' work. */
  op_wait_locked(stream->legacy ? stream_submit_locked(stream, &marker, NULL) : stream->last);
}
