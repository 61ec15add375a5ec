/* contexts.c - every context of the process, so that a drain waits for all of a device's work (trap: several
 * contexts per process and card, green ones, and fresh threads that have none current). */
#include "gate/contexts.h"

#include <pthread.h>
#include <stddef.h>

#include "client/client.h"
#include "common/log.h"
#include "gate/capture.h"
#include "gate/pace.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "interpose/hooks.h"
#include "memory/memory.h"
#include "meter/samples.h"

#define CONTEXTS_MAX 256

struct entry {
  CUcontext context; /* NULL: free */
  CUdevice device;
  bool primary;
  bool leaving;         /* the driver is asked to destroy it: visitors wait for the outcome */
  unsigned visitors;    /* that use it now: its destruction waits */
  unsigned attachments; /* beyond the first (cuCtxAttach, deprecated): cuCtxDetach destroys at the last */
};

/* Protects the table. Never held over a call of the driver that may wait. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct entry table[CONTEXTS_MAX];

/* Makes a release of a primary context and the question what became of it one step. Taken before `lock`. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry *find(CUcontext context) {
  for (struct entry *e = table; e < table + CONTEXTS_MAX; e++)
    if (e->context == context)
      return e;
  return NULL;
}

/* A context that is leaving under this handle has been destroyed, and its handle given to a new one: what was
 * known of it goes first. */
static void add(CUcontext context, CUdevice device, bool primary) {
  pthread_mutex_lock(&lock);
  struct entry *e;
  while ((e = find(context)) && e->leaving)
    pthread_cond_wait(&changed, &lock);
  if (!e && (e = find(NULL)))
    *e = (struct entry){.context = context, .device = device, .primary = primary};
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
    add(context, device, false);
}

/* ---- visits ---- */

/* The first entry of the device from `start` on, so that it stays until visit_end. */
static struct entry *visit_begin(CUdevice device, struct entry *start) {
  struct entry *e = start;
  pthread_mutex_lock(&lock);
  while (e < table + CONTEXTS_MAX && (!e->context || e->device != device || e->leaving))
    if (e->context && e->device == device)
      pthread_cond_wait(&changed, &lock);
    else
      e++;
  e = e < table + CONTEXTS_MAX ? e : NULL;
  if (e)
    e->visitors++;
  pthread_mutex_unlock(&lock);
  return e;
}

static void visit_end(struct entry *e) {
  pthread_mutex_lock(&lock);
  if (--e->visitors == 0)
    pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

bool contexts_each(CUdevice device, bool (*visit)(CUcontext context, void *argument), void *argument) {
  bool more = true;
  for (struct entry *e = visit_begin(device, table); e; e = more ? visit_begin(device, e + 1) : NULL) {
    if (driver.cuCtxPushCurrent_v2(e->context) == CUDA_SUCCESS) {
      more = visit(e->context, argument);
      driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
    }
    visit_end(e);
  }
  return more;
}

static bool synchronize(CUcontext context, void *argument) {
  (void)context;
  (void)argument;
  driver.cuCtxSynchronize(); /* an error is the program's, and sticky: it will see it itself */
  return true;
}

void contexts_synchronize(CUdevice device) { contexts_each(device, synchronize, NULL); }

struct action {
  void (*run)(void *argument);
  void *argument;
};

static bool run_once(CUcontext context, void *argument) {
  struct action *action = argument;
  (void)context;
  action->run(action->argument);
  return false;
}

bool contexts_any(CUdevice device, void (*run)(void *argument), void *argument) {
  return !contexts_each(device, run_once, &(struct action){run, argument});
}

void contexts_fork_child(void) {
  lock = primary_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  for (struct entry *e = table; e < table + CONTEXTS_MAX; e++)
    *e = (struct entry){0};
}

/* ---- destruction ---- */

/* No visitor is, or gets, inside until leave_end. NULL for a context that we don't know. */
static struct entry *leave_begin(CUcontext context) {
  pthread_mutex_lock(&lock);
  struct entry *e = context ? find(context) : NULL;
  if (e) {
    e->leaving = true;
    while (e->visitors > 0)
      pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
  return e;
}

static void leave_end(struct entry *e, bool gone) {
  if (!e)
    return;
  if (gone) {
    streams_context_gone(e->context);
    capture_context_gone(e->context);
    pace_context_gone(e->context);
    samples_context_gone(e->context);
    memory_context_gone(e->context);
  }
  pthread_mutex_lock(&lock);
  e->leaving = false;
  if (gone)
    e->context = NULL;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static bool is_primary(CUcontext context) {
  pthread_mutex_lock(&lock);
  struct entry *e = context ? find(context) : NULL;
  bool primary = e && e->primary;
  pthread_mutex_unlock(&lock);
  return primary;
}

/* An error may be one of earlier work, and the context destroyed all the same. Then there is nothing in it to
 * wait for, and its handle must not be used again: after a fault, driver 580 crashes on that. With any other
 * error the driver has refused, and the program may go on. */
static bool is_gone(CUresult result) {
  return result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED || driver_is_fatal(result);
}

/* The driver refuses to destroy a primary context this way. */
static CUresult destroy(CUresult (*real)(CUcontext), CUcontext context) {
  struct entry *e = is_primary(context) ? NULL : leave_begin(context);
  if (e)
    memory_context_leaving(context);
  CUresult result = real(context);
  if (e && is_gone(result))
    memory_context_left(context);
  leave_end(e, is_gone(result));
  return result;
}

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

/* The device's primary context if there is one. */
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
  pthread_mutex_lock(&primary_lock);
  CUcontext context = primary_of(device);
  struct entry *e = leave_begin(context);
  if (context && memory_goes)
    memory_context_leaving(context);
  CUresult result = real(device);
  bool gone = primary_of(device) != context; /* else it is retained by others, or the call failed */
  if (context && gone && memory_goes)
    memory_context_left(context);
  if (context && gone && !memory_goes)
    memory_context_destroyed(context);
  leave_end(e, gone);
  pthread_mutex_unlock(&primary_lock);
  return result;
}

/* ---- the hooks ---- */

static CUresult created(CUresult result, CUcontext *context, CUdevice device) {
  if (result == CUDA_SUCCESS)
    add(*context, device, false);
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

CUresult hook_cuCtxAttach(CUcontext *pctx, unsigned int flags) {
  CUresult result = driver.cuCtxAttach(pctx, flags);
  if (result == CUDA_SUCCESS)
    attachments_add(*pctx, 1);
  return result;
}

CUresult hook_cuCtxDetach(CUcontext ctx) {
  return attachments_add(ctx, -1) > 0 ? driver.cuCtxDetach(ctx) : destroy(driver.cuCtxDetach, ctx);
}

CUresult hook_cuCtxDestroy(CUcontext ctx) { return destroy(driver.cuCtxDestroy, ctx); }
CUresult hook_cuCtxDestroy_v2(CUcontext ctx) { return destroy(driver.cuCtxDestroy_v2, ctx); }

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  pthread_mutex_lock(&primary_lock);
  CUresult result = driver.cuDevicePrimaryCtxRetain(pctx, dev);
  if (result == CUDA_SUCCESS)
    add(*pctx, dev, true);
  pthread_mutex_unlock(&primary_lock);
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

CUresult hook_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx) {
  CUresult result = driver.cuCtxFromGreenCtx(pContext, hCtx);
  CUdevice device;
  if (result == CUDA_SUCCESS && driver.cuCtxPushCurrent_v2(*pContext) == CUDA_SUCCESS) {
    if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
      add(*pContext, device, false);
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
    add(context, dev, false);
  return result;
}

/* It may be the last to hold the primary context. */
static CUresult green_leave(CUgreenCtx green, CUcontext context, CUdevice device) {
  pthread_mutex_lock(&primary_lock);
  CUcontext primary = primary_of(device);
  struct entry *e = leave_begin(context), *p = leave_begin(primary);
  memory_green_context_destroyed(context, primary);
  CUresult result = driver.cuGreenCtxDestroy(green);
  bool primary_gone = primary && primary_of(device) != primary;
  if (primary_gone)
    memory_context_destroyed(primary);
  leave_end(p, primary_gone);
  leave_end(e, result == CUDA_SUCCESS);
  pthread_mutex_unlock(&primary_lock);
  return result;
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx hCtx) {
  CUcontext context;
  CUdevice device = -1;
  if (hCtx && driver.cuCtxFromGreenCtx(&context, hCtx) == CUDA_SUCCESS)
    device = contexts_device(context);
  return device >= 0 ? green_leave(hCtx, context, device) : driver.cuGreenCtxDestroy(hCtx);
}
