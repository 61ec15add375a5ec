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

static void set_use(const char *name, uint64_t capacity_bytes, uint64_t used_bytes) {
  uint8_t uuid[GS_UUID_SIZE];
  ck_assert_int_eq(parse_uuid(name, uuid), 0);
  spread_set_use(&spread, uuid, capacity_bytes, used_bytes);
}

/* ---- the choice ---- */

/* Jobs come one after the other: each word is the GPUs that the next one shall get, or "-N": job N ends. */
static void expect_taken(const char *jobs) {
  static const char *const names[] = {A, B, C};
  uint64_t taken[32];
  size_t count = 0;
  char copy[64], wanted[128], *rest;
  snprintf(copy, sizeof copy, "%s", jobs);
  for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    if (*word == '-') {
      spread_give_back(&spread, taken[atoi(word + 1)]);
      continue;
    }
    *wanted = '\0';
    for (const char *gpu = word; *gpu; gpu++)
      sprintf(wanted + strlen(wanted), "%s%s", gpu > word ? "," : "", names[*gpu - 'A']);
    taken[count] = spread_take(&spread);
    char *text = spread_text(&spread, taken[count]);
    ck_assert_msg(strcmp(text, wanted) == 0, "%s, job %zu: %s", jobs, count, text);
    count++;
    free(text);
  }
}

START_TEST(the_fewest_jobs_count_and_then_the_most_room) {
  static const struct {
    size_t per_job;
    struct {
      uint64_t capacity_bytes, used_bytes;
    } use[3]; /* without a capacity nobody is there who could tell: it is unused */
    const char *jobs;
  } cases[] = {{1, {{0, 0}}, "A B C A B C A B C"},
               {1, {{0, 0}}, "A B C A -1 B B C A"},
               {1, {{10, 0}, {30, 0}, {20, 0}}, "B C A B"}, /* B's first job is yet to have its memory */
               {1, {{UINT64_MAX - 1, 0}}, "B"},
               {1, {{30, 30}, {30, 20}, {30, 40}}, "B A"},
               {1, {{30, 10}, {0, 0}, {30, 20}}, "B"},
               {2, {{10, 0}, {20, 0}}, "BC AC -0 BC"},
               {3, {{10, 0}, {20, 0}}, "ABC ABC"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    set_up();
    spread.per_job = cases[i].per_job;
    set_use(A, cases[i].use[0].capacity_bytes, cases[i].use[0].used_bytes);
    set_use(B, cases[i].use[1].capacity_bytes, cases[i].use[1].used_bytes);
    set_use(C, cases[i].use[2].capacity_bytes, cases[i].use[2].used_bytes);
    expect_taken(cases[i].jobs);
  }
}
END_TEST

START_TEST(rooms_are_those_of_our_gpus_and_of_now) {
  set_use("GPU-dddddddd-0000-0000-0000-000000000000", 30, 30);
  expect_taken("A");
  spread_give_back(&spread, 0); /* nothing */
  expect_taken("B");
  set_up();
  set_use(A, 30, 10);
  spread_forget_rooms(&spread);
  expect_taken("A");
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

/* It may be told so, and then is concerned all the same; but one that sets the variable itself is not. */
START_TEST(jobs_that_see_to_their_gpus_themselves_are_left_alone) {
  static const struct {
    const char *command, *line;
    bool concerned, if_told;
  } cases[] = {{"python train.py", "--lr 0.1", true, true},
               {"python train.py", "SEED=1 CUDA_VISIBLE=0 --torchrun torchrun", true, true},
               {"python -m train", "--data mpirun", true, true},
               {"", "python x.py", true, true},
               {"python train.py", "CUDA_VISIBLE_DEVICES=1 --lr 0.1", false, false},
               {"python train.py", "A=1 CUDA_VISIBLE_DEVICES= --lr 0.1", false, false},
               {"python train.py", "'CUDA_VISIBLE_DEVICES=1'", true, true},
               {"torchrun train.py", "--lr 0.1", false, true},
               {"/usr/bin/mpirun -n 2 train", "--lr 0.1", false, true},
               {"", "A=1 torchrun train.py", false, true},
               {"python3 -u -m torch.distributed.run train.py", "1", false, true},
               {"python", "-m torch.distributed.launch train.py", false, true},
               {"python train.py", "GPUSHARE_GANG=g --rank 0", false, true},
               {"python train.py", "GPUSHARE_GANG=none --rank 0", true, true},
               {"python train.py", "GPUSHARE_GANG=g GPUSHARE_GANG= --rank 0", true, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int told = 0; told < 2; told++) {
      spread.as_told = told;
      ck_assert_msg(concerns(cases[i].command, cases[i].line) ==
                        (told ? cases[i].if_told : cases[i].concerned),
                    "%s %s, told: %d", cases[i].command, cases[i].line, told);
    }
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
  const TTest *const tests[] = {the_fewest_jobs_count_and_then_the_most_room,
                                rooms_are_those_of_our_gpus_and_of_now,
                                so_many_and_no_more,
                                jobs_that_see_to_their_gpus_themselves_are_left_alone,
                                without_more_gpus_than_a_job_sees_nothing_changes,
                                NULL};
  return suite_main("spread", tests, set_up, nothing);
}
