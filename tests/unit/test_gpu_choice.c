/* test_gpu_choice.c - which GPUs a text on the command line names. */
#include "ctl/gpu_choice.h"

#include <string.h>

#include "common/parse.h"
#include "common/wire.h"
#include "suite.h"

#define A "GPU-5d3a0000-0000-0000-0000-000000000001"
#define B "GPU-5d990000-0000-0000-0000-000000000002"
#define PART "MIG-5d3a0000-0000-0000-0000-000000000003"

static struct gs_msg msgs[3];
static struct gpu_figures gpus[3];
static struct status status;
static struct gpu_choice choice;
static struct ask_error error;

static void add(const char *uuid, uint32_t number) {
  struct gs_msg *msg = &msgs[status.gpu_count];
  *msg = wire_msg(GS_STATUS_GPU, number);
  ck_assert_int_eq(parse_uuid(uuid, msg->gpu_status.uuid), 0);
  gpus[status.gpu_count++].gpu = msg;
}

static void set_up(void) {
  status = (struct status){.gpus = gpus};
  add(A, 0);
  add(PART, GS_GPU_NUMBER(1u, 1u));
  add(B, 2);
}

static void nothing(void) {}

/* The last byte of each UUID. */
static void expect(const char *text, const char *wanted) {
  ck_assert_msg(gpu_choice_read(&choice, text, &status, &error) == CTL_OK, "%s: %s", text, error.text);
  ck_assert_uint_eq(choice.count, strlen(wanted));
  for (size_t i = 0; i < choice.count; i++)
    ck_assert_msg(choice.uuids[i][GS_UUID_SIZE - 1] == wanted[i] - '0', "%s: %zu", text, i);
}

static void refuse(const char *text, int code, const char *words) {
  ck_assert_msg(gpu_choice_read(&choice, text, &status, &error) == code, "%s", text);
  ck_assert_msg(strstr(error.text, words), "%s: %s", text, error.text);
}

START_TEST(by_index_uuid_or_prefix) {
  expect("0", "1");
  expect("2", "2");
  expect("1:0", "3");
  expect(B, "2");
  expect("5d990000-0000-0000-0000-000000000002", "2");
  expect("GPU-5d9", "2");
  expect("GPU-5D3", "1"); /* the part is not called so */
  expect("MIG-5", "3");
}
END_TEST

START_TEST(lists_name_each_once) {
  expect("0,2", "12");
  expect("2,0,1:0", "213");
  expect("0,GPU-5d3a," A ",0", "1");
}
END_TEST

START_TEST(what_names_none_is_refused) {
  refuse("1", CTL_REFUSED, "there is no GPU 1"); /* it is in parts */
  refuse("0:0", CTL_REFUSED, "there is no GPU 0:0");
  refuse("0,7", CTL_REFUSED, "there is no GPU 7");
  refuse("GPU-77", CTL_REFUSED, "no GPU's UUID begins with GPU-77");
  refuse("GPU-5d", CTL_REFUSED, "GPU-5d may be any of " A " (GPU 0), " B " (GPU 2)");
  static const char *const wrong[] = {"",     ",",   "0,",    "x",  "GPU-", "GPU-5x",
                                      "5d3a", "0-2", "all,0", "-1", "0:"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    refuse(wrong[i], CTL_USAGE, "not a GPU");
  refuse("GPU-00000000-0000-0000-0000-000000000000", CTL_REFUSED, "no GPU has the UUID");
}
END_TEST

START_TEST(only_whole_uuids_need_no_status) {
  ck_assert(!gpu_choice_needs_status(A "," B));
  ck_assert(gpu_choice_needs_status(A ",0"));
  ck_assert(gpu_choice_needs_status("GPU-5"));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {by_index_uuid_or_prefix, lists_name_each_once, what_names_none_is_refused,
                                only_whole_uuids_need_no_status, NULL};
  return suite_main("gpu_choice", tests, set_up, nothing);
}
