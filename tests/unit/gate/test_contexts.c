/* test_contexts.c - the end of a primary context while others are inside it. The driver is played. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../suite.h"
#include "client/client.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/gate_port.h"
#include "gate/streams.h"
#include "memory/memory.h"
#include "preempt/preempt.h"

/* ---- the rest of the library ---- */

struct driver driver;

static _Atomic unsigned references; /* of the primary context, as the driver counts */
static const CUcontext primary = (CUcontext)0x1000;

static bool is_stopped; /* until somebody waits for the turn */
bool client_is_stopped(CUdevice device) { return device == 0 && is_stopped; }
static _Atomic int stops_forbidden;
void gate_await_work(CUdevice device) { (void)device; }
void gate_forbid_stop(CUdevice device) {
  is_stopped &= device != 0;
  stops_forbidden++;
}
void gate_allow_stop(void) { stops_forbidden--; }
static enum preempt_verdict verdict = PREEMPT_NO;
static unsigned own, makings;
enum preempt_verdict preempt_verdict(int device) { return device == 0 ? verdict : PREEMPT_NO; }
struct preempt_channels preempt_channels(int device) {
  return (struct preempt_channels){.stopped = client_is_stopped(device)};
}
void preempt_own(bool begins) { own += begins; }
void preempt_making(bool begins) { makings += begins; }
void client_attach(CUdevice device) { (void)device; }
void client_context_added(CUdevice device) { (void)device; }
void streams_context_gone(CUcontext context) { (void)context; }
void capture_context_gone(CUcontext context) { (void)context; }
void memory_context_gone(CUcontext context) { (void)context; }
void memory_context_leaving(CUcontext context) { (void)context; }
void memory_context_left(CUcontext context) { (void)context; }
void memory_context_destroyed(CUcontext context) { (void)context; }
void memory_green_context_destroyed(CUcontext context, CUcontext beneath) { (void)context, (void)beneath; }

const struct gate_port gate_port = {.attach = client_attach,
                                    .context_added = client_context_added,
                                    .is_stopped = client_is_stopped,
                                    .context_leaving = memory_context_leaving,
                                    .context_left = memory_context_left,
                                    .context_destroyed = memory_context_destroyed,
                                    .green_context_destroyed = memory_green_context_destroyed,
                                    .context_gone = memory_context_gone};

static _Atomic bool faulted; /* then the driver retains nothing */
static CUresult retain(CUcontext *context, CUdevice device) {
  (void)device;
  if (faulted)
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  references++;
  *context = primary;
  return CUDA_SUCCESS;
}
static CUresult release(CUdevice device) {
  (void)device;
  references--;
  return CUDA_SUCCESS;
}
static CUresult reset(CUdevice device) {
  (void)device;
  references = 0;
  return CUDA_SUCCESS;
}
static CUresult get_state(CUdevice device, unsigned int *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = references > 0;
  return CUDA_SUCCESS;
}
static CUresult push(CUcontext context) { return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }
static CUresult pop(CUcontext *context) {
  *context = primary;
  return CUDA_SUCCESS;
}

static void set_up(void) {
  driver.cuDevicePrimaryCtxRetain = retain;
  driver.cuDevicePrimaryCtxRelease = driver.cuDevicePrimaryCtxRelease_v2 = release;
  driver.cuDevicePrimaryCtxReset = driver.cuDevicePrimaryCtxReset_v2 = reset;
  driver.cuDevicePrimaryCtxGetState = get_state;
  driver.cuCtxPushCurrent_v2 = push;
  driver.cuCtxPopCurrent_v2 = pop;
  contexts_fork_child();
  references = 0;
  faulted = false;
}

static void tear_down(void) {}

/* ---- a visitor that stays inside, and a thread that ends the context ---- */

static _Atomic bool inside, may_leave;
static bool stay(CUcontext context, void *argument) {
  (void)context, (void)argument;
  inside = true;
  while (!may_leave)
    suite_pause();
  return true;
}

static void *visit(void *unused) {
  contexts_each(0, stay, NULL);
  return unused;
}

static pthread_t start_visit(void) {
  pthread_t thread;
  inside = may_leave = false;
  pthread_create(&thread, NULL, visit, NULL);
  while (!inside)
    suite_pause();
  return thread;
}

static _Atomic bool ended;
static void *end_context(void *hook) {
  ck_assert_int_eq(((CUresult(*)(CUdevice))hook)(0), CUDA_SUCCESS);
  ended = true;
  return NULL;
}

static void retain_times(unsigned times) {
  for (CUcontext context; times; times--)
    ck_assert_int_eq(hook_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
}

START_TEST(a_release_that_is_not_the_last_waits_for_nobody) {
  retain_times(2);
  pthread_t visitor = start_visit();
  ck_assert_int_eq(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  may_leave = true;
  pthread_join(visitor, NULL);
  ck_assert_int_eq(contexts_device(primary), 0);
}
END_TEST

/* Others meanwhile retain it, or ask for that of another device: no lock is held. */
START_TEST(the_last_release_waits_for_those_inside) {
  pthread_t end;
  CUresult (*const hook)(CUdevice) = _i ? hook_cuDevicePrimaryCtxReset_v2 : hook_cuDevicePrimaryCtxRelease_v2;
  retain_times(1);
  pthread_t visitor = start_visit();
  ended = false;
  pthread_create(&end, NULL, end_context, (void *)hook);
  for (int i = 0; i < 100; i++)
    suite_pause();
  ck_assert(!ended && references == 1);
  retain_times(1); /* so it is not the last one any more; but a reset is the end in any case */
  may_leave = true;
  pthread_join(visitor, NULL);
  pthread_join(end, NULL);
  ck_assert_int_eq(contexts_device(primary), _i ? -1 : 0);
  if (_i == 0)
    ck_assert_int_eq(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  ck_assert_uint_eq(references, 0);
  ck_assert_int_eq(contexts_device(primary), -1);
}
END_TEST

/* Of what holds it besides we need not know. */
START_TEST(a_context_that_others_hold_stays) {
  retain_times(1);
  references++;
  ck_assert_int_eq(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  ck_assert_int_eq(contexts_device(primary), 0);
  ck_assert_int_eq(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  ck_assert_int_eq(contexts_device(primary), -1);
}
END_TEST

/* Our count says that it is not the last one. Who is inside has a dead context in hand: too late to wait. */
START_TEST(an_end_that_was_not_foreseen_waits_for_nobody) {
  retain_times(2);
  references--; /* released in a way that we don't see */
  pthread_t visitor = start_visit(), end;
  ended = false;
  pthread_create(&end, NULL, end_context, (void *)hook_cuDevicePrimaryCtxRelease_v2);
  pthread_join(end, NULL);
  ck_assert_int_eq(contexts_device(primary), -1);
  retain_times(1); /* a new one, while the visitor is still in the old one */
  ck_assert_int_eq(contexts_device(primary), 0);
  may_leave = true;
  pthread_join(visitor, NULL);
  ck_assert_int_eq(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  ck_assert_int_eq(contexts_device(primary), -1);
}
END_TEST

START_TEST(after_a_fault_the_last_release_is_the_end) {
  retain_times(1);
  faulted = true;
  ck_assert_int_eq((_i ? hook_cuDevicePrimaryCtxReset_v2 : hook_cuDevicePrimaryCtxRelease_v2)(0),
                   CUDA_SUCCESS);
  ck_assert_int_eq(contexts_device(primary), -1);
}
END_TEST

/* ---- a context that is being destroyed ---- */

static const CUcontext other = (CUcontext)0x2000;
static CUresult create(CUcontext *context, unsigned int flags, CUdevice device) {
  (void)flags, (void)device;
  *context = other;
  return CUDA_SUCCESS;
}

static CUresult destroy_slowly(CUcontext context) {
  stay(context, NULL);
  return CUDA_SUCCESS;
}

static void *destroy_other(void *unused) {
  ck_assert_int_eq(hook_cuCtxDestroy_v2(other), CUDA_SUCCESS);
  return unused;
}

static bool count_visit(CUcontext context, void *count) {
  (void)context;
  ++*(int *)count;
  return true;
}

START_TEST(a_look_does_not_wait_for_a_destruction) {
  CUcontext context;
  pthread_t thread;
  int visits = 0;
  driver.cuCtxCreate_v2 = create;
  driver.cuCtxDestroy_v2 = destroy_slowly;
  ck_assert_int_eq(hook_cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  retain_times(1);
  ck_assert(contexts_each(0, count_visit, &visits) && visits == 2);
  inside = may_leave = false;
  pthread_create(&thread, NULL, destroy_other, NULL);
  while (!inside)
    suite_pause();
  ck_assert(!contexts_each(0, count_visit, &visits) && visits == 3);
  may_leave = true;
  pthread_join(thread, NULL);
  ck_assert(contexts_each(0, count_visit, &visits) && visits == 4);
}
END_TEST

START_TEST(a_destruction_waits_for_those_who_hold_the_context) {
  CUcontext context;
  pthread_t thread;
  driver.cuCtxCreate_v2 = create;
  driver.cuCtxDestroy_v2 = destroy_slowly;
  ck_assert_int_eq(hook_cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  void *held = contexts_hold(context);
  ck_assert_ptr_nonnull(held);
  ck_assert_ptr_null(contexts_hold(NULL));
  inside = may_leave = false;
  pthread_create(&thread, NULL, destroy_other, NULL);
  for (int i = 0; i < 100; i++)
    suite_pause();
  ck_assert(!inside);
  contexts_let_go(held);
  while (!inside)
    suite_pause();
  ck_assert_ptr_null(contexts_hold(context));
  may_leave = true;
  pthread_join(thread, NULL);
  ck_assert_ptr_null(contexts_hold(context));
}
END_TEST

START_TEST(while_work_is_stopped_a_destruction_waits_for_the_turn) {
  CUcontext context;
  pthread_t thread;
  driver.cuCtxCreate_v2 = create;
  driver.cuCtxDestroy_v2 = destroy_slowly;
  ck_assert_int_eq(hook_cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  is_stopped = true;
  inside = may_leave = false;
  ck_assert(!stops_forbidden);
  pthread_create(&thread, NULL, destroy_other, NULL);
  while (!inside)
    suite_pause();
  ck_assert(!is_stopped); /* it has waited */
  ck_assert(stops_forbidden);
  may_leave = true;
  pthread_join(thread, NULL);
  ck_assert(!stops_forbidden);
}
END_TEST

/* ---- a context of our own ---- */

static CUresult refuse(CUcontext *context, unsigned int flags, CUdevice device) {
  (void)context, (void)flags, (void)device;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult take_limit(CUlimit limit, size_t value) {
  ck_assert_uint_eq(value, 0);
  (void)limit;
  return CUDA_SUCCESS;
}

static CUcontext pushed;
static CUresult note_push(CUcontext context) {
  pushed = context;
  return CUDA_SUCCESS;
}

static void note_pushed(void *found) { *(CUcontext *)found = pushed; }

START_TEST(memory_moves_in_a_context_of_our_own) {
  CUcontext in = NULL;
  driver.cuCtxCreate_v2 = create;
  driver.cuCtxSetLimit = take_limit;
  driver.cuCtxPushCurrent_v2 = note_push;
  retain_times(1);
  ck_assert(!contexts_make_own(0)); /* nothing can be stopped */
  ck_assert(contexts_any(0, note_pushed, &in));
  ck_assert_ptr_eq(in, primary);
  verdict = PREEMPT_YES;
  is_stopped = true;
  driver.cuCtxCreate_v2 = refuse;
  in = NULL;
  ck_assert(!contexts_make_own(0));
  ck_assert(contexts_any(0, note_pushed, &in)); /* the program's might wait */
  ck_assert_ptr_null(in);
  driver.cuCtxCreate_v2 = create;
  ck_assert(!contexts_make_own(0)); /* so soon after a refusal it is not tried */
  contexts_fork_child();
  retain_times(1);
  unsigned before = own;
  ck_assert(contexts_make_own(0) && contexts_make_own(0));
  ck_assert_uint_eq(own, before + 1);
  ck_assert(contexts_any(0, note_pushed, &in));
  ck_assert_ptr_eq(in, other);
  ck_assert_int_eq(contexts_device(other), -1); /* no work of the program's is in it */
  ck_assert_ptr_nonnull(contexts_hold(other));  /* nobody destroys it */
}
END_TEST

int main(void) {
  Suite *suite = suite_create("contexts");
  TCase *tests = tcase_create("contexts");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_set_timeout(tests, SUITE_LIMIT_S);
  tcase_add_test(tests, a_release_that_is_not_the_last_waits_for_nobody);
  tcase_add_loop_test(tests, the_last_release_waits_for_those_inside, 0, 2);
  tcase_add_test(tests, a_context_that_others_hold_stays);
  tcase_add_test(tests, an_end_that_was_not_foreseen_waits_for_nobody);
  tcase_add_loop_test(tests, after_a_fault_the_last_release_is_the_end, 0, 2);
  tcase_add_test(tests, a_look_does_not_wait_for_a_destruction);
  tcase_add_test(tests, a_destruction_waits_for_those_who_hold_the_context);
  tcase_add_test(tests, while_work_is_stopped_a_destruction_waits_for_the_turn);
  tcase_add_test(tests, memory_moves_in_a_context_of_our_own);
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
