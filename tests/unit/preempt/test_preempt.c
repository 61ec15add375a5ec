/* test_preempt.c - which channels are known, and what is sent for them. */
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "played_rm.h"

static void begin_by(const char *path) {
  pthread_t thread;
  open_libcuda(path);
  open_gpu(CLIENT, 0);
  open_gpu(CLIENT, 1);
  open_gpu(OTHER_CLIENT, 0); /* the last one is not the one that has the channels */
  ck_assert_int_eq(pthread_create(&thread, NULL, gpu_main, NULL), 0);
}

static void set_up(void) { begin_by(LIBCUDA_NOW); }

static unsigned channels_on(unsigned gpu) {
  struct channels_count count = channels_count(gpu);
  return count.compute_channels + count.other_channels;
}

/* On a machine that is busy, the played GPU may come too late to tell. */
static void try_device(int device) {
  for (uint64_t end_ns = clock_now_ns() + 30 * NS_PER_S; preempt_try(device) == -EAGAIN;)
    ck_assert(clock_now_ns() < end_ns);
}

static void try_it(void) { try_device(0); }

static void begin_able(void) {
  make_context(0, 100);
  try_it();
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_YES);
  ck_assert_uint_eq(count_stopped(), 0);
  stop_calls = go_calls = 0;
}

/* ---- channels ---- */

START_TEST(each_gpu_has_its_channels) {
  make_context(0, 100);
  make_context(0, 200);
  make_context(1, 300);
  struct channels_count count = channels_count(0);
  ck_assert_uint_eq(count.compute_groups, 2);
  ck_assert_uint_eq(count.other_groups, 6);
  ck_assert_uint_eq(count.compute_channels, 16);
  ck_assert_uint_eq(count.other_channels, 24);
  ck_assert_uint_eq(channels_on(1), 20);
  ck_assert(channels_are_known());
}
END_TEST

START_TEST(what_is_freed_is_gone) {
  make_context(0, 100);
  release(CLIENT, 101);
  ck_assert_uint_eq(channels_on(0), 19);
  release(CLIENT, 109); /* a group, and its four */
  ck_assert_uint_eq(channels_on(0), 15);
  make_context(1, 300);
  release(CLIENT, DEVICE + 1);
  ck_assert_uint_eq(channels_on(1), 0);
  ck_assert_uint_eq(channels_on(0), 15);
  release(OTHER_CLIENT, OTHER_CLIENT);
  ck_assert_uint_eq(channels_on(0), 15);
  release(CLIENT, CLIENT);
  ck_assert_uint_eq(channels_on(0), 0);
  ck_assert(channels_are_known());
}
END_TEST

static void make_again(void) {
  during_free = NULL;
  make_context(0, 100);
}

/* The handles of what is being freed are given to another thread before the first one knows. */
START_TEST(a_free_takes_nothing_younger) {
  make_context(0, 100);
  release(CLIENT, 109);
  release(CLIENT, 114);
  release(CLIENT, 119);
  during_free = make_again;
  release(CLIENT, 100);
  ck_assert_uint_eq(channels_on(0), 20);
}
END_TEST

START_TEST(what_fails_is_not_noted) {
  alloc_status = 0x1A;
  make_context(0, 100);
  ck_assert_uint_eq(channels_on(0), 0);
  alloc_status = 0;
  make_context(0, 100);
  free_status = 0x17;
  free_context(100);
  ck_assert_uint_eq(channels_on(0), 20);
  ck_assert(channels_are_known());
}
END_TEST

START_TEST(many_contexts_come_and_go) {
  for (uint32_t i = 0; i < 2000; i++) {
    make_context(0, 100 + 24 * (i % 10));
    if (i >= 9)
      free_context(100 + 24 * ((i + 1) % 10));
  }
  ck_assert_uint_eq(channels_on(0), 180);
  ck_assert(channels_are_known());
}
END_TEST

START_TEST(an_unknown_parent_is_a_doubt) {
  allocate(CLIENT, 0xBAD, 500, RM_GROUP, 1);
  ck_assert(!channels_are_known());
}
END_TEST

START_TEST(a_channel_that_nothing_steers_is_a_doubt) {
  allocate(CLIENT, CLIENT, DEVICE + 2, RM_DEVICE, 2);
  make_context(2, 400);
  ck_assert(!channels_are_known());
}
END_TEST

START_TEST(a_gpu_without_a_number_is_a_doubt) {
  open_gpu(CLIENT, CHANNELS_GPUS);
  ck_assert(!channels_are_known());
}
END_TEST

START_TEST(another_layout_is_a_doubt) {
  char alloc[40] = {0};
  call(RM_ALLOC, alloc, sizeof alloc);
  ck_assert(!channels_are_known());
}
END_TEST

START_TEST(too_many_are_a_doubt) {
  for (uint32_t i = 0; i < 400; i++)
    make_context(0, 100 + 24 * i);
  ck_assert(!channels_are_known());
}
END_TEST

START_TEST(the_shorter_layout_is_known) {
  uint32_t parameters[8] = {0, 0, 0, 1};
  struct rm_alloc_short alloc = {.client = CLIENT,
                                 .parent = DEVICE,
                                 .handle = 100,
                                 .class = RM_GROUP,
                                 .parameters = (uintptr_t)parameters};
  call(RM_ALLOC, &alloc, sizeof alloc);
  ck_assert_uint_eq(channels_count(0).compute_groups, 1);
}
END_TEST

/* Only the library's slot leads to us. */
START_TEST(the_programs_own_calls_pass_by) {
  struct rm_alloc alloc = {.client = CLIENT, .parent = DEVICE, .handle = 100, .class = RM_GROUP};
  ioctl(FD, RM_REQUEST(RM_ALLOC, sizeof alloc), &alloc);
  ck_assert_uint_eq(channels_count(0).other_groups, 0);
  ck_assert_int_eq(libcuda_call(FD + 1, 0x5401, NULL), -1);
  ck_assert_int_eq(errno, ENOTTY);
}
END_TEST

/* ---- stop and go ---- */

START_TEST(all_channels_stop_and_go_on) {
  begin_able();
  make_context(0, 200);
  make_context(1, 300);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_uint_eq(count_stopped(), 40);
  ck_assert(!stopped[301]);
  ck_assert(preempt_channels(0).stopped);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_uint_eq(count_stopped(), 40);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(count_stopped(), 0);
  unsigned before = calls;
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(calls, before);
}
END_TEST

START_TEST(a_device_is_its_gpu) {
  make_context(0, 100);
  make_context(1, 300);
  try_device(1);
  ck_assert_int_eq(preempt_stop(1), 0);
  ck_assert_int_eq(preempt_stop(0), -EAGAIN);
  ck_assert(stopped[301] && !stopped[101]);
  ck_assert_int_eq(preempt_try(2), -EAGAIN); /* libcuda has nothing there */
  ck_assert_int_eq(preempt_verdict(GS_GPUS_PER_CLIENT), PREEMPT_NO);
}
END_TEST

START_TEST(more_than_a_list) {
  begin_able();
  for (uint32_t i = 1; i < 8; i++)
    make_context(0, 100 + 24 * i);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_uint_eq(count_stopped(), 160);
  ck_assert_uint_eq(longest_list, 64);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(count_stopped(), 0);
}
END_TEST

START_TEST(nothing_before_a_verdict) {
  make_context(0, 100);
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_UNKNOWN);
  ck_assert_int_eq(preempt_stop(0), -EAGAIN);
  ck_assert_int_eq(preempt_slice(0, 100), -EAGAIN);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(stop_calls, 0);
}
END_TEST

START_TEST(a_gpu_that_is_away_tells_nothing) {
  gpu_is_away = true;
  make_context(0, 100);
  ck_assert_int_eq(preempt_try(0), -EAGAIN);
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_UNKNOWN);
  ck_assert_uint_eq(stop_calls, 0);
  gpu_is_away = false;
  try_it();
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_YES);
}
END_TEST

static void expect_no(int error) {
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_NO);
  ck_assert_int_eq(preempt_stop(0), -ENOTSUP);
  ck_assert_int_eq(preempt_channels(0).error, error);
  ck_assert_uint_eq(count_stopped(), 0);
  ck_assert(!preempt_channels(0).stopped);
}

static uint32_t refuse_stops(const struct rm_stop_channels *list) {
  return list->stop ? RM_BAD_PARAMETERS : RM_OK;
}

START_TEST(a_refusal_is_a_no) {
  answer = refuse_stops;
  make_context(0, 100);
  try_it();
  expect_no(RM_BAD_PARAMETERS);
}
END_TEST

START_TEST(accepted_and_ignored_is_a_no) {
  gpu_ignores_stops = true;
  make_context(0, 100);
  try_it();
  expect_no(-EPROTO);
}
END_TEST

/* What has been stopped until then goes on. */
static uint32_t refuse_second_list(const struct rm_stop_channels *list) {
  return list->stop && stop_calls == 2 ? RM_BUSY : RM_OK;
}

START_TEST(a_later_surprise_lets_all_on) {
  begin_able();
  for (uint32_t i = 1; i < 8; i++)
    make_context(0, 100 + 24 * i);
  answer = refuse_second_list;
  ck_assert_int_eq(preempt_stop(0), -ENOTSUP);
  expect_no(RM_BUSY);
}
END_TEST

START_TEST(a_doubt_is_a_no) {
  begin_able();
  ck_assert_int_eq(preempt_stop(0), 0);
  allocate(CLIENT, 0xBAD, 500, RM_GROUP, 1);
  ck_assert_int_eq(preempt_stop(0), -ENOTSUP);
  expect_no(-ENODATA);
}
END_TEST

/* One has been freed by the driver, and the thread that frees it has not noted that yet. */
static _Atomic bool freed_late;
static void *free_late(void *unused) {
  (void)unused;
  clock_sleep(5 * NS_PER_MS);
  freed_late = true;
  release(CLIENT, 105);
  return NULL;
}
static uint32_t miss_one(const struct rm_stop_channels *list) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->channels[i] == 105)
      return RM_NOT_FOUND;
  return RM_OK;
}

START_TEST(a_freed_channel_is_no_surprise) {
  pthread_t thread;
  begin_able();
  answer = miss_one;
  ck_assert_int_eq(pthread_create(&thread, NULL, free_late, NULL), 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert(freed_late);
  ck_assert_uint_eq(count_stopped(), 19);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(count_stopped(), 0);
  pthread_join(thread, NULL);
}
END_TEST

/* None stays behind for the sake of one that can't be let on. */
static uint32_t refuse_one_go(const struct rm_stop_channels *list) {
  for (uint32_t i = 0; i < list->count && !list->stop; i++)
    if (list->channels[i] == 105)
      return RM_BUSY;
  return RM_OK;
}

START_TEST(all_go_on_that_can) {
  begin_able();
  answer = refuse_one_go;
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_int_eq(preempt_go(0), -ENOTSUP);
  ck_assert_uint_eq(count_stopped(), 1);
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_NO);
}
END_TEST

/* ---- what comes meanwhile ---- */

START_TEST(a_context_made_while_stopped_is_stopped) {
  begin_able();
  ck_assert_int_eq(preempt_stop(0), 0);
  make_context(0, 200);
  make_context(1, 300);
  ck_assert_uint_eq(count_stopped(), 40);
  ck_assert_uint_eq(last_subdevice, SUBDEVICE);
  free_context(100);
  for (unsigned i = 100; i < 124; i++)
    stopped[i] = false;
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(count_stopped(), 0);
  make_context(0, 400);
  ck_assert_uint_eq(count_stopped(), 0);
}
END_TEST

/* What others have stopped, and may have taken the memory of, stays stopped until they let it on. */
START_TEST(a_context_that_cannot_be_stopped_lets_nothing_else_on) {
  begin_able();
  ck_assert_int_eq(preempt_stop(0), 0);
  answer = refuse_stops;
  make_context(0, 200);
  ck_assert_uint_eq(count_stopped(), 20);
  preempt_making(true);
  make_context(0, 300);
  preempt_making(false);
  ck_assert_uint_eq(count_stopped(), 20);
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_NO);
  ck_assert_int_eq(preempt_go(0), 0);
  expect_no(RM_BAD_PARAMETERS);
}
END_TEST

static void *go_elsewhere(void *unused) {
  (void)unused;
  ck_assert_int_eq(preempt_go(0), 0);
  return NULL;
}

/* Another thread lets the GPU on while this one stops what has come. */
static pthread_t overtaker;
static uint32_t overtake(const struct rm_stop_channels *list) {
  if (list->stop && list->channels[0] == 201) {
    answer = NULL;
    ck_assert_int_eq(pthread_create(&overtaker, NULL, go_elsewhere, NULL), 0);
    clock_sleep(5 * NS_PER_MS); /* a chance to come first */
  }
  return RM_OK;
}

START_TEST(a_go_is_not_overtaken_by_a_stop) {
  begin_able();
  ck_assert_int_eq(preempt_stop(0), 0);
  answer = overtake;
  make_context(0, 200);
  pthread_join(overtaker, NULL);
  ck_assert_uint_eq(count_stopped(), 0);
  ck_assert(!preempt_channels(0).stopped);
}
END_TEST

/* A signal comes within a stop, or a slice, of new channels, and its handler jumps out of the driver's call.
 */
static sigjmp_buf before_call;
static void jump_out(int unused) {
  (void)unused;
  siglongjmp(before_call, 1);
}
static uint32_t signal_in_stop(const struct rm_stop_channels *list) {
  if (list->stop)
    raise(SIGUSR1);
  return RM_OK;
}
static uint32_t signal_in_slice(uint64_t us) {
  if (us == 100)
    raise(SIGUSR1);
  return RM_OK;
}

static void make_context_and_jump(void) {
  pthread_t thread;
  signal(SIGUSR1, jump_out);
  if (sigsetjmp(before_call, 1) == 0) {
    make_context(0, 200);
    ck_abort_msg("no signal has come");
  }
  answer = NULL;
  slice_answer = NULL;
  ck_assert_int_eq(pthread_create(&thread, NULL, go_elsewhere, NULL), 0);
  pthread_join(thread, NULL);
  ck_assert_int_eq(preempt_slice(0, 0), 0);
  ck_assert_uint_eq(count_stopped(), 0);
}

START_TEST(a_jump_out_of_a_stop_leaves_no_lock) {
  begin_able();
  ck_assert_int_eq(preempt_stop(0), 0);
  answer = signal_in_stop;
  make_context_and_jump();
}
END_TEST

START_TEST(a_jump_out_of_a_slice_leaves_no_lock) {
  begin_able();
  ck_assert_int_eq(preempt_slice(0, 100), 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  slice_answer = signal_in_slice;
  make_context_and_jump();
}
END_TEST

/* Nothing is sent for a channel that is as it shall be, and for none twice. */
static uint32_t refuse_again(const struct rm_stop_channels *list) {
  for (uint32_t i = 0; i < list->count; i++) {
    ck_assert(stopped[list->channels[i]] != list->stop);
    for (uint32_t j = 0; j < i; j++)
      ck_assert(list->channels[j] != list->channels[i]);
  }
  return RM_OK;
}

START_TEST(nothing_is_stopped_twice) {
  begin_able();
  answer = refuse_again;
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  preempt_making(true);
  preempt_making(false);
  ck_assert_uint_eq(stop_calls, 1);
  make_context(0, 200);
  ck_assert_uint_eq(count_stopped(), 40);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(go_calls, 1);
  ck_assert_uint_eq(count_stopped(), 0);
}
END_TEST

/* A stop comes between the making of channels and their first schedule. */
START_TEST(what_is_scheduled_is_stopped_anew) {
  begin_able();
  allocate(CLIENT, DEVICE, 200, RM_GROUP, RM_ENGINE_COMPUTE);
  allocate(CLIENT, 200, 201, 0xC86F, 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_uint_eq(count_stopped(), 21);
  control(CLIENT, 200, RM_SCHEDULE_GROUP, 1);
  ck_assert_uint_eq(count_stopped(), 21);
  preempt_making(true);
  control(CLIENT, 200, RM_SCHEDULE_GROUP, 1);
  preempt_making(false);
  ck_assert_uint_eq(count_stopped(), 21);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(count_stopped(), 0);
}
END_TEST

/* A handle is given anew before its free is known. */
START_TEST(of_two_with_one_handle_none_is_forgotten) {
  begin_able();
  answer = refuse_again;
  allocate(CLIENT, 100, 101, 0xC86F, 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_uint_eq(count_stopped(), 20);
  ck_assert_int_eq(preempt_go(0), 0);
  ck_assert_uint_eq(count_stopped(), 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_uint_eq(count_stopped(), 20);
}
END_TEST

/* While a control is under way, other threads allocate, free, and ask. */
static void *allocate_elsewhere(void *unused) {
  (void)unused;
  make_context(1, 300);
  free_context(300);
  preempt_channels(0);
  return NULL;
}
static uint32_t need_locks(const struct rm_stop_channels *list) {
  pthread_t thread;
  (void)list;
  ck_assert_int_eq(pthread_create(&thread, NULL, allocate_elsewhere, NULL), 0);
  pthread_join(thread, NULL);
  return RM_OK;
}

START_TEST(no_lock_is_held_over_a_control) {
  begin_able();
  answer = need_locks;
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_int_eq(preempt_go(0), 0);
}
END_TEST

static void *churn(void *unused) {
  (void)unused;
  for (uint32_t i = 0; i < 300; i++) {
    make_context(0, 1000);
    free_context(1000);
    for (unsigned c = 1000; c < 1024; c++)
      stopped[c] = false; /* what has gone is not stopped */
  }
  make_context(0, 2000);
  return NULL;
}

START_TEST(contexts_come_and_go_under_stops) {
  pthread_t thread;
  begin_able();
  ck_assert_int_eq(pthread_create(&thread, NULL, churn, NULL), 0);
  for (int i = 0; i < 300; i++) {
    ck_assert_int_eq(preempt_stop(0), 0);
    ck_assert_int_eq(preempt_go(0), 0);
  }
  pthread_join(thread, NULL);
  for (unsigned c = 1000; c < 1024; c++)
    stopped[c] = false;
  ck_assert_uint_eq(count_stopped(), 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  for (unsigned c = 2001; c < 2009; c++)
    ck_assert(stopped[c]);
}
END_TEST

/* ---- slices ---- */

START_TEST(slices_of_all_groups) {
  begin_able();
  ck_assert_int_eq(preempt_slice(0, 100), 0);
  ck_assert_uint_eq(slice_of[100], 100);
  ck_assert_uint_eq(slice_of[119], 100);
  make_context(0, 200); /* libcuda sets its own */
  ck_assert_uint_eq(slice_of[200], 100);
  control(CLIENT, 200, RM_SET_SLICE, 2048);
  ck_assert_uint_eq(slice_of[200], 100);
  slice_of[200] = 2048;
  control(CLIENT, 200, RM_SCHEDULE_GROUP, 1);
  ck_assert_uint_eq(slice_of[200], 100);
  make_context(1, 300);
  ck_assert_uint_eq(slice_of[300], 2048);
  ck_assert_int_eq(preempt_slice(0, 0), 0);
  ck_assert_uint_eq(slice_of[100], 2048);
  ck_assert_uint_eq(slice_of[200], 2048);
  ck_assert_int_eq(preempt_slice(0, 1000001), -ERANGE);
}
END_TEST

static uint32_t refuse_short(uint64_t us) { return us < 10 ? RM_BAD_PARAMETERS : RM_OK; }

START_TEST(a_refused_slice_ends_slicing_only) {
  begin_able();
  ck_assert_int_eq(preempt_slice(0, 100), 0);
  ck_assert_int_eq(preempt_stop(0), 0);
  slice_answer = refuse_short;
  ck_assert(preempt_slices(0));
  ck_assert_int_eq(preempt_slice(0, 1), -ENOTSUP);
  ck_assert(!preempt_slices(0));
  ck_assert_uint_eq(slice_of[100], 2048);
  ck_assert_int_eq(preempt_slice(0, 100), -ENOTSUP);
  ck_assert_int_eq(preempt_verdict(0), PREEMPT_YES);
  ck_assert_uint_eq(count_stopped(), 20);
  ck_assert_int_eq(preempt_go(0), 0);
}
END_TEST

/* ---- ends ---- */

/* ---- contexts of our own, and those that are being made ---- */

START_TEST(what_is_ours_is_never_stopped) {
  begin_able();
  preempt_own(true);
  make_context(0, 200);
  preempt_own(false);
  make_context(0, 300);
  ck_assert_int_eq(preempt_slice(0, 100), 0);
  ck_assert_uint_eq(slice_of[200], 2048);
  ck_assert_uint_eq(slice_of[300], 100);
  ck_assert_int_eq(preempt_stop(0), 0);
  ck_assert_uint_eq(count_stopped(), 40);
  for (uint32_t c = 200; c < 224; c++)
    ck_assert(!stopped[c]);
  control(CLIENT, 200, RM_SCHEDULE_GROUP, 1);
  ck_assert_uint_eq(count_stopped(), 40);
  ck_assert_int_eq(preempt_go(0), 0);
}
END_TEST

START_TEST(a_context_that_is_made_is_stopped_once_it_is_there) {
  begin_able();
  ck_assert_int_eq(preempt_stop(0), 0);
  preempt_making(true);
  make_context(0, 200);
  ck_assert_uint_eq(count_stopped(), 20);
  preempt_making(false);
  ck_assert_uint_eq(count_stopped(), 40);
  ck_assert_int_eq(preempt_go(0), 0);
  preempt_making(true);
  preempt_making(false);
  ck_assert_uint_eq(count_stopped(), 0);
}
END_TEST

/* ---- children ---- */

static void end_in_child(pid_t pid, bool is_fork) {
  int status;
  if (pid == 0) {
    if (is_fork)
      preempt_fork_child();
    unsigned before = calls;
    bool right =
        preempt_verdict(0) != PREEMPT_YES && preempt_stop(0) != 0 && preempt_go(0) == 0 && calls == before;
    right = right && (!is_fork || channels_on(0) == 0);
    if (is_fork) { /* what it makes itself nobody has stopped */
      open_gpu(CLIENT, 0);
      make_context(0, 300);
    }
    _exit(right && (!is_fork || count_stopped() == 20) ? 0 : 1);
  }
  ck_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
  ck_assert_int_eq(status, 0);
}

START_TEST(a_child_leaves_its_parents_channels_alone) {
  begin_able();
  ck_assert_int_eq(preempt_stop(0), 0);
  end_in_child(fork(), true);
  end_in_child((pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL), false);
  ck_assert_uint_eq(count_stopped(), 20);
  ck_assert_int_eq(preempt_go(0), 0);
}
END_TEST

/* A slot that is bound at its first call. */
static void lazy_set_up(void) { begin_by(LIBCUDA_LAZY); }

int main(void) {
  const TTest *const tests[] = {each_gpu_has_its_channels,
                                what_is_freed_is_gone,
                                a_free_takes_nothing_younger,
                                what_fails_is_not_noted,
                                many_contexts_come_and_go,
                                an_unknown_parent_is_a_doubt,
                                a_channel_that_nothing_steers_is_a_doubt,
                                a_gpu_without_a_number_is_a_doubt,
                                another_layout_is_a_doubt,
                                too_many_are_a_doubt,
                                the_shorter_layout_is_known,
                                the_programs_own_calls_pass_by,
                                all_channels_stop_and_go_on,
                                a_device_is_its_gpu,
                                more_than_a_list,
                                nothing_before_a_verdict,
                                a_gpu_that_is_away_tells_nothing,
                                a_refusal_is_a_no,
                                accepted_and_ignored_is_a_no,
                                a_later_surprise_lets_all_on,
                                a_doubt_is_a_no,
                                a_freed_channel_is_no_surprise,
                                all_go_on_that_can,
                                a_context_made_while_stopped_is_stopped,
                                a_context_that_cannot_be_stopped_lets_nothing_else_on,
                                a_go_is_not_overtaken_by_a_stop,
                                a_jump_out_of_a_stop_leaves_no_lock,
                                a_jump_out_of_a_slice_leaves_no_lock,
                                nothing_is_stopped_twice,
                                what_is_scheduled_is_stopped_anew,
                                of_two_with_one_handle_none_is_forgotten,
                                no_lock_is_held_over_a_control,
                                contexts_come_and_go_under_stops,
                                slices_of_all_groups,
                                a_refused_slice_ends_slicing_only,
                                what_is_ours_is_never_stopped,
                                a_context_that_is_made_is_stopped_once_it_is_there,
                                a_child_leaves_its_parents_channels_alone,
                                NULL};
  const TTest *const lazy[] = {all_channels_stop_and_go_on, the_programs_own_calls_pass_by, NULL};
  int failed = suite_main("preempt", tests, set_up, NULL);
  return suite_main("lazy", lazy, lazy_set_up, NULL) || failed;
}
