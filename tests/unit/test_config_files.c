/* test_config_files.c - the configuration file and its drop-ins: which are read, in which order, and what is
 * said of mistakes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "server/config.h"
#include "shell.h"
#include "suite.h"

static char folder[] = "/tmp/gpushare-config-XXXXXX", path[64];
static struct config config;
static char error[512];

static void set_up(void) {
  strcpy(folder + sizeof folder - 7, "XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/main.conf", folder);
  config = config_default();
  error[0] = '\0';
}

static void tear_down(void) { run_shell("rm -r %s", folder); }

static void write_file(const char *name, const char *text) {
  char whole[128];
  snprintf(whole, sizeof whole, "%s.d", path);
  mkdir(whole, 0755);
  snprintf(whole, sizeof whole, "%s/%s", folder, name);
  FILE *file = fopen(whole, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static int read_files(bool needed) { return config_files_read(&config, path, needed, error, sizeof error); }

TEST(later_names_count_more) {
  write_file("main.conf", "tq = 1\ngrace = 1\nmode = on\n");
  write_file("main.conf.d/20-b.conf", "tq = 3\n");
  write_file("main.conf.d/10-a.conf", "tq = 2\ngrace = 2\n");
  ck_assert_int_eq(read_files(true), 0);
  ck_assert_uint_eq(config.general.tq_ns, 3 * NS_PER_S);
  ck_assert_uint_eq(config.grace_ns, 2 * NS_PER_S);
  ck_assert_int_eq(config.general.mode, GS_MODE_ON);
}

TEST(other_files_do_not_count) {
  write_file("main.conf", "tq = 1\n");
  write_file("main.conf.d/a.conf.bak", "nonsense\n");
  write_file("main.conf.d/a.conf~", "nonsense\n");
  write_file("main.conf.d/.hidden.conf", "nonsense\n");
  ck_assert_int_eq(read_files(true), 0);
  ck_assert_uint_eq(config.general.tq_ns, NS_PER_S);
}

TEST(drop_ins_alone_do) {
  write_file("main.conf.d/a.conf", "tq = 7\n");
  ck_assert_int_eq(read_files(true), -ENOENT);
  ck_assert_msg(strstr(error, "can't read ") && strstr(error, path), "%s", error);
  ck_assert_uint_eq(config.general.tq_ns, 20 * NS_PER_S);
  ck_assert_int_eq(read_files(false), 0);
  ck_assert_uint_eq(config.general.tq_ns, 7 * NS_PER_S);
}

TEST(nothing_at_all_does) {
  ck_assert_int_eq(read_files(false), 0);
  ck_assert_uint_eq(config.general.tq_ns, 20 * NS_PER_S);
}

TEST(a_mistake_is_named_with_its_file_and_changes_nothing) {
  write_file("main.conf", "tq = 1\n");
  write_file("main.conf.d/a.conf", "grace = 2\n\ntq = soon\n");
  write_file("main.conf.d/b.conf", "also = wrong\n");
  ck_assert_int_eq(read_files(true), -EINVAL);
  ck_assert_msg(strstr(error, "main.conf.d/a.conf:3: tq: 'soon'"), "%s", error);
  ck_assert_uint_eq(config.general.tq_ns, 20 * NS_PER_S);
  ck_assert_uint_eq(config.grace_ns, 30 * NS_PER_S);
}

TEST(what_cannot_be_read_is_named) {
  write_file("main.conf", "tq = 1\n");
  run_shell("mkdir %s.d/folder.conf", path);
  ck_assert_int_lt(read_files(true), 0);
  ck_assert_msg(strstr(error, "can't read ") && strstr(error, "folder.conf"), "%s", error);
  run_shell("rm -r %s.d && echo > %s.d", path, path);
  ck_assert_int_eq(read_files(true), -ENOTDIR);
  ck_assert_msg(strstr(error, "main.conf.d"), "%s", error);
}

int main(void) { return suite_run_all("config_files", set_up, tear_down); }
