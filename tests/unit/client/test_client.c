/* test_client.c - the client where there is no worker: no thread can be started in this process. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "client/client.h"
#include "client/client_state.h"
#include "common/clock.h"

#define played_assert ck_assert
#include "played_library.h"

int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                          void *argument) {
  (void)thread, (void)attributes, (void)body, (void)argument;
  return EAGAIN;
}

static void set_up(void) {
  gate_used = gate_opened = false;
  away_steps = short_steps = steps = waits = 0;
  locked = false;
  verdict = PREEMPT_NO;
  stops = trials = 0;
  endless = stands_still = false;
}

static void tear_down(void) {}

START_TEST(without_a_worker_the_gate_opens_at_once) {
  client_attach(0);
  ck_assert(gate_used && gate_opened);
  ck_assert_uint_eq(steps, 0);
  ck_assert_uint_eq(client_room_bytes(0), UINT64_MAX);
}
END_TEST

START_TEST(a_wait_for_room_is_prepared_without_the_lock) {
  waits_prepared = 0;
  client_attach(0);
  client_room_wait(0, 1);
  ck_assert_uint_eq(waits_prepared, 1);
  ck_assert(client_room_await(0, 1, UINT64_MAX));
  ck_assert_uint_eq(waits_prepared, 2);
}
END_TEST

/* A program may allocate before it is known that there is no worker. */
START_TEST(without_a_worker_memory_comes_before_the_gate_opens) {
  away_steps = 3;
  short_steps = 2;
  client_attach(0);
  ck_assert(gate_opened);
  ck_assert_uint_eq(steps_at_open, 5);
}
END_TEST

START_TEST(without_a_worker_what_never_comes_is_given_up) {
  refuses = true;
  client_attach(0);
  ck_assert(gate_opened && !refuses);
}
END_TEST

static void hear_played(struct gpu *gpu, enum gs_msg_type type) {
  struct gs_msg msg = wire_msg(type, 0);
  client_hear(gpu, &msg);
}

/* The thread that hears the daemon has others to listen for. */
START_TEST(a_grant_never_waits_for_the_memory) {
  struct gpu *gpu = client_gpu(0);
  locked = true;
  lock_take(&client.lock);
  client_attach_device(gpu, 0);
  hear_played(gpu, GS_LOCK_OK);
  ck_assert(!gate_opened && gpu->machine.grant_pending); /* for the worker */
  locked = gpu->machine.grant_pending = false;
  hear_played(gpu, GS_LOCK_OK);
  ck_assert(gate_opened && !gpu->machine.grant_pending);
  lock_release(&client.lock);
  ck_assert_uint_eq(waits, 0);
}
END_TEST

/* The target is what the daemon knew of. */
START_TEST(what_was_allocated_just_before_the_grant_must_be_there_too) {
  struct machine machine = {
      .room_bound = true, .room_seq = 1, .room_bytes = 100, .target_bytes = 10, .has.total_bytes = 60};
  ck_assert_uint_eq(machine_enough_bytes(&machine), 60);
  machine.has.total_bytes = 200; /* as far as there is room */
  ck_assert_uint_eq(machine_enough_bytes(&machine), 100);
  machine.has.total_bytes = 5;
  ck_assert_uint_eq(machine_enough_bytes(&machine), 10);
}
END_TEST

/* ---- threads of the program, which may be cancelled, and fork in signal handlers ---- */

static _Atomic int stage;

static void *be_cancelled_with_the_lock(void *unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  lock_take(&client.lock);
  stage = 1;
  while (stage == 1)
    suite_pause();
  stage = 3;
  lock_release(&client.lock);
  for (;;)
    pause();
  return unused;
}

/* The wrapper of this test's pthread_create starts no threads. */
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Not by its result: this is NULL where a C library cancels at the moment at which it may again. */
static void check_cancelled(pthread_t thread) {
  pthread_join(thread, NULL);
  ck_assert(lock_try(&client.lock));
  lock_release(&client.lock);
}

START_TEST(nobody_is_cancelled_with_a_lock) {
  pthread_t thread;
  stage = 0;
  __real_pthread_create(&thread, NULL, be_cancelled_with_the_lock, NULL);
  while (stage != 1)
    suite_pause();
  pthread_cancel(thread);
  stage = 2;
  check_cancelled(thread);
  ck_assert_int_eq(stage, 3);
}
END_TEST

static void *be_cancelled_in_a_wait(void *unused) {
  lock_take(&client.lock);
  while (stage < 2) {
    stage = 1;
    condition_wait(&client.memory_changed, &client.lock, UINT64_MAX);
  }
  stage = 3;
  lock_release(&client.lock);
  for (;;)
    pthread_testcancel();
  return unused;
}

START_TEST(a_wait_is_no_cancellation_point) {
  pthread_t thread;
  stage = 0;
  __real_pthread_create(&thread, NULL, be_cancelled_in_a_wait, NULL);
  while (stage != 1)
    suite_pause();
  pthread_cancel(thread);
  lock_take(&client.lock);
  stage = 2;
  condition_wake_all(&client.memory_changed);
  lock_release(&client.lock);
  check_cancelled(thread);
  ck_assert_int_eq(stage, 3);
}
END_TEST

START_TEST(a_wait_has_a_deadline) {
  lock_take(&client.lock);
  ck_assert(!condition_wait(&client.memory_changed, &client.lock, 1));
  while (condition_wait(&client.memory_changed, &client.lock, clock_now_ns() + NS_PER_MS))
    ;
  lock_release(&client.lock);
}
END_TEST

static sigjmp_buf out;
static void jump(int number) {
  (void)number;
  siglongjmp(out, 1);
}

static void *jump_out_of_a_wait(void *unused) {
  if (sigsetjmp(out, 1) == 0) {
    lock_take(&client.lock);
    stage = 1;
    for (;;)
      condition_wait(&client.memory_changed, &client.lock, UINT64_MAX);
  }
  stage = 3;
  lock_take(&client.lock); /* nothing is left behind: neither the lock nor that there is no cancellation */
  lock_release(&client.lock);
  stage = 4;
  for (;;)
    pause();
  return unused;
}

/* gcc's thread sanitizer runs a handler at the end of a call that it knows: that which has taken the lock. */
#ifdef __SANITIZE_THREAD__
enum { HANDLERS_ARE_LATE = true };
#else
enum { HANDLERS_ARE_LATE = false };
#endif

START_TEST(a_wait_may_be_left_by_a_jump) {
  pthread_t thread;
  if (HANDLERS_ARE_LATE)
    return;
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump}, NULL);
  stage = 0;
  __real_pthread_create(&thread, NULL, jump_out_of_a_wait, NULL);
  while (stage != 1)
    suite_pause();
  lock_take(&client.lock); /* so it waits, or is about to, without the lock */
  pthread_kill(thread, SIGUSR1);
  while (stage != 3)
    suite_pause();
  lock_release(&client.lock);
  while (stage != 4)
    suite_pause();
  pthread_cancel(thread);
  check_cancelled(thread);
}
END_TEST

/* ---- a question to the daemon, which lets it wait; where the process has been connected ---- */

static struct gpu *connect_played(void) {
  struct gpu *gpu = client_gpu(0);
  lock_take(&client.lock);
  client.started = client.connected = gpu->used = gpu->machine.attached = true;
  lock_release(&client.lock);
  return gpu;
}

static void *ask_for(void *bytes) {
  static _Atomic uint64_t seen_ns;
  if (sigsetjmp(out, 1) == 0)
    stage = client_memory_request(0, (uintptr_t)bytes, 0, false, &seen_ns);
  else {
    stage = 2;
    stage = client_memory_request(0, (uintptr_t)bytes + 1, 0, false, &seen_ns);
  }
  return NULL;
}

static void wait_until_told(const struct gpu *gpu, uint64_t bytes) {
  for (uint64_t told = 0; told != bytes; suite_pause()) {
    lock_take(&client.lock);
    told = gpu->machine.has.told_bytes;
    lock_release(&client.lock);
  }
}

static void answer_played(struct gpu *gpu, bool awaited) {
  lock_take(&client.lock);
  gpu->machine.memory_awaited = awaited;
  gpu->machine.memory_answered = !awaited;
  gpu->machine.memory_status = awaited ? -EAGAIN : 0;
  condition_wake_all(&client.memory_changed);
  lock_release(&client.lock);
}

START_TEST(a_question_left_by_a_jump_is_void) {
  pthread_t thread;
  struct gpu *gpu = connect_played();
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump}, NULL);
  stage = 1;
  __real_pthread_create(&thread, NULL, ask_for, (void *)(uintptr_t)100);
  wait_until_told(gpu, 100);
  answer_played(gpu, true);
  lock_take(&client.lock); /* so it waits without the lock */
  pthread_kill(thread, SIGUSR1);
  while (stage != 2)
    suite_pause();
  lock_release(&client.lock);
  wait_until_told(gpu, 101); /* it asks again */
  answer_played(gpu, false);
  pthread_join(thread, NULL);
  ck_assert_int_eq(stage, 0);
  ck_assert(!gpu->machine.memory_asking);
}
END_TEST

START_TEST(who_still_waits_hears_of_a_later_question) {
  pthread_t thread;
  struct gpu *gpu = connect_played();
  stage = 1;
  __real_pthread_create(&thread, NULL, ask_for, (void *)(uintptr_t)100);
  wait_until_told(gpu, 100);
  answer_played(gpu, true);
  client_memory_report(0, 50, 0);
  pthread_join(thread, NULL);
  ck_assert_int_eq(stage, -EINTR);
  ck_assert(!gpu->machine.memory_asking);
  ck_assert_uint_eq(gpu->machine.has.total_bytes, 50);
}
END_TEST

/* ---- the end of a turn, at any time of a connection ---- */

static unsigned told_released, told_states;
static uint32_t told_flags;

void __wrap_post_send(const struct gs_msg *msg);
void __wrap_post_send(const struct gs_msg *msg) {
  told_released += msg->type == GS_LOCK_RELEASED;
  told_states += msg->type == GS_CLIENT_STATE;
  told_flags = msg->type == GS_CLIENT_STATE ? msg->state.flags : told_flags;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode) {
  return mode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The worker gives the lock back, which the program has held since before this connection. */
static void give_back_played(struct gpu *gpu) {
  pthread_t thread;
  bool holds = true;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  lock_take(&client.lock);
  gpu->machine.holding = true;
  client_order(gpu, machine_order_drop);
  lock_release(&client.lock);
  ck_assert_int_eq(__real_pthread_create(&thread, NULL, worker_run, gpu), 0);
  for (; holds; suite_pause()) {
    lock_take(&client.lock);
    holds = gpu->machine.holding || gpu->machine.drop_pending;
    lock_release(&client.lock);
  }
}

START_TEST(what_is_given_back_is_told) {
  give_back_played(connect_played());
  ck_assert_uint_eq(told_released, 1);
}
END_TEST

/* A gate that is open, and work behind it that has an end or has none. */
static struct gpu *run_played(bool has_no_end) {
  struct gpu *gpu = connect_played();
  verdict = PREEMPT_YES;
  endless = has_no_end;
  gate_opened = true;
  return gpu;
}

START_TEST(what_ends_at_once_is_not_stopped) {
  struct gpu *gpu = run_played(false);
  give_back_played(gpu);
  ck_assert_uint_eq(told_released, 1);
  ck_assert(!stops && !gpu->stopped && !gate_opened);
}
END_TEST

/* The lock is asked for again, as there is work to do; and the work goes on before the gate opens. */
START_TEST(what_does_not_end_is_stopped_until_the_next_grant) {
  struct gpu *gpu = run_played(true);
  give_back_played(gpu);
  ck_assert_uint_eq(told_released, 1);
  ck_assert(stops == 1 && stands_still && !gate_opened);
  lock_take(&client.lock);
  ck_assert(gpu->stopped && client_is_stopped(0) && gpu->machine.requested);
  hear_played(gpu, GS_LOCK_OK); /* not here: a go takes its time */
  ck_assert(!gate_opened && gpu->machine.grant_pending);
  for (bool open = false; !open; suite_pause()) {
    lock_release(&client.lock);
    lock_take(&client.lock);
    open = gate_opened;
  }
  ck_assert(!stands_still && !gpu->stopped && !client_is_stopped(0));
  lock_release(&client.lock);
}
END_TEST

START_TEST(it_is_tried_some_times_whether_work_can_be_stopped) {
  struct gpu *gpu = connect_played();
  pthread_t thread;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  verdict = PREEMPT_UNKNOWN; /* and stays so */
  ck_assert_int_eq(__real_pthread_create(&thread, NULL, worker_run, gpu), 0);
  lock_take(&client.lock); /* it has been granted before there is a context */
  hear_played(gpu, GS_LOCK_OK);
  ck_assert(gate_opened && trials == 0);
  lock_release(&client.lock);
  client_context_added(0);
  while (trials == 0)
    suite_pause();
  for (unsigned grant = 2; grant < 6; grant++) {
    gate_opened = false;
    lock_take(&client.lock);
    hear_played(gpu, GS_LOCK_OK);
    for (; !gate_opened; suite_pause()) {
      lock_release(&client.lock);
      lock_take(&client.lock);
    }
    lock_release(&client.lock);
    ck_assert_uint_eq(trials, grant < 3 ? grant : 3);
  }
}
END_TEST

static void await_slice(struct gpu *gpu, uint32_t us) {
  unsigned before = slicings;
  lock_take(&client.lock);
  gpu->slice_us = us;
  condition_wake_all(&gpu->changed);
  for (; slicings == before; suite_pause()) {
    lock_release(&client.lock);
    lock_take(&client.lock);
  }
  lock_release(&client.lock);
  ck_assert_uint_eq(sliced_us, us);
}

START_TEST(work_has_the_slices_that_it_is_told) {
  struct gpu *gpu = connect_played();
  pthread_t thread;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  verdict = PREEMPT_YES;
  ck_assert_int_eq(__real_pthread_create(&thread, NULL, worker_run, gpu), 0);
  await_slice(gpu, 8192);
  await_slice(gpu, 20);
  await_slice(gpu, 0); /* as the driver has them */
}
END_TEST

static void await_told(const struct gpu *gpu, uint32_t flags) {
  lock_take(&client.lock);
  for (; told_flags != flags; suite_pause()) {
    lock_release(&client.lock);
    lock_take(&client.lock);
  }
  ck_assert_uint_eq(gpu->told_abilities, flags);
  lock_release(&client.lock);
}

/* The daemon relies on slices, and tells people what can be stopped. */
START_TEST(what_can_be_done_with_the_work_is_told_whenever_it_changes) {
  struct gpu *gpu = connect_played();
  pthread_t thread;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  verdict = PREEMPT_YES;
  ck_assert_int_eq(__real_pthread_create(&thread, NULL, worker_run, gpu), 0);
  await_told(gpu, GS_STATE_PREEMPTS | GS_STATE_SLICES | GS_STATE_OWN_CONTEXT);
  slices_refused = true;
  await_slice(gpu, 20);
  await_told(gpu, GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT);
  lock_take(&client.lock);
  verdict = PREEMPT_NO; /* a stop has been refused */
  condition_wake_all(&gpu->changed);
  lock_release(&client.lock);
  await_told(gpu, GS_STATE_OWN_CONTEXT);
  lock_take(&client.lock); /* a new connection's daemon knows nothing */
  ck_assert_uint_eq(told_states, 3);
  hear_played(gpu, GS_ATTACHED);
  ck_assert_uint_eq(told_states, 4);
  lock_release(&client.lock);
}
END_TEST

/* A daemon would end the connection. One that was told that the program holds hears of it once it answers. */
/* The worker sleeps meanwhile. */
START_TEST(a_share_is_obeyed_from_the_grant_on) {
  struct gpu *gpu = connect_played();
  pthread_t thread;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  verdict = PREEMPT_YES;
  lock_take(&client.lock);
  share_take(gpu, 0);
  lock_release(&client.lock);
  ck_assert_int_eq(__real_pthread_create(&thread, NULL, worker_run, gpu), 0);
  clock_sleep(20 * NS_PER_MS);
  ck_assert_uint_eq(stops, 0);
  lock_take(&client.lock);
  hear_played(gpu, GS_LOCK_OK);
  ck_assert(gate_opened);
  lock_release(&client.lock);
  while (stops == 0)
    suite_pause();
}
END_TEST

START_TEST(nothing_is_told_of_a_gpu_that_is_not_attached) {
  struct gpu *gpu = connect_played();
  gpu->machine.attached = false;
  give_back_played(gpu);
  ck_assert_uint_eq(told_released, 0);
  lock_take(&client.lock);
  gpu->machine.attached = true;
  hear_played(gpu, GS_ATTACHED);
  ck_assert_uint_eq(told_released, 0);
  gpu->machine.told_running = true;
  hear_played(gpu, GS_ATTACHED);
  ck_assert_uint_eq(told_released, 1);
  gpu->machine.holding = true;
  hear_played(gpu, GS_ATTACHED);
  lock_release(&client.lock);
  ck_assert_uint_eq(told_released, 1);
}
END_TEST

static int fork_status;
static void fork_in_handler(int number) {
  (void)number;
  client_fork_prepare();
  pid_t child = fork();
  if (child == 0) {
    lock_fork_child();
    client_fork_child();
    lock_take(&client.lock);
    _exit(client.connected ? 1 : 0);
  }
  client_fork_parent();
  waitpid(child, &fork_status, 0);
}

static void check_fork_over(struct lock *lock) {
  lock_take(lock);
  fork_status = -1;
  raise(SIGUSR1);
  ck_assert_int_eq(fork_status, 0);
  ck_assert_int_eq(pthread_mutex_trylock(&lock->mutex), EBUSY); /* it is still held */
  lock_release(lock);
  ck_assert(lock_try(&client.lock));
  lock_release(&client.lock);
  ck_assert(!lock_is_inside());
}

START_TEST(memory_knows_of_a_fork) {
  client_fork_prepare();
  ck_assert_int_eq(forks_prepared, 1);
  client_fork_parent();
  ck_assert_int_eq(forks_prepared, 0);
}
END_TEST

/* Also where another thread holds this one, and waits for that one. */
START_TEST(a_signal_handler_may_fork_over_a_lock) {
  static struct lock another = LOCK(LOCK_CHANNELS);
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = fork_in_handler}, NULL);
  check_fork_over(&client.lock);
  check_fork_over(&another);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {nobody_is_cancelled_with_a_lock,
                                a_wait_is_no_cancellation_point,
                                a_wait_has_a_deadline,
                                a_wait_may_be_left_by_a_jump,
                                a_question_left_by_a_jump_is_void,
                                who_still_waits_hears_of_a_later_question,
                                what_is_given_back_is_told,
                                what_ends_at_once_is_not_stopped,
                                what_does_not_end_is_stopped_until_the_next_grant,
                                work_has_the_slices_that_it_is_told,
                                what_can_be_done_with_the_work_is_told_whenever_it_changes,
                                it_is_tried_some_times_whether_work_can_be_stopped,
                                a_share_is_obeyed_from_the_grant_on,
                                nothing_is_told_of_a_gpu_that_is_not_attached,
                                memory_knows_of_a_fork,
                                a_signal_handler_may_fork_over_a_lock,
                                what_was_allocated_just_before_the_grant_must_be_there_too,
                                without_a_worker_the_gate_opens_at_once,
                                without_a_worker_memory_comes_before_the_gate_opens,
                                without_a_worker_what_never_comes_is_given_up,
                                a_wait_for_room_is_prepared_without_the_lock,

                                a_grant_never_waits_for_the_memory,
                                NULL};
  return suite_main("client", tests, set_up, tear_down);
}
