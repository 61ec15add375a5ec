/* test_gate.c - the gate alone: who may pass, what closing waits for, pulses, captures, forks. */
#include <check.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "client/client.h"
#include "common/clock.h"
#include "common/splitmix.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/gate_port.h"
#include "gate/streams.h"
#include "preempt/preempt.h"

struct driver driver;

static _Atomic bool memory_is_out;
static _Atomic int holding; /* threads that are inside */
static _Atomic bool may_leave;
static _Atomic unsigned refused; /* mappings */

void *__real_mmap(void *, size_t, int, int, int, off_t);
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (!memory_is_out)
    return __real_mmap(at, bytes, protection, flags, fd, offset);
  refused++;
  errno = ENOMEM;
  return MAP_FAILED;
}

static _Atomic unsigned attached, wanted;
static _Thread_local CUdevice current;
static _Thread_local CUresult current_result;

void client_attach(CUdevice device) {
  attached++;
  gate_add(device);
}
static _Atomic bool is_stopped;
static _Atomic unsigned let_on; /* while stops were forbidden */
void client_await_go(CUdevice device) { let_on += device == 0 && gate_stop_is_forbidden(); }
bool client_is_stopped(CUdevice device) { return device == 0 && is_stopped; }
void client_want(CUdevice device) {
  (void)device;
  wanted++;
}
void contexts_learn_current(void) {}
void streams_note(CUstream stream) { (void)stream; }
static _Atomic unsigned told; /* submissions that were to be told of */
void client_submits(CUdevice device) { told += device == 1; }
const struct gate_port gate_port = {.attach = client_attach,
                                    .want = client_want,
                                    .submits = client_submits,
                                    .is_stopped = client_is_stopped,
                                    .await_go = client_await_go};
static unsigned captures;
unsigned capture_count(void) { return captures; }
void capture_forbid(void) {}
void capture_allow(void) {}
static enum preempt_verdict verdict = PREEMPT_NO;
enum preempt_verdict preempt_verdict(int device) { return device == 0 ? verdict : PREEMPT_NO; }
static _Atomic bool busy, submits;
static _Atomic unsigned asked;
enum streams_state streams_ask(CUdevice device) {
  asked++;
  if (submits) {
    gate_enter(NULL);
    gate_leave();
  }
  return device == 0 && busy ? STREAMS_BUSY : STREAMS_FINISHED;
}
CUdevice contexts_device(CUcontext context) { return (CUdevice)(intptr_t)context - 1; }

static CUresult get_device(CUdevice *device) {
  *device = current;
  errno = EXDEV; /* whatever the driver does to errno must not show */
  return current_result;
}
static CUresult get_context(CUstream stream, CUcontext *context) { /* stream 100 + n belongs to device n */
  *context = (CUcontext)((intptr_t)stream - 99);
  return CUDA_SUCCESS;
}
static CUstream capturing;
static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = stream == capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
static CUstream stream_on(int device) { return (CUstream)(intptr_t)(100 + device); }

/* A store that another processor has not made visible yet, until a barrier has it do so. */
static _Atomic uintptr_t *stored;
static bool forbids_membarrier; /* a sandbox that the program has entered */
long __real_syscall(long number, ...);
/* It passes on six arguments, whether that many were given or not. */
long __wrap_syscall(long number, ...) __attribute__((no_sanitize("address")));
long __wrap_syscall(long number, ...) {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++)
    arguments[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_membarrier && forbids_membarrier) {
    errno = EPERM;
    return -1;
  }
  if (number == SYS_membarrier && arguments[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED && stored)
    atomic_store(stored, 1);
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                        arguments[5]);
}

static void set_up(void) {
  driver.cuCtxGetDevice = get_device;
  driver.cuStreamGetCtx = get_context;
  driver.cuStreamIsCapturing = is_capturing;
  gate_fork_child(); /* a fresh gate for every test */
  memory_is_out = may_leave = false;
  refused = 0;
  holding = 0;
  attached = wanted = told = captures = 0;
  current = 0;
  current_result = CUDA_SUCCESS;
  capturing = NULL;
}

/* A thread that passes once and says so. */
struct passer {
  pthread_t thread;
  CUstream stream;
  uint64_t reach; /* other devices */
  _Atomic bool passed;
};

static void *pass_once(void *argument) {
  struct passer *p = argument;
  gate_enter_reaching(p->stream, p->reach);
  atomic_store(&p->passed, true);
  gate_leave();
  return NULL;
}

static void passer_start_reaching(struct passer *p, CUstream stream, uint64_t reach) {
  p->stream = stream;
  p->reach = reach;
  atomic_store(&p->passed, false);
  ck_assert_int_eq(pthread_create(&p->thread, NULL, pass_once, p), 0);
}

static void passer_start(struct passer *p, CUstream stream) { passer_start_reaching(p, stream, 0); }

static void await_waiting(CUdevice device, uint32_t count) {
  while (gate_waiting(device) != count)
    suite_pause();
}

START_TEST(first_call_attaches_and_waits) {
  struct passer p;
  passer_start(&p, NULL);
  await_waiting(0, 1);
  ck_assert_uint_eq(attached, 1);
  while (!wanted)
    suite_pause();
  ck_assert(!p.passed);
  gate_open(0);
  pthread_join(p.thread, NULL);
  ck_assert(p.passed);
  ck_assert_uint_eq(gate_calls(), 1);
}
END_TEST

START_TEST(errno_survives_the_slow_path) {
  gate_add(0);
  gate_open(0);
  errno = ENOTTY;
  gate_enter(NULL); /* no slot yet: slow */
  gate_leave();
  ck_assert_int_eq(errno, ENOTTY);
}
END_TEST

START_TEST(no_context_is_the_drivers_business) {
  current_result = CUDA_ERROR_INVALID_CONTEXT;
  gate_enter(NULL);
  gate_leave();
  ck_assert_uint_eq(attached, 0);
}
END_TEST

START_TEST(each_device_has_its_gate) {
  struct passer open, shut;
  gate_add(0);
  gate_add(1);
  gate_open(0);
  passer_start(&shut, stream_on(1));
  await_waiting(1, 1);
  passer_start(&open, stream_on(0));
  pthread_join(open.thread, NULL);
  ck_assert(open.passed && !shut.passed);
  gate_open(1);
  pthread_join(shut.thread, NULL);
}
END_TEST

/* Only then, and only on that device; also of a call that has waited at the gate. */
START_TEST(calls_are_told_of_while_their_device_is_watched) {
  struct passer p;
  gate_add(0);
  gate_add(1);
  gate_open(0);
  gate_open(1);
  for (int watch = 0; watch < 3; watch++) { /* no, yes, and no more */
    gate_watch(1, watch == 1);
    ck_assert_uint_eq(gate_all_open, watch == 1 ? GATE_ALL_LOOK : GATE_ALL_FREE);
    for (int device = 0; device < 2; device++) {
      unsigned before = told;
      gate_enter(stream_on(device));
      gate_leave();
      ck_assert_uint_eq(told - before, device == 1 && watch == 1);
    }
  }
  ck_assert(gate_close(1, NS_PER_S));
  gate_watch(1, true);
  passer_start(&p, stream_on(1));
  await_waiting(1, 1);
  ck_assert_uint_eq(told, 1);
  gate_open(1);
  pthread_join(p.thread, NULL);
  ck_assert_uint_eq(told, 2);
}
END_TEST

/* One after the other, and without holding up the one while it waits for the other. */
START_TEST(a_call_passes_all_gates_that_it_needs) {
  struct passer p;
  gate_add(0);
  ck_assert(!gate_several);
  gate_add(1);
  ck_assert(gate_several);
  gate_open(0);
  passer_start_reaching(&p, stream_on(_i), UINT64_C(1) << (1 - _i));
  await_waiting(1, 1);
  ck_assert(gate_is_kept(0) && !gate_is_kept(1));
  ck_assert(gate_close(0, NS_PER_S));
  gate_open(1);
  await_waiting(0, 1);
  ck_assert(!gate_is_kept(0) && !gate_is_kept(1) && !p.passed);
  ck_assert(gate_close(1, NS_PER_S));
  gate_open(0);
  await_waiting(1, 1);
  gate_open(1);
  pthread_join(p.thread, NULL);
  ck_assert(p.passed && !gate_is_kept(0));
  ck_assert_uint_eq(gate_reached_from(1 - _i), UINT64_C(1) << _i);
  ck_assert_uint_eq(gate_reached_from(_i), 0);
}
END_TEST

START_TEST(a_pulse_of_one_gate_does_not_open_another) {
  struct passer p;
  gate_add(0);
  gate_add(1);
  passer_start_reaching(&p, stream_on(0), 2);
  await_waiting(0, 1);
  gate_pulse(0);
  await_waiting(1, 1);
  ck_assert(!p.passed);
  gate_open(1);
  pthread_join(p.thread, NULL);
}
END_TEST

START_TEST(linked_devices_need_both_gates) {
  struct passer p;
  gate_add(0);
  gate_add(1);
  gate_open(1);
  gate_link(1, 0, true);
  ck_assert_uint_eq(gate_reached_from(0), 2);
  passer_start(&p, stream_on(1));
  await_waiting(0, 1);
  gate_open(0);
  pthread_join(p.thread, NULL);
  ck_assert(gate_close(0, NS_PER_S));
  gate_link(1, 0, false);
  passer_start(&p, stream_on(1));
  pthread_join(p.thread, NULL);
}
END_TEST

START_TEST(capturing_streams_pass) {
  struct passer p;
  gate_add(0);
  capturing = stream_on(0);
  passer_start(&p, stream_on(0));
  pthread_join(p.thread, NULL);
  ck_assert(p.passed);
}
END_TEST

START_TEST(a_pulse_lets_each_waiter_pass_once) {
  struct passer first, second;
  gate_add(0);
  passer_start(&first, NULL);
  await_waiting(0, 1);
  gate_pulse(0);
  pthread_join(first.thread, NULL);
  ck_assert_uint_eq(gate_pulses(0), 1);
  passer_start(&second, NULL);
  await_waiting(0, 1);
  ck_assert(!second.passed);
  gate_open(0);
  pthread_join(second.thread, NULL);
}
END_TEST

START_TEST(a_revoked_pulse_lets_nobody_pass) {
  struct passer p;
  gate_add(0);
  passer_start(&p, NULL);
  await_waiting(0, 1);
  uint64_t before = gate_pulses(0);
  for (int i = 0; i < 1000 && !p.passed;
       i++) { /* revoked at once: the waiter may or may not make it, but ... */
    gate_pulse(0);
    ck_assert(gate_revoke_pulse(0, UINT64_MAX));
    bool passed = p.passed; /* ... not from here on */
    suite_pause();
    ck_assert_int_eq(p.passed, passed);
  }
  ck_assert_uint_gt(gate_pulses(0), before);
  gate_open(0);
  pthread_join(p.thread, NULL);
}
END_TEST

static _Atomic bool leave_now;
static _Atomic bool inside_now;
static void *stay_inside(void *argument) {
  gate_enter(argument);
  atomic_store(&inside_now, true);
  while (!atomic_load(&leave_now))
    suite_pause();
  gate_leave();
  return NULL;
}

START_TEST(closing_waits_for_calls_in_flight) {
  pthread_t thread;
  leave_now = inside_now = false;
  gate_add(0);
  gate_open(0);
  pthread_create(&thread, NULL, stay_inside, NULL);
  while (!atomic_load(&inside_now))
    suite_pause();
  ck_assert(gate_in_flight());
  ck_assert(!gate_close(0, NS_PER_MS));
  ck_assert(!gate_is_open(0));
  leave_now = true;
  ck_assert(gate_close(0, UINT64_MAX));
  ck_assert(!gate_in_flight());
  pthread_join(thread, NULL);
}
END_TEST

/* The race that the gate exists for: tests/model/gate.pml goes through all its orders. Here real threads pass
 * while a real gate shuts, to see that the code does what the model says. */
static _Atomic unsigned inside;
static _Atomic bool stop;
static void *pass_for_ever(void *argument) {
  (void)argument;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    gate_enter(NULL);
    atomic_fetch_add_explicit(&inside, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&inside, 1, memory_order_relaxed);
    gate_leave();
  }
  return NULL;
}

START_TEST(nothing_slips_out_after_closing) {
  enum { THREADS = 2, ROUNDS = 100 };
  pthread_t threads[THREADS];
  gate_has_membarrier = _i != 0; /* with and without membarrier */
  stop = false;
  gate_add(0);
  gate_open(0);
  for (int i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, pass_for_ever, NULL);
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t before = gate_calls();
    while (gate_calls() == before) /* some pass in each round */
      suite_pause();
    ck_assert(gate_close(0, UINT64_MAX));
    ck_assert_uint_eq(atomic_load(&inside), 0);
    gate_open(0);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
}
END_TEST

/* The same with a thread that is held up at any of its instructions while the gate is shut: by the fast way,
 * and by the slow way with a long look. */
static _Atomic bool held, may_go_on;
static _Atomic unsigned entered;

static void hold_up(int number) {
  (void)number;
  held = true;
  while (!may_go_on)
    suite_pause();
}

static void *count_passes(void *reach) {
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    gate_enter_reaching(NULL, *(const uint64_t *)reach);
    unsigned passes = atomic_load_explicit(&entered, memory_order_relaxed) + 1;
    atomic_store_explicit(&entered, passes,
                          memory_order_relaxed); /* plain, not to be where most signals come */
    gate_leave();
  }
  return NULL;
}

static void hold_up_and_close(pthread_t thread) {
  held = may_go_on = false;
  ck_assert_int_eq(pthread_kill(thread, SIGUSR1), 0);
  while (!held)
    suite_pause();
  bool outside = gate_close(0, 0);
  unsigned before = entered;
  may_go_on = true;
  await_waiting(0, 1);
  if (outside)
    ck_assert_uint_eq(entered, before);
  gate_open(0);
}

START_TEST(a_call_that_is_held_up_anywhere_does_not_slip_out) {
  enum { ROUNDS = 100 };
  pthread_t thread;
  uint64_t reach = 0;
  uint64_t random = (uint64_t)getpid();
  printf("seed %llu\n", (unsigned long long)random);
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = hold_up}, NULL);
  stop = false;
  for (int device = 0; device < (_i ? GS_GPUS_PER_CLIENT : 1); device++) {
    gate_add(device);
    gate_open(device);
    reach |= (uint64_t)_i << device;
  }
  pthread_create(&thread, NULL, count_passes, &reach);
  for (int round = 0; round < ROUNDS; round++) {
    for (unsigned seen = entered; entered == seen;)
      suite_pause();
    for (uint64_t left = splitmix_next(&random) % 1000; left; left--)
      __asm__ volatile("");
    hold_up_and_close(thread);
  }
  stop = true;
  pthread_join(thread, NULL);
}
END_TEST

/* Nor does one that has waited before a pulse, and looks again once that has been revoked. */
START_TEST(who_wakes_late_does_not_pass_by_a_revoked_pulse) {
  struct passer p;
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = hold_up}, NULL);
  gate_add(0);
  passer_start(&p, NULL);
  await_waiting(0, 1);
  held = may_go_on = false;
  ck_assert_int_eq(pthread_kill(p.thread, SIGUSR1), 0);
  while (!held)
    suite_pause();
  gate_pulse(0);
  ck_assert(gate_revoke_pulse(0, UINT64_MAX));
  unsigned before = wanted;
  may_go_on = true;
  while (wanted == before && !p.passed)
    suite_pause();
  ck_assert(!p.passed);
  gate_open(0);
  pthread_join(p.thread, NULL);
}
END_TEST

/* The other way to lose that race, made to happen. */
START_TEST(closing_sees_what_was_stored_before_the_barrier) {
  if (!gate_has_membarrier)
    return; /* no membarrier here */
  gate_add(0);
  gate_open(0);
  gate_enter(NULL);
  gate_leave();
  stored = &gate_slot->in_flight;
  if (_i == 0) {
    ck_assert(!gate_close(0, NS_PER_MS));
  } else if (_i == 1) {
    ck_assert(!gate_revoke_pulse(0, NS_PER_MS));
  } else {
    gate_watch(0, true);
    ck_assert(gate_in_flight());
  }
}
END_TEST

/* The second time by the fast way, if that is open. */
static void *pass_twice(void *argument) {
  struct passer *p = argument;
  gate_enter(NULL);
  gate_leave();
  held = true;
  while (!may_go_on)
    suite_pause();
  return pass_once(p);
}

START_TEST(others_wait_while_a_thread_is_alone) {
  struct passer p = {.passed = false};
  gate_add(0);
  gate_open(0);
  held = may_go_on = false;
  pthread_create(&p.thread, NULL, pass_twice, &p);
  while (!held)
    suite_pause();
  gate_enter(NULL);
  ck_assert(gate_alone(1, UINT64_MAX));
  ck_assert(!gate_alone(1, UINT64_MAX));
  may_go_on = true;
  while (wanted < 1 && !p.passed)
    suite_pause();
  gate_pulse(0);
  while (wanted < 2 && !p.passed)
    suite_pause();
  ck_assert(!p.passed);
  gate_together(1);
  pthread_join(p.thread, NULL);
  gate_leave();
}
END_TEST

static void *pass_slowly(void *unused) {
  gate_enter(NULL);
  held = true;
  while (!may_go_on)
    suite_pause();
  gate_leave();
  return unused;
}

START_TEST(no_thread_is_alone_beside_a_call_in_flight) {
  struct passer p;
  pthread_t other;
  gate_add(0);
  gate_open(0);
  gate_enter(NULL);
  held = may_go_on = false;
  pthread_create(&other, NULL, pass_slowly, NULL);
  while (!held)
    suite_pause();
  ck_assert(!gate_alone(1, NS_PER_MS));
  passer_start(&p, NULL);
  pthread_join(p.thread, NULL); /* as before */
  may_go_on = true;
  ck_assert(gate_alone(1, UINT64_MAX));
  pthread_join(other, NULL);
  gate_together(1);
  gate_leave();
}
END_TEST

static void *say_call(void *call) {
  gate_enter(NULL);
  *(struct gate_call *)call = gate_call_mine();
  if (!gate_call_goes_on(call))
    return call;
  pthread_exit(NULL); /* within it */
}

START_TEST(a_call_goes_on_until_its_thread_leaves_it_or_ends) {
  pthread_t thread;
  void *result;
  gate_add(0);
  gate_open(0);
  ck_assert(!gate_call_goes_on(&(struct gate_call){NULL, 0}));
  gate_enter(NULL);
  struct gate_call call = gate_call_mine();
  ck_assert(gate_call_goes_on(&call));
  gate_leave();
  ck_assert(!gate_call_goes_on(&call));
  gate_enter(NULL);
  ck_assert(!gate_call_goes_on(&call)); /* this is another one */
  gate_leave();
  pthread_create(&thread, NULL, say_call, &call);
  pthread_join(thread, &result);
  ck_assert_ptr_null(result);
  while (gate_call_goes_on(&call)) /* a joined thread still exists for a moment */
    suite_pause();
}
END_TEST

START_TEST(where_membarrier_becomes_forbidden_calls_fence) {
  gate_has_membarrier = forbids_membarrier = true;
  gate_add(0);
  gate_open(0);
  ck_assert(gate_close(0, UINT64_MAX));
  ck_assert(!gate_has_membarrier);
}
END_TEST

/* ---- calls within calls ---- */

static void *close_gate(void *closed) {
  gate_close(0, UINT64_MAX);
  atomic_store((_Atomic bool *)closed, true);
  return NULL;
}

static __attribute__((noinline)) void call_within(void) {
  gate_enter(NULL);
  ck_assert(gate_in_flight());
  gate_leave();
}

START_TEST(a_call_within_a_call_passes_and_leaves_the_outer_one_in_flight) {
  _Atomic bool closed = false;
  pthread_t closer;
  gate_add(0);
  gate_open(0);
  gate_enter(NULL);
  call_within();
  ck_assert(gate_in_flight());
  pthread_create(&closer, NULL, close_gate, &closed);
  while (gate_is_open(0))
    suite_pause();
  call_within(); /* it must not wait for the gate, as the closer waits for us */
  ck_assert(gate_in_flight() && !closed);
  gate_leave();
  pthread_join(closer, NULL);
  ck_assert(closed && !gate_in_flight());
}
END_TEST

/* ---- waits and calls that are left in other ways ---- */

static sigjmp_buf out;
static void jump(int number) {
  (void)number;
  siglongjmp(out, 1);
}

static _Atomic bool jumped;
static void *wait_until_jump(void *argument) {
  struct passer *p = argument;
  if (sigsetjmp(out, 1) == 0)
    gate_enter_reaching(p->stream, p->reach);
  atomic_store(&jumped, true);
  while (!atomic_load(&leave_now))
    suite_pause();
  return NULL;
}

/* The process would ask for the GPU for ever, and never give back the lower one as idle. */
START_TEST(who_has_jumped_out_of_the_wait_does_not_wait) {
  struct passer p = {.stream = stream_on(0), .reach = 2};
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump}, NULL);
  jumped = leave_now = false;
  gate_add(0);
  gate_add(1);
  gate_open(0);
  pthread_create(&p.thread, NULL, wait_until_jump, &p);
  await_waiting(1, 1);
  while (!gate_is_kept(0)) /* that is marked after the wait */
    suite_pause();
  pthread_kill(p.thread, SIGUSR1);
  while (!atomic_load(&jumped))
    suite_pause();
  gate_open(1);
  ck_assert(gate_close(1, NS_PER_S));
  ck_assert_uint_eq(gate_waiting(1), 0);
  ck_assert(!gate_is_kept(0));
  leave_now = true;
  pthread_join(p.thread, NULL);
}
END_TEST

static void *wait_to_be_cancelled(void *argument) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  gate_enter(argument);
  return argument;
}

START_TEST(who_was_cancelled_in_the_wait_does_not_wait) {
  pthread_t thread;
  void *result;
  gate_add(0);
  pthread_create(&thread, NULL, wait_to_be_cancelled, NULL);
  await_waiting(0, 1);
  pthread_cancel(thread);
  pthread_join(thread, &result);
  ck_assert_ptr_eq(result, PTHREAD_CANCELED);
  gate_open(0);
  ck_assert(gate_close(0, NS_PER_S));
  ck_assert_uint_eq(gate_waiting(0), 0);
}
END_TEST

/* The handler of a signal has left the driver's function; natively the next call works, too. */
START_TEST(a_call_that_was_left_by_a_jump_is_over_with_the_next_one) {
  gate_add(0);
  gate_open(0);
  for (int i = 0; i < 2; i++)
    gate_enter(NULL);
  gate_leave();
  ck_assert(!gate_in_flight());
  ck_assert(gate_close(0, NS_PER_S));
}
END_TEST

static void *wait_for_room(void *tid) {
  *(pid_t *)tid = (pid_t)syscall(SYS_gettid);
  gate_wait_begin(0, GATE_WAIT_ROOM);
  return NULL;
}

/* A joined thread still exists for a moment. */
static void await_the_end(pid_t tid) {
  while (syscall(SYS_tgkill, getpid(), tid, 0) == 0)
    suite_pause();
}

START_TEST(other_waits_end_with_their_thread_or_an_opening) {
  pthread_t thread;
  pid_t tid = 0;
  gate_add(0);
  gate_wait_begin(0, GATE_WAIT_ROOM | GATE_WAIT_TURN);
  ck_assert_uint_eq(gate_waits(0, GATE_WAIT_TURN), 1);
  ck_assert_uint_eq(gate_waits(1, GATE_WAIT_TURN), 0);
  gate_open(0);
  ck_assert_uint_eq(gate_waits(0, GATE_WAIT_ROOM | GATE_WAIT_TURN), 0);
  pthread_create(&thread, NULL, wait_for_room, &tid);
  pthread_join(thread, NULL);
  await_the_end(tid);
  ck_assert_uint_eq(gate_waits(0, GATE_WAIT_ROOM), 0);
}
END_TEST

static void *end_a_wait(void *unused) {
  gate_wait_end();
  return gate_slot ? NULL : unused;
}

START_TEST(a_thread_that_never_waited_needs_no_slot_for_its_end) {
  pthread_t thread;
  void *result, *slotless = &thread;
  gate_add(0);
  pthread_create(&thread, NULL, end_a_wait, slotless);
  pthread_join(thread, &result);
  ck_assert_ptr_eq(result, slotless);
}
END_TEST

static void *die_inside(void *argument) {
  gate_enter(argument);
  pthread_exit(NULL); /* as a thread that is cancelled inside the driver */
}

START_TEST(a_thread_that_died_inside_is_not_waited_for) {
  pthread_t thread;
  gate_add(0);
  gate_open(0);
  pthread_create(&thread, NULL, die_inside, NULL);
  pthread_join(thread, NULL);
  ck_assert(gate_close(0, NS_PER_S));
}
END_TEST

/* Below where the dead ones were, so that it could be taken for a call within theirs. */
static void *pass_deep(void *argument) {
  volatile char below[1 << 16];
  below[0] = 0;
  void *result = pass_once(argument);
  return below[0] ? argument : result;
}

START_TEST(who_takes_a_dead_thread_s_slot_over_is_not_inside) {
  enum { DEAD = 40 }; /* so many slots that they are looked through */
  pthread_t thread;
  struct passer p = {.stream = NULL};
  gate_add(0);
  gate_open(0);
  for (int i = 0; i < DEAD; i++) {
    pthread_create(&thread, NULL, die_inside, NULL);
    pthread_join(thread, NULL);
  }
  ck_assert(gate_close(0, NS_PER_S));
  pthread_create(&p.thread, NULL, pass_deep, &p);
  while (gate_waiting(0) == 0 && !p.passed)
    suite_pause();
  ck_assert(!p.passed);
  gate_open(0);
  pthread_join(p.thread, NULL);
}
END_TEST

static void *hold_on(void *argument) {
  gate_enter(argument);
  atomic_fetch_add(&holding, 1);
  while (!atomic_load(&may_leave))
    suite_pause();
  gate_leave();
  return NULL;
}

/* Each of several threads has a slot of its own: the one that leaves does not speak for the others. */
START_TEST(without_memory_each_call_is_waited_for) {
  enum { STAYING = 3 };
  pthread_t threads[STAYING], brief;
  gate_add(0);
  gate_open(0);
  memory_is_out = true;
  for (int i = 0; i < STAYING; i++)
    pthread_create(&threads[i], NULL, hold_on, NULL);
  while (atomic_load(&holding) < STAYING)
    suite_pause();
  pthread_create(&brief, NULL, pass_once, &(struct passer){.stream = NULL});
  pthread_join(brief, NULL);
  ck_assert_uint_gt(refused, 0);
  ck_assert(!gate_close(0, NS_PER_S / 20));
  atomic_store(&may_leave, true);
  ck_assert(gate_close(0, UINT64_MAX));
  for (int i = 0; i < STAYING; i++)
    pthread_join(threads[i], NULL);
  memory_is_out = false;
}
END_TEST

/* More of them than there are slots kept for that: they wait, and pass once there is memory. */
START_TEST(without_memory_threads_wait_for_a_slot) {
  enum { MANY = 24 };
  struct passer last;
  pthread_t threads[MANY];
  gate_add(0);
  gate_open(0);
  memory_is_out = true;
  for (int i = 0; i < MANY; i++)
    pthread_create(&threads[i], NULL, hold_on, NULL);
  while (refused < 2 * MANY) /* those that wait have tried again */
    suite_pause();
  ck_assert_int_lt(atomic_load(&holding), MANY);
  passer_start(&last, NULL);
  ck_assert(!last.passed);
  memory_is_out = false;
  pthread_join(last.thread, NULL);
  atomic_store(&may_leave, true);
  for (int i = 0; i < MANY; i++)
    pthread_join(threads[i], NULL);
  ck_assert_int_eq(atomic_load(&holding), MANY);
  ck_assert(gate_close(0, UINT64_MAX));
}
END_TEST

START_TEST(a_forked_child_starts_afresh) {
  gate_add(0);
  gate_open(0);
  gate_enter(NULL);
  pid_t child = fork();
  if (child == 0) {
    gate_fork_child();
    _exit(!gate_in_flight() && gate_waiting(0) == 0 && !gate_is_used(0) && !gate_is_open(0) ? 0 : 1);
  }
  gate_leave();
  int status;
  waitpid(child, &status, 0);
  ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- calls that memory is taken away from ---- */

static _Atomic int again; /* 1: in flight, 2: entered again */

static void *fail_for_memory(void *unused) {
  uint64_t takes = 0;
  gate_enter(NULL);
  again = 1;
  while (again == 1)
    suite_pause();
  ck_assert(gate_enter_again(NULL, 0, &takes));
  again = 3;
  ck_assert(!gate_enter_again(NULL, 0, &takes)); /* it fails by itself */
  gate_leave();
  return unused;
}

START_TEST(a_call_that_fails_for_memory_is_made_again_once_that_is_back) {
  pthread_t thread;
  uint64_t takes = 0;
  gate_add(0);
  gate_open(0);
  gate_enter(NULL);
  ck_assert(!gate_enter_again(NULL, 0, &takes)); /* nothing was ever taken */
  gate_leave();
  again = 0;
  ck_assert_int_eq(pthread_create(&thread, NULL, fail_for_memory, NULL), 0);
  while (again == 0)
    suite_pause();
  ck_assert(!gate_close(0, NS_PER_MS)); /* it is in flight */
  gate_take();
  again = 2;
  while (gate_waiting(0) == 0)
    suite_pause();
  ck_assert(again == 2 && !gate_in_flight());
  gate_open(0);
  pthread_join(thread, NULL);
  ck_assert_int_eq(again, 3);
  ck_assert(!gate_in_flight());
}
END_TEST

/* ---- calls that wait in the driver for work, which is not stopped meanwhile ---- */

static void *forbid_stops(void *unused) {
  gate_await_work(0);
  gate_forbid_stop(0);
  again = 1;
  while (again == 1)
    suite_pause();
  gate_allow_stop();
  return unused;
}

/* Nor does it forbid anything before that work has finished; where work can't be stopped, nobody looks. */
START_TEST(stops_are_forbidden_once_the_work_is_done) {
  pthread_t thread;
  gate_add(0);
  gate_open(0);
  verdict = PREEMPT_YES;
  busy = true;
  again = 0;
  asked = let_on = 0;
  ck_assert_int_eq(pthread_create(&thread, NULL, forbid_stops, NULL), 0);
  while (asked < 3)
    suite_pause();
  ck_assert(again == 0 && !gate_stop_is_forbidden());
  is_stopped = true;
  unsigned before = asked + 1; /* it may be asking */
  for (int i = 0; i < 3; i++)
    clock_sleep(2 * NS_PER_MS);
  ck_assert_uint_le(asked, before);
  is_stopped = busy = false;
  while (again == 0)
    suite_pause();
  ck_assert(gate_stop_is_forbidden() && let_on == 1);
  again = 2;
  pthread_join(thread, NULL);
  verdict = PREEMPT_NO;
  before = asked;
  gate_await_work(0);
  ck_assert_uint_eq(asked, before);
}
END_TEST

/* Others submit all the time: it is not waited for ever. */
START_TEST(what_others_submit_is_not_awaited) {
  gate_add(0);
  gate_open(0);
  verdict = PREEMPT_YES;
  busy = submits = true;
  gate_await_work(0);
  busy = submits = false;
  verdict = PREEMPT_NO;
}
END_TEST

START_TEST(what_waits_for_work_waits_for_the_turn_in_which_it_goes_on) {
  pthread_t thread;
  gate_add(0);
  is_stopped = true;
  again = 0;
  ck_assert(!gate_stop_is_forbidden());
  ck_assert_int_eq(pthread_create(&thread, NULL, forbid_stops, NULL), 0);
  while (gate_waiting(0) == 0)
    suite_pause();
  ck_assert(again == 0 && !gate_stop_is_forbidden());
  is_stopped = false;
  gate_open(0);
  while (again == 0)
    suite_pause();
  ck_assert(gate_stop_is_forbidden());
  again = 2;
  pthread_join(thread, NULL);
  ck_assert(!gate_stop_is_forbidden());
}
END_TEST

static __attribute__((noinline)) void forbid_deeper(void) { gate_forbid_stop(0); }

/* Within a call that is in flight it can't wait for that. */
START_TEST(within_a_call_nothing_waits_for_a_turn) {
  gate_add(0);
  gate_open(0);
  gate_enter(NULL);
  is_stopped = true;
  gate_close(0, 0);
  forbid_deeper();
  ck_assert(gate_stop_is_forbidden());
  gate_allow_stop();
  gate_leave();
  is_stopped = false;
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gate");
  TCase *tests = tcase_create("gate");
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_set_timeout(tests, SUITE_LIMIT_S);
  tcase_add_test(tests, stops_are_forbidden_once_the_work_is_done);
  tcase_add_test(tests, what_others_submit_is_not_awaited);
  tcase_add_test(tests, a_call_that_fails_for_memory_is_made_again_once_that_is_back);
  tcase_add_test(tests, what_waits_for_work_waits_for_the_turn_in_which_it_goes_on);
  tcase_add_test(tests, within_a_call_nothing_waits_for_a_turn);
  tcase_add_test(tests, first_call_attaches_and_waits);
  tcase_add_test(tests, errno_survives_the_slow_path);
  tcase_add_test(tests, no_context_is_the_drivers_business);
  tcase_add_test(tests, each_device_has_its_gate);
  tcase_add_test(tests, calls_are_told_of_while_their_device_is_watched);
  tcase_add_loop_test(tests, a_call_passes_all_gates_that_it_needs, 0, 2);
  tcase_add_test(tests, a_pulse_of_one_gate_does_not_open_another);
  tcase_add_test(tests, linked_devices_need_both_gates);
  tcase_add_test(tests, capturing_streams_pass);
  tcase_add_test(tests, a_pulse_lets_each_waiter_pass_once);
  tcase_add_test(tests, a_revoked_pulse_lets_nobody_pass);
  tcase_add_test(tests, who_wakes_late_does_not_pass_by_a_revoked_pulse);
  tcase_add_test(tests, others_wait_while_a_thread_is_alone);
  tcase_add_test(tests, no_thread_is_alone_beside_a_call_in_flight);
  tcase_add_test(tests, a_call_goes_on_until_its_thread_leaves_it_or_ends);
  tcase_add_test(tests, where_membarrier_becomes_forbidden_calls_fence);
  tcase_add_test(tests, closing_waits_for_calls_in_flight);
  tcase_add_loop_test(tests, a_call_that_is_held_up_anywhere_does_not_slip_out, 0, 2);
  tcase_add_loop_test(tests, nothing_slips_out_after_closing, 0, 2);
  tcase_add_loop_test(tests, closing_sees_what_was_stored_before_the_barrier, 0, 3);
  tcase_add_test(tests, a_call_within_a_call_passes_and_leaves_the_outer_one_in_flight);
  tcase_add_test(tests, who_has_jumped_out_of_the_wait_does_not_wait);
  tcase_add_test(tests, who_was_cancelled_in_the_wait_does_not_wait);
  tcase_add_test(tests, a_call_that_was_left_by_a_jump_is_over_with_the_next_one);
  tcase_add_test(tests, other_waits_end_with_their_thread_or_an_opening);
  tcase_add_test(tests, a_thread_that_never_waited_needs_no_slot_for_its_end);
  tcase_add_test(tests, a_thread_that_died_inside_is_not_waited_for);
  tcase_add_test(tests, who_takes_a_dead_thread_s_slot_over_is_not_inside);
  tcase_add_test(tests, without_memory_each_call_is_waited_for);
  tcase_add_test(tests, without_memory_threads_wait_for_a_slot);
  tcase_add_test(tests, a_forked_child_starts_afresh);
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
