/* test_host.c - reading what the host can spare. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "../suite.h"
#include "memory/host.h"

START_TEST(meminfo_lines) {
  const char *text =
      "MemTotal:       131072 kB\nMemFree:  10 kB\nMemAvailable:      2048 kB\nHugePages_Total:   7\n";
  ck_assert_uint_eq(host_parse_meminfo(text, "MemTotal"), UINT64_C(128) << 20);
  ck_assert_uint_eq(host_parse_meminfo(text, "MemAvailable"), UINT64_C(2) << 20);
  ck_assert_uint_eq(host_parse_meminfo(text, "Mem"), 0);
  ck_assert_uint_eq(host_parse_meminfo(text, "MemFre"), 0);
  ck_assert_uint_eq(host_parse_meminfo("", "MemFree"), 0);
  ck_assert_uint_eq(host_parse_meminfo("MemFree:", "MemFree"), 0);
  ck_assert_uint_eq(host_parse_meminfo("MemFree: 99999999999999999999 kB", "MemFree"), 0);
  ck_assert_uint_eq(host_parse_meminfo("MemFree: 18446744073709551615 kB", "MemFree"), UINT64_MAX);
}
END_TEST

START_TEST(this_host_has_some_and_errno_is_kept) {
  errno = EDOM;
  ck_assert_uint_gt(host_available_bytes(), 0);
  ck_assert_uint_lt(host_available_bytes(), UINT64_C(1) << 50);
  ck_assert_int_eq(errno, EDOM);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("host");
  TCase *cases = tcase_create("host");
  tcase_add_test(cases, meminfo_lines);
  tcase_add_test(cases, this_host_has_some_and_errno_is_kept);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
