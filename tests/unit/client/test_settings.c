/* test_settings.c - what the environment may say to whom. As `test_settings show` it tells what it has read.
 */
#include "settings.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../suite.h"

#define NOBODY 65534

static char folder[] = "/tmp/gpushare-settings-XXXXXX";
static char copy[64];

static int show(void) {
  printf("%lu %s %u [%s] %d\n", getauxval(AT_SECURE), settings()->socket, settings()->weight,
         settings()->gang, settings()->preempt);
  return 0;
}

static void set_up(void) {
  char command[128];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_assert_int_eq(chmod(folder, 0755), 0);
  snprintf(copy, sizeof copy, "%s/program", folder);
  snprintf(command, sizeof command, "cp /proc/%d/exe %s", getpid(), copy);
  ck_assert_int_eq(system(command), 0);
}

static void tear_down(void) {
  unlink(copy);
  rmdir(folder);
}

static const char *shown(void) {
  static char line[256];
  char command[256];
  snprintf(command, sizeof command,
           "GPUSHARE_SOCKET=/tmp/other GPUSHARE_WEIGHT=7 GPUSHARE_GANG=g GPUSHARE_PREEMPT=off %s show", copy);
  FILE *output = popen(command, "r");
  ck_assert_ptr_nonnull(output);
  ck_assert_ptr_nonnull(fgets(line, sizeof line, output));
  ck_assert_int_eq(pclose(output), 0);
  return line;
}

START_TEST(programs_are_told_by_their_environment) { ck_assert_str_eq(shown(), "0 /tmp/other 7 [g] 0\n"); }
END_TEST

/* Their callers must not have them talk to a daemon of their own. */
START_TEST(but_not_those_that_have_more_rights_than_their_callers) {
#ifdef __SANITIZE_ADDRESS__
  puts("not tried: the leak sanitizer ends such programs");
  return;
#endif
  if (chown(copy, NOBODY, NOBODY) != 0 || chmod(copy, 04755) != 0 || *shown() == '0') {
    puts("not tried: there are no programs with other rights here");
    return;
  }
  ck_assert_str_eq(shown(), "1 " GS_DEFAULT_SOCKET " 0 [] 1\n");
}
END_TEST

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "show") == 0)
    return show();
  const TTest *const tests[] = {programs_are_told_by_their_environment,
                                but_not_those_that_have_more_rights_than_their_callers, NULL};
  return suite_main("settings", tests, set_up, tear_down);
}
