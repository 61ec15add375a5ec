/* test_host_gpus.c - a played /proc/driver/nvidia/gpus. */
#include "host_gpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "suite.h"

/* As the kernel module writes it. */
#define UNKNOWN "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?\?\?\?\?\?\?\?\?"

static char folder[] = "/tmp/gpushare-host-XXXXXX";
static uint8_t uuids[2][GS_UUID_SIZE];

static void set_up(void) { ck_assert_ptr_nonnull(mkdtemp(folder)); }

static void tear_down(void) {
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", folder);
  ck_assert_int_eq(system(command), 0);
  strcpy(folder, "/tmp/gpushare-host-XXXXXX");
}

static void add(const char *gpu, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, gpu);
  ck_assert_int_eq(mkdir(path, 0755), 0);
  strcat(path, "/information");
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static int read_all(void) { return host_gpus_read(folder, uuids, 2); }

START_TEST(each_gpu_has_a_folder) {
  ck_assert_int_eq(read_all(), 0);
  add("0000:01:00.0", "Model: \t\t H200\nGPU UUID: \t GPU-0a000000-0000-0000-0000-000000000001\nBus: x\n");
  ck_assert_int_eq(read_all(), 1);
  ck_assert_uint_eq(uuids[0][0], 10);
  ck_assert_uint_eq(uuids[0][15], 1);
  add("0000:02:00.0", "GPU UUID: GPU-0b000000-0000-0000-0000-000000000001\n");
  ck_assert_int_eq(read_all(), 2);
  add("0000:03:00.0", "GPU UUID: GPU-0c000000-0000-0000-0000-000000000001\n");
  ck_assert_int_eq(read_all(), -E2BIG);
}
END_TEST

START_TEST(who_does_not_know_one_knows_nothing) {
  add("0000:01:00.0", "GPU UUID: GPU-0a000000-0000-0000-0000-000000000001\n");
  add("0000:02:00.0", "GPU UUID: " UNKNOWN "\n");
  ck_assert_int_lt(read_all(), 0);
}
END_TEST

START_TEST(nothing_need_be_there) {
  ck_assert_int_eq(host_gpus_read("/nowhere/at/all", uuids, 2), -ENOENT);
  add("0000:01:00.0", "Model: H200\n");
  ck_assert_int_eq(read_all(), -ENODATA);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {each_gpu_has_a_folder, who_does_not_know_one_knows_nothing,
                                nothing_need_be_there, NULL};
  return suite_main("host_gpus", tests, set_up, tear_down);
}
