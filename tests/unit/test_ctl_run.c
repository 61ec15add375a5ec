/* test_ctl_run.c - gpusharectl run: what the command gets, finds and returns. No daemon, no GPU. */
#include <elf.h>
#include <stdlib.h>

#include "shell.h"
#include "suite.h"

/* The library is an empty file here: the loader complains about it on stderr and goes on. */
static char folder[] = "/tmp/gpushare-run-XXXXXX";

static void set_up(void) {
  strcpy(folder + sizeof folder - 7, "XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_assert_int_eq(run_shell("cd %s && mkdir -p bin lib deep/alone && : >lib/libunified.so && : >other.so && "
                             "cp %s bin/gpusharectl && cp %s deep/alone/gpusharectl",
                             folder, GS_CTL, GS_CTL),
                   0);
  for (const char *const *name =
           (const char *const[]){"LD_PRELOAD", "GPUSHARE_LIB", "GPUSHARE_MEMORY", "GPUSHARE_SOCKET", NULL};
       *name; name++)
    unsetenv(*name);
}

static void tear_down(void) { ck_assert_int_eq(run_shell("rm -r %s", folder), 0); }

#define SHOW "sh -c 'echo preload=$LD_PRELOAD, memory=$GPUSHARE_MEMORY, socket=$GPUSHARE_SOCKET,' 2>/dev/null"

static void expect_preload(const char *path) {
  char wanted[256];
  snprintf(wanted, sizeof wanted, "preload=%s%s,", *path == '/' ? folder : "", path);
  output_has(wanted);
}

START_TEST(the_library_belongs_to_the_program) {
  ck_assert_int_eq(run_shell("%s/bin/gpusharectl run " SHOW, folder), 0);
  expect_preload("/lib/libunified.so");
  output_has("memory=, socket=,");
  ck_assert_int_eq(run_shell("%s/deep/alone/gpusharectl run " SHOW, folder), 0);
  expect_preload("libunified.so");
}
END_TEST

START_TEST(a_named_library_counts_more) {
  ck_assert_int_eq(run_shell("cd %s && GPUSHARE_LIB=other.so bin/gpusharectl run " SHOW, folder), 0);
  expect_preload("/other.so");
  ck_assert_int_eq(run_shell("cd %s && GPUSHARE_LIB= bin/gpusharectl run " SHOW, folder), 0);
  expect_preload("/lib/libunified.so");
  ck_assert_int_eq(
      run_shell("cd %s/bin && GPUSHARE_LIB=/nonexistent ./gpusharectl run --lib ../other.so " SHOW, folder),
      0);
  expect_preload("/other.so");
}
END_TEST

START_TEST(what_is_preloaded_stays_behind_it) {
  char wanted[256];
  ck_assert_int_eq(run_shell("LD_PRELOAD=/a.so:/b.so %s/bin/gpusharectl run " SHOW " 2>&1", folder), 0);
  snprintf(wanted, sizeof wanted, "preload=%s/lib/libunified.so:/a.so:/b.so,", folder);
  output_has(wanted);
}
END_TEST

START_TEST(memory_and_socket_are_passed_on) {
  ck_assert_int_eq(run_shell("%s/bin/gpusharectl run --memory swap --socket /x/y -- " SHOW, folder), 0);
  output_has("memory=swap, socket=/x/y,");
  ck_assert_int_eq(run_shell("%s/bin/gpusharectl --socket=/x/y --memory=off run " SHOW, folder), 0);
  output_has("memory=off, socket=/x/y,");
  ck_assert_int_eq(
      run_shell("GPUSHARE_MEMORY=managed GPUSHARE_SOCKET=/s %s/bin/gpusharectl run " SHOW, folder), 0);
  output_has("memory=managed, socket=/s,");
  ck_assert_int_eq(run_shell("cd %s/bin && ./gpusharectl run --socket s " SHOW, folder), 0);
  char wanted[256];
  snprintf(wanted, sizeof wanted, "socket=%s/bin/s,", folder);
  output_has(wanted);
}
END_TEST

#define SHOW_TERMS                                                                                           \
  "sh -c 'echo $GPUSHARE_WEIGHT, $GPUSHARE_PRIORITY, $GPUSHARE_EXPECTED_RUNTIME, $GPUSHARE_MEMORY_LIMIT, "   \
  "$GPUSHARE_MEMORY_SOFT_LIMIT, $GPUSHARE_EXPECTED_MEMORY, $GPUSHARE_CLASS.' 2>/dev/null"

START_TEST(terms_are_passed_on) {
  ck_assert_int_eq(run_shell("GPUSHARE_WEIGHT=7 %s/bin/gpusharectl run " SHOW_TERMS, folder), 0);
  ck_assert_str_eq(output, "7, , , , , , .\n");
  ck_assert_int_eq(
      run_shell("GPUSHARE_WEIGHT=7 %s/bin/gpusharectl run --weight 250 --priority -3 --expected 2h "
                "--limit 4G --soft-limit 3G --expected-memory 5G --class production " SHOW_TERMS,
                folder),
      0);
  ck_assert_str_eq(output, "250, -3, 2h, 4G, 3G, 5G, production.\n");
}
END_TEST

START_TEST(what_follows_the_program_is_its_own) {
  ck_assert_int_eq(
      run_shell("%s/bin/gpusharectl run echo --json --memory x -- --help -n 2>/dev/null", folder), 0);
  ck_assert_str_eq(output, "--json --memory x -- --help -n\n");
  ck_assert_int_eq(run_shell("%s/bin/gpusharectl run -- sh -c 'echo $0' --help 2>/dev/null", folder), 0);
  ck_assert_str_eq(output, "--help\n");
}
END_TEST

START_TEST(it_becomes_the_program) {
  ck_assert_int_eq(run_shell("%s/bin/gpusharectl run sh -c 'exit 7' 2>&1", folder), 7);
  ck_assert_int_eq(run_shell("exec %s/bin/gpusharectl run sh -c 'kill -9 $$' 2>&1", folder), -1);
  ck_assert_int_eq(
      run_shell("sh -c 'echo $$; exec %s/bin/gpusharectl run sh -c \"echo \\$\\$\"' 2>/dev/null", folder), 0);
  int before, then;
  ck_assert_int_eq(sscanf(output, "%d %d", &before, &then), 2);
  ck_assert_int_eq(before, then);
}
END_TEST

START_TEST(what_cannot_be_run_is_said) {
  ck_assert_int_eq(run_shell("%s/bin/gpusharectl run no-such-program 2>&1", folder), 127);
  output_has("gpusharectl: can't run no-such-program: No such file or directory");
  ck_assert_int_eq(run_shell("%s/bin/gpusharectl run %s/other.so 2>&1", folder, folder), 126);
  output_has("other.so: Permission denied");
}
END_TEST

START_TEST(wrong_usage_is_said) {
  static const struct {
    const char *arguments, *text;
  } wrong[] = {
      {"run", "an argument is missing after 'run'"},
      {"run --", "an argument is missing after 'run'"},
      {"run --memory", "the value is missing after '--memory'"},
      {"run --memory= true", "the value is missing after '--memory'"},
      {"run --memory Swap true", "--memory is managed, swap or off, not 'Swap'"},
      {"run --lib /nonexistent/lib.so true", "can't find the library /nonexistent/lib.so: No such file"},
      {"run --weight 0 true", "--weight is 1 to 10000, not '0'"},
      {"run --priority=21 true", "--priority is -20 to 20, not '21'"},
      {"run --expected soon true", "--expected is a duration (90, 15m, 2.5h), not 'soon'"},
      {"run --limit much true", "--limit is a size (16G, 512M), not 'much'"},
      {"run --soft-limit much true", "--soft-limit is a size (16G, 512M), not 'much'"},
      {"run --expected-memory much true", "--expected-memory is a size (16G, 512M), not 'much'"},
      {"run --class best true", "--class is standard, production or opportunistic, not 'best'"},
      {"run --nonsense true", "unknown option '--nonsense'"},
      {"status --memory swap", "only run has the option '--memory'"},
      {"set-tq 5 --lib x", "this command does not have the option '--lib'"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(run_shell("%s/bin/gpusharectl %s 2>&1", folder, wrong[i].arguments) == 2, "%s: %s",
                  wrong[i].arguments, output);
    output_has(wrong[i].text);
  }
  ck_assert_int_eq(
      run_shell(
          "cd %s && mkdir 'a b' && cp other.so 'a b' && bin/gpusharectl run --lib 'a b/other.so' true 2>&1",
          folder),
      2);
  output_has("can't be preloaded");
}
END_TEST

/* ---- programs that will not share ---- */

/* A copy of true, or a script: what the command says of it, and that it ran. */
static void expect_doubt(const char *make, const char *run, const char *why) {
  ck_assert_int_eq(run_shell("cd %s && %s", folder, make), 0);
  run_shell("cd %s && bin/gpusharectl run %s 2>&1", folder, run);
  output_has("gpusharectl: nothing will be shared: ");
  output_has(why);
}

static void expect_no_doubt(const char *make, const char *run) {
  ck_assert_int_eq(run_shell("cd %s && %s", folder, make), 0);
  run_shell("cd %s && bin/gpusharectl run %s 2>&1", folder, run);
  output_lacks("nothing will be shared");
}

START_TEST(what_gets_other_rights_is_told) {
  if (run_shell("cd %s && cp /bin/true own && chown 65534:65534 own 2>/dev/null", folder) != 0) {
    puts("not tried: only root makes such programs");
    return;
  }
  expect_doubt("chmod 4755 own", "./own", "./own gets other rights than its caller's");
  expect_doubt("chmod 2755 own", "./own", "./own gets other rights than its caller's");
  expect_no_doubt("chmod 0755 own", "./own");
  expect_no_doubt("chmod 4755 own && chown 0:0 own", "./own");
}
END_TEST

static void write_program(const char *name, unsigned machine) {
  char path[128];
  Elf64_Ehdr header;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *own = fopen("/proc/self/exe", "re"), *file = fopen(path, "we");
  ck_assert_uint_eq(fread(&header, sizeof header, 1, own), 1);
  header.e_machine = (Elf64_Half)(machine ? machine : header.e_machine);
  header.e_phnum = 0;
  ck_assert_uint_eq(fwrite(&header, sizeof header, 1, file), 1);
  fclose(own);
  fclose(file);
}

START_TEST(what_nothing_can_be_preloaded_into_is_told) {
  write_program("alone", 0);
  write_program("foreign", EM_S390);
  expect_doubt("chmod +x alone", "./alone", "./alone is linked statically");
  expect_doubt("chmod +x foreign", "./foreign", "./foreign is a program for another kind of machine");
  expect_no_doubt("true", "true");
  expect_no_doubt("true", "no-such-program");
}
END_TEST

START_TEST(dropped_environments_are_told) {
  static const char env[] = "env drops LD_PRELOAD";
  expect_doubt("true", "env -i true", env);
  expect_doubt("true", "env - true", env);
  expect_doubt("true", "env -u LD_PRELOAD true", env);
  expect_doubt("true", "env A=1 LD_PRELOAD= true", env);
  expect_doubt("true", "env A=1 env -i true", env);
  expect_no_doubt("true", "env -C / -u A B=1 echo env -i");
  expect_doubt("printf '#!/usr/bin/env -S -i sh\\n' >a && chmod +x a", "./a", env);
  expect_doubt("printf '#!/bin/sh\\n# no\\n exec env -i true\\n' >b && chmod +x b", "./b",
               "line 3 of ./b drops LD_PRELOAD");
  expect_doubt("printf '#!/usr/bin/env bash\\nunset LD_PRELOAD\\ntrue\\n' >c && chmod +x c", "./c",
               "line 2 of ./c drops LD_PRELOAD");
  expect_no_doubt("printf '#!/bin/sh\\n# env -i\\necho env -i\\nenv A=1 true\\n' >d && chmod +x d", "./d");
}
END_TEST

START_TEST(doubtful_lines_of_many_are_told) {
  write_program("alone", 0);
  ck_assert_int_eq(
      run_shell("cd %s && chmod +x alone && printf 'true\\n./alone 1\\n./alone 2\\nLD_PRELOAD=x true' >list",
                folder),
      0);
  run_shell("cd %s && bin/gpusharectl run --jobs list 2>&1", folder);
  output_has("gpusharectl: list, line 2: nothing will be shared: ./alone is linked statically");
  output_has("gpusharectl: list, line 4: nothing will be shared: LD_PRELOAD=x replaces");
  output_lacks("line 1: nothing");
  output_lacks("line 3: nothing");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_library_belongs_to_the_program,
                                a_named_library_counts_more,
                                what_is_preloaded_stays_behind_it,
                                memory_and_socket_are_passed_on,
                                terms_are_passed_on,
                                what_follows_the_program_is_its_own,
                                it_becomes_the_program,
                                what_cannot_be_run_is_said,
                                wrong_usage_is_said,
                                what_gets_other_rights_is_told,
                                what_nothing_can_be_preloaded_into_is_told,
                                dropped_environments_are_told,
                                doubtful_lines_of_many_are_told,
                                NULL};
  return suite_main("ctl_run", tests, set_up, tear_down);
}
