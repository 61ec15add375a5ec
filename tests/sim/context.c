/* context.c - contexts: primary and created ones, each thread's stack of them, and waiting for all their
 * work. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "objects.h"

pthread_mutex_t objects_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t objects_done = PTHREAD_COND_INITIALIZER;

static CUcontext contexts; /* every one that ever was; never freed, so that stale handles can be told */
static uint64_t next_context_id;

static _Thread_local struct {
  CUcontext stack[CONTEXT_STACK];
  int depth;
  uint64_t number;
} thread;

uint64_t thread_number(void) {
  static _Atomic uint64_t last;
  if (thread.number == 0)
    thread.number = atomic_fetch_add(&last, 1) + 1;
  return thread.number;
}

CUcontext context_first(void) { return contexts; }

/* ---- current ---- */

CUcontext context_peek(void) { return thread.depth ? thread.stack[thread.depth - 1] : NULL; }

CUresult context_current(CUcontext *context) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  *context = context_peek();
  if (*context == NULL)
    return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&objects_lock);
  bool alive = (*context)->alive;
  pthread_mutex_unlock(&objects_lock);
  return alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Driver 580 crashes on the use of a destroyed context (not the primary one) once there has been a fault;
 * without one it tells. */
static CUresult context_push(CUcontext context) {
  if (context == NULL)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (process_had_fault() && !context->alive && !context->primary)
    process_illegal_address((uintptr_t)context, "a destroyed context");
  if (thread.depth == CONTEXT_STACK)
    return CUDA_ERROR_OUT_OF_MEMORY;
  thread.stack[thread.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  CUresult result = process_check();
  return result == CUDA_SUCCESS ? context_push(ctx) : result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (thread.depth == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  thread.depth--;
  if (pctx)
    *pctx = thread.stack[thread.depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }
CUresult cuCtxPopCurrent(CUcontext *pctx) { return cuCtxPopCurrent_v2(pctx); }

CUresult cuCtxSetCurrent(CUcontext ctx) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (thread.depth > 0)
    thread.depth--;
  return ctx ? context_push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (pctx == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  *pctx = context_peek();
  if (*pctx)
    process_count((*pctx)->gpu, GS_SIM_context_queries, 1);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS)
    *device = (CUdevice)context->device;
  return result;
}

/* ---- life and death ---- */

static bool has_room_locked(void) {
  uint64_t alive = 0;
  for (CUcontext c = contexts; c; c = c->next)
    alive += c->alive;
  return !sim.card.contexts_most || alive < sim.card.contexts_most;
}

static CUresult context_start_locked(CUcontext context, unsigned flags) {
  if (!has_room_locked())
    return CUDA_ERROR_OUT_OF_MEMORY;
  context->alive = true;
  context->flags = flags;
  context->id = ++next_context_id;
  CUresult result = stream_create_locked(context, 0, 0, &context->legacy_stream);
  if (result == CUDA_SUCCESS)
    context->legacy_stream->legacy = true;
  channels_make(&context->channels, context->gpu);
  return result;
}

static void context_list_locked(CUcontext context) {
  for (CUcontext c = contexts; c; c = c->next)
    if (c == context)
      return;
  context->next = contexts;
  contexts = context;
}

/* Waits for all its work, then frees its streams and memory. What its end returns. */
static CUresult context_stop(CUcontext context) {
  context_drain(context);
  CUresult told = sim.card.fault_told ? process_fault() : CUDA_SUCCESS;
  pthread_mutex_lock(&objects_lock);
  context->alive = false;
  context->references = 0;
  while (context->streams)
    stream_close_locked(context->streams);
  context->legacy_stream = NULL;
  channels_free(&context->channels);
  pthread_mutex_unlock(&objects_lock);
  process_end_fault();
  memory_free_context(context);
  return told;
}

CUresult context_make(CUcontext *context, unsigned flags, CUdevice device, CUcontext parent) {
  CUresult result = device_check(device);
  if (result != CUDA_SUCCESS || context == NULL)
    return context ? result : CUDA_ERROR_INVALID_VALUE;
  CUcontext made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->device = (unsigned)device;
  made->gpu = devices[device].gpu;
  made->references = 1;
  made->parent = parent;
  pthread_mutex_lock(&objects_lock);
  result = context_start_locked(made, flags);
  context_list_locked(made);
  pthread_mutex_unlock(&objects_lock);
  *context = made;
  return result;
}

static CUresult context_create(CUcontext *context, unsigned flags, CUdevice device) {
  CUresult result = context_make(context, flags, device, NULL);
  return result == CUDA_SUCCESS ? context_push(*context) : result;
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  return context_create(pctx, flags, dev);
}
CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  return context_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) {
  (void)paramsArray;
  return numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : context_create(pctx, flags, dev);
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  (void)ctxCreateParams;
  return context_create(pctx, flags, dev);
}
#endif

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (ctx == NULL || ctx->primary)
    return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&objects_lock);
  bool alive = ctx->alive;
  pthread_mutex_unlock(&objects_lock);
  if (!alive)
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  result = context_stop(ctx);
  if (context_peek() == ctx)
    thread.depth--;
  return result;
}

CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
  CUcontext context;
  CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : context_current(&context);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  context->references++;
  pthread_mutex_unlock(&objects_lock);
  *pctx = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  bool last = ctx->references <= 1;
  ctx->references -= ctx->references > 0;
  pthread_mutex_unlock(&objects_lock);
  return last && !ctx->primary ? cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result != CUDA_SUCCESS)
    return result;
  CUcontext context = &devices[dev].primary;
  pthread_mutex_lock(&objects_lock);
  context_list_locked(context);
  if (!context->alive && process_fault() != CUDA_SUCCESS) {
    pthread_mutex_unlock(&objects_lock);
    return process_fault();
  }
  if (!context->alive)
    result = context_start_locked(context, context->flags);
  context->references++;
  pthread_mutex_unlock(&objects_lock);
  *pctx = context;
  return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  CUresult result = device_check(dev);
  if (result != CUDA_SUCCESS)
    return result;
  CUcontext context = &devices[dev].primary;
  pthread_mutex_lock(&objects_lock);
  unsigned before = context->references;
  context->references -= before > 0;
  pthread_mutex_unlock(&objects_lock);
  if (before == 1)
    return context_stop(context);
  return before ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  CUresult result = device_check(dev);
  return result == CUDA_SUCCESS ? context_stop(&devices[dev].primary) : result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return cuDevicePrimaryCtxRelease_v2(dev); }
CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  CUresult result = device_check(dev);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  devices[dev].primary.flags = flags;
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
  CUresult result = device_check(dev);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  *flags = devices[dev].primary.flags;
  *active = devices[dev].primary.alive;
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

/* ---- waiting ---- */

struct op_set {
  struct op **ops;
  size_t count;
};

/* The latest op of every stream, referenced: what comes later need not be waited for. */
static void op_set_add_locked(struct op_set *set, CUcontext context) {
  for (CUstream stream = context->streams; stream; stream = stream->next) {
    if (stream->last == NULL || stream->last->done)
      continue;
    struct op **larger = realloc(set->ops, (set->count + 1) * sizeof(struct op *));
    if (larger == NULL)
      abort();
    set->ops = larger;
    op_reference(stream->last);
    set->ops[set->count++] = stream->last;
  }
}

static void op_set_wait_locked(struct op_set *set) {
  for (size_t i = 0; i < set->count; i++) {
    op_wait_locked(set->ops[i]);
    op_release(set->ops[i]);
  }
  free(set->ops);
}

void context_drain(CUcontext context) {
  struct op_set set = {0};
  pthread_mutex_lock(&objects_lock);
  op_set_add_locked(&set, context);
  for (CUcontext green = contexts; green; green = green->next)
    if (green->parent == context)
      op_set_add_locked(&set, green);
  op_set_wait_locked(&set);
  pthread_mutex_unlock(&objects_lock);
}

void gpu_drain(unsigned gpu) {
  struct op_set set = {0};
  pthread_mutex_lock(&objects_lock);
  for (CUcontext context = contexts; context; context = context->next)
    if (context->gpu == gpu)
      op_set_add_locked(&set, context);
  op_set_wait_locked(&set);
  pthread_mutex_unlock(&objects_lock);
}

static CUresult context_synchronize(CUcontext context) {
  pthread_mutex_lock(&objects_lock);
  CUresult result = capture_check_context_locked(context);
  pthread_mutex_unlock(&objects_lock);
  if (result != CUDA_SUCCESS)
    return result;
  context_drain(context);
  return process_fault();
}

CUresult cuCtxSynchronize(void) {
  CUcontext context;
  CUresult result = context_current(&context);
  return result == CUDA_SUCCESS ? context_synchronize(context) : result;
}

#if CUDA_VERSION >= 13000
CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  CUresult result = process_check();
  return result == CUDA_SUCCESS ? context_synchronize(ctx) : result;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    *device = (CUdevice)ctx->device;
  return result;
}
#endif

/* ---- settings that change nothing here ---- */

CUresult cuCtxGetFlags(unsigned int *flags) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS)
    *flags = context->flags;
  return result;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
  CUcontext context = ctx;
  CUresult result = ctx ? process_check() : context_current(&context);
  if (result == CUDA_SUCCESS)
    *ctxId = context->id;
  return result;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
  (void)ctx;
  *version = 3020;
  return process_check();
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS && leastPriority)
    *leastPriority = 0;
  if (result == CUDA_SUCCESS && greatestPriority)
    *greatestPriority = -5;
  return result;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS)
    *pvalue = limit == CU_LIMIT_STACK_SIZE ? 1024 : 8 << 20;
  return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  CUcontext context;
  (void)limit, (void)value;
  return context_current(&context);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS)
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
  return result;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  CUcontext context;
  (void)config;
  return context_current(&context);
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  CUcontext context;
  (void)peerContext, (void)Flags;
  return context_current(&context);
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  CUcontext context;
  (void)peerContext;
  return context_current(&context);
}
