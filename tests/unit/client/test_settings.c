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
  settings_complain();
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

/* What the program logs with these variables; its own line of what it has read is left out. */
static const char *complaints(const char *variables) {
  static char text[1024];
  char command[512];
  snprintf(command, sizeof command, "%s %s show 2>&1 >/dev/null", variables, copy);
  FILE *output = popen(command, "r");
  ck_assert_ptr_nonnull(output);
  text[fread(text, 1, sizeof text - 1, output)] = '\0';
  ck_assert_int_eq(pclose(output), 0);
  return text;
}

START_TEST(names_that_are_nearly_right_are_told) {
  static const struct {
    const char *variable, *meant;
  } cases[] = {{"GPUSHARE_WIEGHT=7", "GPUSHARE_WEIGHT"},
               {"GPUSHARE_MEM=swap", "GPUSHARE_MEMORY"},
               {"GPUSHARE_SOCKETS=/x", "GPUSHARE_SOCKET"},
               {"GPUSHARE_CLAS=production", "GPUSHARE_CLASS"},
               {"GPUSHARE_PREEMPTION=off", "GPUSHARE_PREEMPT"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char wanted[128];
    snprintf(wanted, sizeof wanted, "%.*s is no variable of gpushare's: did you mean %s?",
             (int)strcspn(cases[i].variable, "="), cases[i].variable, cases[i].meant);
    const char *text = complaints(cases[i].variable);
    ck_assert_msg(strstr(text, wanted) != NULL, "%s: %s", cases[i].variable, text);
  }
}
END_TEST

START_TEST(others_are_left_alone) {
  ck_assert_str_eq(
      complaints("GPUSHARE_WEIGHT=7 GPUSHARE_LIB=/x GPUSHARE_JOB_INDEX=1 GPUSHARE_PORT=1 "
                 "GPUSHARE_DAEMON_SERVICE_HOST=h GPUSHARE_BUILD=b GPUSHARE_SEED=1 GPUSHARE_RUNS=1 "
                 "GPUSHARE_SIM_CARD=small GPUSHARE_MPS_SET=1 GPUSHAREX=1 GPUSHARE_="),
      "");
}
END_TEST

START_TEST(wrong_values_are_told) {
  const char *text =
      complaints("GPUSHARE_PREEMPT=no GPUSHARE_CARRY=maybe GPUSHARE_MEMORY=disk GPUSHARE_WEIGHT=0");
  ck_assert_ptr_nonnull(strstr(text, "GPUSHARE_PREEMPT is auto or off, not 'no': the default is taken"));
  ck_assert_ptr_nonnull(strstr(text, "GPUSHARE_CARRY is 0 or 1, not 'maybe'"));
  ck_assert_ptr_nonnull(strstr(text, "GPUSHARE_MEMORY is managed, swap or off, not 'disk'"));
  ck_assert_ptr_nonnull(strstr(text, "GPUSHARE_WEIGHT is 1 to 10000, not '0'"));
}
END_TEST

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "show") == 0)
    return show();
  const TTest *const tests[] = {programs_are_told_by_their_environment,
                                but_not_those_that_have_more_rights_than_their_callers,
                                names_that_are_nearly_right_are_told,
                                others_are_left_alone,
                                wrong_values_are_told,
                                NULL};
  return suite_main("settings", tests, set_up, tear_down);
}
