/* test_host_memory.c - reading what the host can spare. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/host.h"
#include "suite.h"

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
  ck_assert_uint_gt(host_spare_bytes(), 0);
  ck_assert_uint_lt(host_spare_bytes(), UINT64_C(1) << 50);
  ck_assert_int_eq(errno, EDOM);
}
END_TEST

/* A hierarchy of cgroups as files: below `root`, /a and /a/b. */
static char root[] = "/tmp/gpushare-cgroup-XXXXXX";
static const char *const folders[] = {"", "/a", "/a/b"};
static const char *const names[] = {"memory.max", "memory.current", "memory.stat"};

static const char *path_of(const char *folder, const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
  return path;
}

static void write_cgroup(const char *folder, const char *const texts[3]) {
  for (int i = 0; i < 3; i++) {
    FILE *file = texts[i] ? fopen(path_of(folder, names[i]), "w") : NULL;
    if (file) {
      fputs(texts[i], file);
      fclose(file);
    }
  }
}

static void make_hierarchy(void) {
  strcpy(root + sizeof root - 7, "XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(root));
  for (size_t i = 1; i < 3; i++)
    ck_assert_int_eq(mkdir(path_of(folders[i], ""), 0755), 0);
}

static void remove_hierarchy(void) {
  for (size_t i = 3; i-- > 0;) {
    for (int j = 0; j < 3; j++)
      unlink(path_of(folders[i], names[j]));
    rmdir(path_of(folders[i], ""));
  }
}

START_TEST(the_tightest_cgroup_counts) {
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a/b"), UINT64_MAX);
  write_cgroup("/a/b", (const char *const[]){"max\n", "700\n", NULL});
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a/b"), UINT64_MAX);
  write_cgroup("/a", (const char *const[]){"1000\n", "900\n", NULL});
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a/b"), 100);
  write_cgroup("/a/b", (const char *const[]){"750\n", "700\n", NULL});
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a/b"), 50);
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a"), 100);
  write_cgroup("", (const char *const[]){"1000\n", "1001\n", NULL});
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a/b"), 0);
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/"), 0);
}
END_TEST

START_TEST(inactive_file_cache_is_free) {
  write_cgroup("/a",
               (const char *const[]){"1000\n", "900\n",
                                     "anon 200\ninactive_anon 7\nactive_file 100\ninactive_file 600\n"});
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a"), 700);
  write_cgroup("/a", (const char *const[]){"1000\n", "900\n", "inactive_file 901\n"});
  ck_assert_uint_eq(host_cgroup_spare_bytes(root, "/a"), 1000);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {meminfo_lines, this_host_has_some_and_errno_is_kept,
                                the_tightest_cgroup_counts, inactive_file_cache_is_free, NULL};
  return suite_main("host_memory", tests, make_hierarchy, remove_hierarchy);
}
