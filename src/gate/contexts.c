/* contexts.c - every context of the process, so that a drain waits for all of a device's work (trap: several
 * contexts per process and card, green ones, and fresh threads that have none current). */
#include "gate/contexts.h"

#include <pthread.h>
#include <stddef.h>

#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/gate_port.h"
#include "gate/streams.h"
#include "preempt/preempt.h"

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
static struct lock lock = LOCK(LOCK_CONTEXTS);
static struct condition changed;
static struct entry table[CONTEXTS_MAX];

/* Of the primary context of a device. The lock makes a release and the question what became of the context
 * one step; it is taken before `lock`, and never held while visitors are waited for. */
static struct primary {
  struct lock lock;
  CUcontext context; /* NULL: none, or not known */
  unsigned retains;  /* the program's own; green contexts hold it, too */
} primaries[GS_GPUS_PER_CLIENT] = {[0 ... GS_GPUS_PER_CLIENT - 1] = {.lock = LOCK(LOCK_PRIMARY)}};

static struct entry *find(CUcontext context) {
  for (struct entry *e = table; e < table + CONTEXTS_MAX; e++)
    if (e->context == context)
      return e;
  return NULL;
}

/* Of one that has gone, visitors may still be on their way out. */
static struct entry *find_free(void) {
  for (struct entry *e = table; e < table + CONTEXTS_MAX; e++)
    if (!e->context && e->visitors == 0)
      return e;
  return NULL;
}

/* A context that is leaving under this handle has been destroyed, and its handle given to a new one: what was
 * known of it goes first. */
static void add(CUcontext context, CUdevice device, bool primary) {
  lock_take(&lock);
  struct entry *e;
  while ((e = find(context)) && e->leaving)
    condition_wait(&changed, &lock, UINT64_MAX);
  if (!e && (e = find_free()))
    *e = (struct entry){.context = context, .device = device, .primary = primary};
  lock_release(&lock);
  if (!e)
    log_error("more than %d contexts: a hand-over does not wait for the work of this one", CONTEXTS_MAX);
  gate_port.attach(device);
  gate_port.context_added(device);
}

CUdevice contexts_device(CUcontext context) {
  lock_take(&lock);
  struct entry *e = context ? find(context) : NULL;
  CUdevice device = e ? e->device : -1;
  lock_release(&lock);
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

struct tour {
  CUdevice device;
  bool wait;    /* for the outcome where one is leaving */
  bool skipped; /* some are leaving */
};

/* The first entry of the device from `start` on, so that it stays until visit_end. */
static struct entry *visit_begin(struct tour *tour, struct entry *start, CUcontext *context) {
  struct entry *e = start;
  lock_take(&lock);
  while (e < table + CONTEXTS_MAX && (!e->context || e->device != tour->device || e->leaving)) {
    bool leaving = e->context && e->device == tour->device;
    tour->skipped |= leaving && !tour->wait;
    if (leaving && tour->wait)
      condition_wait(&changed, &lock, UINT64_MAX);
    else
      e++;
  }
  e = e < table + CONTEXTS_MAX ? e : NULL;
  if (e) {
    e->visitors++;
    *context = e->context;
  }
  lock_release(&lock);
  return e;
}

static void visit_end(struct entry *e) {
  lock_take(&lock);
  if (--e->visitors == 0)
    condition_wake_all(&changed);
  lock_release(&lock);
}

static bool visit_all(struct tour tour, bool (*visit)(CUcontext context, void *argument), void *argument) {
  bool more = true;
  CUcontext context;
  struct entry *e = visit_begin(&tour, table, &context);
  while (e) {
    if (driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
      more = visit(context, argument);
      driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
    }
    visit_end(e);
    e = more ? visit_begin(&tour, e + 1, &context) : NULL;
  }
  return more && !tour.skipped;
}

bool contexts_each(CUdevice device, bool (*visit)(CUcontext context, void *argument), void *argument) {
  return visit_all((struct tour){.device = device}, visit, argument);
}

static bool synchronize(CUcontext context, void *argument) {
  (void)context;
  (void)argument;
  driver.cuCtxSynchronize(); /* an error is the program's, and sticky: it will see it itself */
  return true;
}

void contexts_synchronize(CUdevice device) {
  visit_all((struct tour){.device = device, .wait = true}, synchronize, NULL);
}

/* ---- a context of our own ---- */

/* Where the process' work can be stopped: memory moves in it while the program's contexts stand still.
 * Nothing destroys it: that would wait for them. */
static struct own {
  struct lock lock;
  CUcontext _Atomic context; /* NULL: not made */
  uint64_t again_ns;         /* it was refused, and is tried again then; 0: it was not */
} own_contexts[GS_GPUS_PER_CLIENT] = {[0 ... GS_GPUS_PER_CLIENT - 1] = {.lock = LOCK(LOCK_OWN_CONTEXT)}};

#define OWN_AGAIN_NS (10 * NS_PER_S) /* a refusal takes its time, too */

/* Without what kernels might need it takes 260 MiB of the card instead of 520 (H100, driver 580). */
static CUcontext make_own(CUdevice device) {
  static const CUlimit limits[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE};
  CUcontext context = NULL;
  preempt_own(true);
  CUresult result = driver.cuCtxCreate_v2(&context, 0, device);
  for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof limits / sizeof *limits; i++)
    driver.cuCtxSetLimit(limits[i], 0);
  if (result == CUDA_SUCCESS)
    driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  preempt_own(false);
  return result == CUDA_SUCCESS ? context : NULL;
}

bool contexts_make_own(CUdevice device) {
  struct own *own = &own_contexts[device];
  if (preempt_verdict(device) != PREEMPT_YES)
    return false;
  lock_take(&own->lock);
  CUcontext context = atomic_load(&own->context);
  if (!context && clock_now_ns() >= own->again_ns) {
    if ((context = make_own(device)))
      atomic_store(&own->context, context);
    else if (!own->again_ns)
      log_warn("GPU %d: no room for a context to move memory in: work is waited for, not stopped", device);
    own->again_ns = context ? 0 : clock_now_ns() + OWN_AGAIN_NS;
  }
  lock_release(&own->lock);
  return context;
}

bool contexts_has_own(CUdevice device) { return atomic_load(&own_contexts[device].context); }

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
  CUcontext own = atomic_load(&own_contexts[device].context);
  if (own && driver.cuCtxPushCurrent_v2(own) == CUDA_SUCCESS) {
    run(argument);
    driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
    return true;
  }
  if (preempt_channels(device).stopped)
    return true; /* what would be called in the program's contexts might wait for these to go on */
  return !visit_all((struct tour){.device = device, .wait = true}, run_once, &(struct action){run, argument});
}

static bool is_own(CUcontext context) {
  bool own = false;
  for (CUdevice device = 0; device < GS_GPUS_PER_CLIENT; device++)
    own |= atomic_load(&own_contexts[device].context) == context;
  return own;
}

void *contexts_hold(CUcontext context) {
  static struct entry forever; /* nobody destroys ours */
  if (!context)
    return NULL;
  lock_take(&lock);
  struct entry *e = is_own(context) ? &forever : find(context);
  if (e && e->leaving)
    e = NULL;
  if (e)
    e->visitors++;
  lock_release(&lock);
  return e;
}

void contexts_let_go(void *held) { visit_end(held); }

void contexts_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_CONTEXTS);
  changed = (struct condition){0};
  for (struct primary *p = primaries; p < primaries + GS_GPUS_PER_CLIENT; p++)
    *p = (struct primary){.lock = LOCK(LOCK_PRIMARY)};
  for (struct own *o = own_contexts; o < own_contexts + GS_GPUS_PER_CLIENT; o++)
    *o = (struct own){.lock = LOCK(LOCK_OWN_CONTEXT)};
  for (struct entry *e = table; e < table + CONTEXTS_MAX; e++)
    *e = (struct entry){0};
}

/* ---- destruction ---- */

/* No visitor is, or gets, inside until leave_end. NULL for a context that we don't know. Nothing is marked
 * while visitors are waited for, as a signal handler may leave the wait by a jump. */
static struct entry *leave_begin(CUcontext context) {
  struct entry *e;
  lock_take(&lock);
  while ((e = context ? find(context) : NULL) && (e->visitors > 0 || e->leaving))
    condition_wait(&changed, &lock, UINT64_MAX);
  if (e)
    e->leaving = true;
  lock_release(&lock);
  return e;
}

/* Of one that has been destroyed already: too late to wait for visitors. */
static struct entry *leave_at_once(CUcontext context) {
  lock_take(&lock);
  struct entry *e = find(context);
  if (e)
    e->leaving = true;
  lock_release(&lock);
  return e;
}

/* The same as leave_begin, at once, or false. */
static bool leave_try_begin(CUcontext context, struct entry **entry) {
  lock_take(&lock);
  struct entry *e = context ? find(context) : NULL;
  bool free = !e || (e->visitors == 0 && !e->leaving);
  if (e && free)
    e->leaving = true;
  lock_release(&lock);
  *entry = free ? e : NULL;
  return free;
}

static void await_visitors(CUcontext context) {
  struct entry *e;
  lock_take(&lock);
  while ((e = find(context)) && (e->visitors > 0 || e->leaving))
    condition_wait(&changed, &lock, UINT64_MAX);
  lock_release(&lock);
}

static void leave_end(struct entry *e, bool gone) {
  if (!e)
    return;
  if (gone) {
    streams_context_gone(e->context);
    capture_context_gone(e->context);
    gate_port.context_gone(e->context);
  }
  lock_take(&lock);
  e->leaving = false;
  if (gone)
    e->context = NULL;
  condition_wake_all(&changed);
  lock_release(&lock);
}

static bool is_primary(CUcontext context) {
  lock_take(&lock);
  struct entry *e = context ? find(context) : NULL;
  bool primary = e && e->primary;
  lock_release(&lock);
  return primary;
}

/* An error may be one of earlier work, and the context destroyed all the same. Then there is nothing in it to
 * wait for, and its handle must not be used again: after a fault, driver 580 crashes on that. With any other
 * error the driver has refused, and the program may go on. */
static bool is_gone(CUresult result) {
  return result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED || driver_is_fatal(result);
}

/* The driver refuses to destroy a primary context this way. */
static CUresult destroy_now(CUresult (*real)(CUcontext), CUcontext context) {
  struct entry *e = is_primary(context) ? NULL : leave_begin(context);
  if (e)
    gate_port.context_leaving(context);
  CUresult result = real(context);
  if (e && is_gone(result))
    gate_port.context_left(context);
  leave_end(e, is_gone(result));
  return result;
}

static CUresult destroy(CUresult (*real)(CUcontext), CUcontext context) {
  CUdevice device = contexts_device(context);
  gate_await_work(device);
  gate_forbid_stop(device); /* if it met the destruction, calls of ours would wait, too */
  CUresult result = destroy_now(real, context);
  gate_allow_stop();
  return result;
}

/* Add to the attachments of a context; what they were before. */
static unsigned attachments_add(CUcontext context, int change) {
  lock_take(&lock);
  struct entry *e = context ? find(context) : NULL;
  unsigned before = e ? e->attachments : 0;
  if (e && (change > 0 || before > 0))
    e->attachments += (unsigned)change;
  lock_release(&lock);
  return before;
}

/* `unsure`: where the driver doesn't say, as after a fault. */
static bool primary_is_active(CUdevice device, bool unsure) {
  unsigned int flags;
  int active = 0;
  return driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS ? active : unsure;
}

/* The device's primary context if there is one. Its lock held. The driver is asked for the handle only if it
 * has come in ways that we don't see: after a fault it tells no handle. */
static CUcontext primary_of(struct primary *primary, CUdevice device) {
  if (!primary_is_active(device, primary->context))
    primary->context = NULL;
  else if (!primary->context && driver.cuDevicePrimaryCtxRetain(&primary->context, device) == CUDA_SUCCESS)
    driver.cuDevicePrimaryCtxRelease(device);
  return primary->context;
}

static struct primary *primary_at(CUdevice device) {
  return device >= 0 && device < GS_GPUS_PER_CLIENT ? &primaries[device] : NULL;
}

/* Visitors are waited for without the lock: who holds it then may be what their work waits for. */
static void primary_await(struct primary *primary, CUcontext context) {
  lock_release(&primary->lock);
  await_visitors(context);
  lock_take(&primary->lock);
}

/* A reset, or a release. Only the one that is the end of the context waits for those inside it. */
static CUresult primary_leave_now(struct primary *primary, CUresult (*real)(CUdevice), CUdevice device,
                                  bool reset) {
  CUcontext context;
  struct entry *e = NULL;
  lock_take(&primary->lock);
  while ((context = primary_of(primary, device)) && (reset || primary->retains <= 1) &&
         !leave_try_begin(context, &e))
    primary_await(primary, context);
  if (context && reset)
    gate_port.context_leaving(context);
  CUresult result = real(device);
  bool gone = context && !primary_is_active(device, false); /* else others retain it, or the call failed */
  if (gone && !e)
    e = leave_at_once(context); /* it was released in ways that we don't see */
  if (gone && reset)
    gate_port.context_left(context);
  else if (gone)
    gate_port.context_destroyed(context);
  if (result == CUDA_SUCCESS && primary->retains > 0)
    primary->retains--;
  if (gone) {
    primary->retains = 0;
    primary->context = NULL;
  }
  leave_end(e, gone);
  lock_release(&primary->lock);
  return result;
}

static CUresult primary_leave(CUresult (*real)(CUdevice), CUdevice device, bool reset) {
  struct primary *primary = primary_at(device);
  if (!primary)
    return real(device);
  gate_await_work(device);
  gate_forbid_stop(device);
  CUresult result = primary_leave_now(primary, real, device, reset);
  gate_allow_stop();
  return result;
}

/* ---- the hooks ---- */

static CUresult created(CUresult result, CUcontext *context, CUdevice device) {
  preempt_making(false);
  if (result == CUDA_SUCCESS)
    add(*context, device, false);
  return result;
}

CUresult hook_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  preempt_making(true);
  return created(driver.cuCtxCreate(pctx, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  preempt_making(true);
  return created(driver.cuCtxCreate_v2(pctx, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                             unsigned int flags, CUdevice dev) {
  preempt_making(true);
  return created(driver.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev), pctx, dev);
}

CUresult hook_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                             CUdevice dev) {
  preempt_making(true);
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
  struct primary *primary = primary_at(dev);
  if (!primary)
    return driver.cuDevicePrimaryCtxRetain(pctx, dev);
  lock_take(&primary->lock);
  preempt_making(true);
  CUresult result = driver.cuDevicePrimaryCtxRetain(pctx, dev);
  preempt_making(false);
  if (result == CUDA_SUCCESS) {
    primary->retains++;
    primary->context = *pctx;
    add(*pctx, dev, true);
  }
  lock_release(&primary->lock);
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
  preempt_making(true);
  CUresult result = driver.cuGreenCtxCreate(phCtx, desc, dev, flags);
  preempt_making(false);
  CUcontext context;
  if (result == CUDA_SUCCESS && driver.cuCtxFromGreenCtx(&context, *phCtx) == CUDA_SUCCESS)
    add(context, dev, false);
  return result;
}

/* It may be the last to hold the primary context: not if the program does. */
static CUresult green_leave(CUgreenCtx green, CUcontext context, CUdevice device) {
  struct primary *primary = primary_at(device);
  struct entry *e, *p = NULL;
  CUcontext beneath;
  lock_take(&primary->lock);
  for (;;) {
    beneath = primary_of(primary, device);
    if (!leave_try_begin(context, &e)) {
      primary_await(primary, context);
    } else if (primary->retains == 0 && !leave_try_begin(beneath, &p)) {
      leave_end(e, false);
      primary_await(primary, beneath);
    } else {
      break;
    }
  }
  gate_port.green_context_destroyed(context, beneath);
  CUresult result = driver.cuGreenCtxDestroy(green);
  bool beneath_gone = beneath && !primary_is_active(device, false);
  if (beneath_gone && !p)
    p = leave_at_once(beneath);
  if (beneath_gone) {
    gate_port.context_destroyed(beneath);
    primary->context = NULL;
  }
  leave_end(p, beneath_gone);
  leave_end(e, result == CUDA_SUCCESS);
  lock_release(&primary->lock);
  return result;
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx hCtx) {
  CUcontext context;
  CUdevice device = -1;
  if (hCtx && driver.cuCtxFromGreenCtx(&context, hCtx) == CUDA_SUCCESS)
    device = contexts_device(context);
  if (!primary_at(device))
    return driver.cuGreenCtxDestroy(hCtx);
  gate_await_work(device);
  gate_forbid_stop(device);
  CUresult result = green_leave(hCtx, context, device);
  gate_allow_stop();
  return result;
}
