/* contexts.c - every context of the process, so that a drain waits for all of a device's work (trap: several
 * contexts per process and card, green ones, and fresh threads that have none current). */
#include "gate/contexts.h"

#include <pthread.h>
#include <stddef.h>

#include "client/client.h"
#include "common/log.h"
#include "interpose/driver.h"
#include "interpose/hooks.h"
#include "memory/memory.h"

#define CONTEXTS_MAX 256

struct entry {
  CUcontext context; /* NULL: free */
  CUdevice device;
  unsigned users;       /* drains that use it now: its destruction waits */
  unsigned attachments; /* beyond the first (cuCtxAttach, deprecated): cuCtxDetach destroys at the last */
};

/* Protects the table. Never held over a call of the driver that may wait. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER;
static struct entry table[CONTEXTS_MAX];

static struct entry *find(CUcontext context) {
  for (struct entry *e = table; e < table + CONTEXTS_MAX; e++)
    if (e->context == context)
      return e;
  return NULL;
}

static void contexts_add(CUcontext context, CUdevice device) {
  pthread_mutex_lock(&lock);
  struct entry *e = find(context);
  if (!e)
    e = find(NULL);
  if (e) {
    e->attachments = e->context == context ? e->attachments : 0;
    e->context = context;
    e->device = device;
  }
  pthread_mutex_unlock(&lock);
  if (!e)
    log_error("more than %d contexts: a hand-over does not wait for the work of this one", CONTEXTS_MAX);
  client_attach(device);
}

CUdevice contexts_device(CUcontext context) {
  pthread_mutex_lock(&lock);
  struct entry *e = context ? find(context) : NULL;
  CUdevice device = e ? e->device : -1;
  pthread_mutex_unlock(&lock);
  return device;
}

void contexts_learn_current(void) {
  CUcontext context;
  CUdevice device;
  if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context || contexts_device(context) >= 0)
    return;
  if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
    contexts_add(context, device);
}

/* The context is about to go: no drain may touch it from here on. */
static void contexts_remove(CUcontext context) {
  pthread_mutex_lock(&lock);
  struct entry *e = context ? find(context) : NULL;
  while (e && e->users > 0)
    pthread_cond_wait(&unused, &lock);
  if (e)
    e->context = NULL;
  pthread_mutex_unlock(&lock);
}

/* Take the first entry of the device from `start` on into use. */
static struct entry *acquire(CUdevice device, struct entry *start) {
  pthread_mutex_lock(&lock);
  struct entry *e = start;
  while (e < table + CONTEXTS_MAX && !(e->context && e->device == device))
    e++;
  if (e < table + CONTEXTS_MAX)
    e->users++;
  else
    e = NULL;
  pthread_mutex_unlock(&lock);
  return e;
}

static void release(struct entry *e) {
  pthread_mutex_lock(&lock);
  if (--e->users == 0)
    pthread_cond_broadcast(&unused);
  pthread_mutex_unlock(&lock);
}

void contexts_synchronize(CUdevice device) {
  for (struct entry *e = acquire(device, table); e; e = acquire(device, e + 1)) {
    if (driver.cuCtxPushCurrent_v2(e->context) == CUDA_SUCCESS) {
      driver.cuCtxSynchronize(); /* an error is the program's, and sticky: it will see it itself */
      driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
    }
    release(e);
  }
}

/* The entry that contexts_use has made current in this thread. */
static __thread struct entry *used;

bool contexts_use(CUdevice device) {
  struct entry *e = acquire(device, table);
  if (!e)
    return false;
  if (driver.cuCtxPushCurrent_v2(e->context) != CUDA_SUCCESS) {
    release(e);
    return false;
  }
  used = e;
  return true;
}

void contexts_leave(CUdevice device) {
  (void)device;
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  release(used);
  used = NULL;
}

void contexts_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&unused, NULL);
  for (struct entry *e = table; e < table + CONTEXTS_MAX; e++)
    *e = (struct entry){0};
}

/* ---- the hooks ---- */

static CUresult created(CUresult result, CUcontext *context, CUdevice device) {
  if (result == CUDA_SUCCESS && context)
    contexts_add(*context, device);
  return result;
}

CUresult hook_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  return created(driver.cuCtxCreate(pctx, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  return created(driver.cuCtxCreate_v2(pctx, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                             unsigned int flags, CUdevice dev) {
  return created(driver.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                             CUdevice dev) {
  return created(driver.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev), pctx, dev);
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  return created(driver.cuDevicePrimaryCtxRetain(pctx, dev), pctx, dev);
}

CUresult hook_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx) {
  CUresult result = driver.cuCtxFromGreenCtx(pContext, hCtx);
  CUdevice device;
  if (result == CUDA_SUCCESS && driver.cuCtxPushCurrent_v2(*pContext) == CUDA_SUCCESS) {
    if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
      contexts_add(*pContext, device);
    driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  }
  return result;
}

/* The context view of a green context is one object for its whole life, so asking for it here costs nothing.
 */
CUresult hook_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  CUresult result = driver.cuGreenCtxCreate(phCtx, desc, dev, flags);
  CUcontext context;
  if (result == CUDA_SUCCESS && driver.cuCtxFromGreenCtx(&context, *phCtx) == CUDA_SUCCESS)
    contexts_add(context, dev);
  return result;
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx hCtx) {
  CUcontext context;
  if (hCtx && driver.cuCtxFromGreenCtx(&context, hCtx) == CUDA_SUCCESS)
    contexts_remove(context);
  return driver.cuGreenCtxDestroy(hCtx);
}

static CUresult destroy(CUresult (*real)(CUcontext), CUcontext context) {
  CUdevice device = contexts_device(context);
  contexts_remove(context);
  if (device >= 0)
    memory_context_destroyed(context);
  CUresult result = real(context);
  if (result != CUDA_SUCCESS && device >= 0)
    contexts_add(context, device); /* it lives on */
  return result;
}

CUresult hook_cuCtxDestroy(CUcontext ctx) { return destroy(driver.cuCtxDestroy, ctx); }
CUresult hook_cuCtxDestroy_v2(CUcontext ctx) { return destroy(driver.cuCtxDestroy_v2, ctx); }

/* Add to the attachments of a context; what they were before. */
static unsigned attachments_add(CUcontext context, int change) {
  pthread_mutex_lock(&lock);
  struct entry *e = context ? find(context) : NULL;
  unsigned before = e ? e->attachments : 0;
  if (e && (change > 0 || before > 0))
    e->attachments += (unsigned)change;
  pthread_mutex_unlock(&lock);
  return before;
}

CUresult hook_cuCtxAttach(CUcontext *pctx, unsigned int flags) {
  CUresult result = driver.cuCtxAttach(pctx, flags);
  if (result == CUDA_SUCCESS)
    attachments_add(*pctx, 1);
  return result;
}

CUresult hook_cuCtxDetach(CUcontext ctx) {
  return attachments_add(ctx, -1) > 0 ? driver.cuCtxDetach(ctx) : destroy(driver.cuCtxDetach, ctx);
}

static CUcontext primary_of(CUdevice device) {
  CUcontext context = NULL;
  unsigned int flags;
  int active = 0;
  if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active)
    return NULL;
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return NULL;
  driver.cuDevicePrimaryCtxRelease(device);
  return context;
}

static CUresult primary_leave(CUresult (*real)(CUdevice), CUdevice device, bool memory_goes) {
  CUcontext context = primary_of(device);
  contexts_remove(context);
  if (context && memory_goes)
    memory_context_destroyed(context);
  CUresult result = real(device);
  bool lives = context && primary_of(device) == context; /* retained by others, or the call failed */
  if (lives)
    contexts_add(context, device);
  if (context && !lives && !memory_goes)
    memory_context_destroyed(context);
  return result;
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev) {
  return primary_leave(driver.cuDevicePrimaryCtxRelease, dev, false);
}
CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return primary_leave(driver.cuDevicePrimaryCtxRelease_v2, dev, false);
}
CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev) {
  return primary_leave(driver.cuDevicePrimaryCtxReset, dev, true);
}
CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return primary_leave(driver.cuDevicePrimaryCtxReset_v2, dev, true);
}
