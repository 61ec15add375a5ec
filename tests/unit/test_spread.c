/* test_spread.c - which GPUs each of many jobs sees, and which jobs are left alone. */
#include "ctl/joblist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"
#include "suite.h"

#define A "GPU-aaaaaaaa-0000-0000-0000-000000000000"
#define B "GPU-bbbbbbbb-0000-0000-0000-000000000000"
#define C "MIG-cccccccc-0000-0000-0000-000000000000"

static struct spread spread;

static void set_up(void) {
  spread = (struct spread){.per_job = 1};
  spread_add(&spread, A);
  spread_add(&spread, B);
  spread_add(&spread, C);
}

static void nothing(void) {}

static uint64_t expect_taken(const char *wanted) {
  uint64_t taken = spread_take(&spread);
  char *text = spread_text(&spread, taken);
  ck_assert_str_eq(text, wanted);
  free(text);
  return taken;
}

static void set_use(const char *name, uint64_t capacity_bytes, uint64_t used_bytes) {
  uint8_t uuid[GS_UUID_SIZE];
  ck_assert_int_eq(parse_uuid(name, uuid), 0);
  spread_set_use(&spread, uuid, capacity_bytes, used_bytes);
}

static void set_room(const char *name, uint64_t bytes) { set_use(name, bytes, 0); }

/* ---- the choice ---- */

START_TEST(jobs_go_round) {
  for (int round = 0; round < 3; round++) {
    expect_taken(A);
    expect_taken(B);
    expect_taken(C);
  }
}
END_TEST

START_TEST(who_ends_makes_room_for_the_next) {
  expect_taken(A);
  uint64_t second = expect_taken(B);
  expect_taken(C);
  expect_taken(A);
  spread_give_back(&spread, second);
  expect_taken(B);
  expect_taken(B);
  expect_taken(C);
  spread_give_back(&spread, 0);
  expect_taken(A);
}
END_TEST

START_TEST(of_equal_ones_the_one_with_most_room) {
  set_room(A, 10);
  set_room(B, 30);
  set_room(C, 20);
  expect_taken(B);
  expect_taken(C); /* although B has more: a job has just gone there, and its memory is to come */
  expect_taken(A);
  expect_taken(B);
}
END_TEST

START_TEST(what_nobody_uses_has_most_room) {
  set_room(A, UINT64_MAX - 1);
  expect_taken(B);
  spread_forget_rooms(&spread);
  expect_taken(A);
}
END_TEST

START_TEST(what_is_used_is_no_room) {
  set_use(A, 30, 30);
  set_use(B, 30, 20);
  set_use(C, 30, 40);
  expect_taken(B);
  expect_taken(A);
}
END_TEST

/* Nobody is there who could tell. */
START_TEST(a_gpu_of_unknown_size_is_unused) {
  set_use(A, 30, 10);
  set_use(B, 0, 0);
  set_use(C, 30, 20);
  expect_taken(B);
}
END_TEST

START_TEST(other_gpus_of_the_daemon_are_nothing_to_us) {
  set_room("GPU-dddddddd-0000-0000-0000-000000000000", 0);
  expect_taken(A);
}
END_TEST

START_TEST(several_for_a_job_keep_their_order) {
  spread.per_job = 2;
  set_room(A, 10);
  set_room(B, 20);
  uint64_t first = expect_taken(B "," C);
  expect_taken(A "," C);
  spread_give_back(&spread, first);
  expect_taken(B "," C);
  spread.per_job = 3;
  expect_taken(A "," B "," C);
}
END_TEST

START_TEST(so_many_and_no_more) {
  for (int i = 3; i < SPREAD_GPUS_MAX + 5; i++)
    spread_add(&spread, C);
  ck_assert_uint_eq(spread.count, SPREAD_GPUS_MAX);
  spread.per_job = SPREAD_GPUS_MAX;
  uint64_t all = spread_take(&spread);
  ck_assert_uint_eq(all, UINT64_MAX);
  char *text = spread_text(&spread, all);
  ck_assert_uint_eq(strlen(text), SPREAD_GPUS_MAX * sizeof A - 1);
  free(text);
}
END_TEST

/* ---- for whom ---- */

/* A command, and a line of the list of jobs. */
static bool concerns(const char *command, const char *line) {
  char texts[2][256], *word = NULL, *words[16] = {0};
  struct joblist list;
  struct joblist_error error;
  size_t count = 0;
  snprintf(texts[0], sizeof texts[0], "%s", command);
  snprintf(texts[1], sizeof texts[1], "%s\n", line);
  for (word = strtok(texts[0], " "); word; word = strtok(NULL, " "))
    words[count++] = word;
  ck_assert_int_eq(joblist_parse(&list, texts[1], &error), 0);
  bool concerned = spread_concerns(&spread, words, list.jobs);
  joblist_free(&list);
  return concerned;
}

START_TEST(an_ordinary_job_is_concerned) {
  ck_assert(concerns("python train.py", "--lr 0.1"));
  ck_assert(concerns("python train.py", "SEED=1 CUDA_VISIBLE=0 --torchrun torchrun"));
  ck_assert(concerns("python -m train", "--data mpirun"));
  ck_assert(concerns("", "python x.py"));
}
END_TEST

START_TEST(one_that_has_set_it_keeps_it) {
  spread.as_told = true;
  ck_assert(!concerns("python train.py", "CUDA_VISIBLE_DEVICES=1 --lr 0.1"));
  ck_assert(!concerns("python train.py", "A=1 CUDA_VISIBLE_DEVICES= --lr 0.1"));
  ck_assert(concerns("python train.py", "'CUDA_VISIBLE_DEVICES=1'"));
}
END_TEST

START_TEST(one_that_uses_several_is_left_alone) {
  static const char *const alone[][2] = {{"torchrun train.py", "--lr 0.1"},
                                         {"/usr/bin/mpirun -n 2 train", "--lr 0.1"},
                                         {"", "A=1 torchrun train.py"},
                                         {"python3 -u -m torch.distributed.run train.py", "1"},
                                         {"python", "-m torch.distributed.launch train.py"},
                                         {"python train.py", "GPUSHARE_GANG=g --rank 0"}};
  for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
    spread.as_told = false;
    ck_assert_msg(!concerns(alone[i][0], alone[i][1]), "%zu", i);
    spread.as_told = true;
    ck_assert_msg(concerns(alone[i][0], alone[i][1]), "%zu, though told so", i);
  }
  spread.as_told = false;
  ck_assert(concerns("python train.py", "GPUSHARE_GANG=none --rank 0"));
  ck_assert(concerns("python train.py", "GPUSHARE_GANG=g GPUSHARE_GANG= --rank 0"));
}
END_TEST

START_TEST(without_more_gpus_than_a_job_sees_nothing_changes) {
  spread.per_job = 2;
  ck_assert(concerns("python train.py", "1"));
  spread.per_job = 3;
  ck_assert(!concerns("python train.py", "1"));
  spread = (struct spread){0};
  ck_assert(!concerns("python train.py", "1"));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {jobs_go_round,
                                who_ends_makes_room_for_the_next,
                                of_equal_ones_the_one_with_most_room,
                                what_nobody_uses_has_most_room,
                                what_is_used_is_no_room,
                                a_gpu_of_unknown_size_is_unused,
                                other_gpus_of_the_daemon_are_nothing_to_us,
                                several_for_a_job_keep_their_order,
                                so_many_and_no_more,
                                an_ordinary_job_is_concerned,
                                one_that_has_set_it_keeps_it,
                                one_that_uses_several_is_left_alone,
                                without_more_gpus_than_a_job_sees_nothing_changes,
                                NULL};
  return suite_main("spread", tests, set_up, nothing);
}
