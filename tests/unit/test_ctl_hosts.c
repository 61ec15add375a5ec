/* test_ctl_hosts.c - gpusharectl --host: several hosts at once. A script plays ssh: each name is a host that
 * answers in a way of its own, and the host `here` has the real gpusharectl and the real daemon. */
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define SCRIPT                                                                                               \
  "#!/bin/sh\n"                                                                                              \
  "[ $# -eq 3 ] && [ \"$1\" = -- ] || { echo \"not understood: $*\" >&2; exit 255; }\n"                      \
  "echo \"$3\" >>\"$GS_FOLDER/commands\"\n"                                                                  \
  "case $2 in\n"                                                                                             \
  "  here) PATH=$(dirname " GS_CTL "):$PATH; exec sh -c \"$3\" ;;\n"                                         \
  "  down) echo 'Warning: added' >&2; echo 'ssh: connect to host down: Connection refused' >&2; exit 255 "   \
  ";;\n"                                                                                                     \
  "  bare) echo 'sh: gpusharectl: not found' >&2; exit 127 ;;\n"                                             \
  "  mute) exit 7 ;;\n"                                                                                      \
  "  dead) kill -TERM $$ ;;\n"                                                                               \
  "  slow) echo $$ >\"$GS_FOLDER/slow\"; sleep 600; echo late ;;\n"                                          \
  "  torn) echo 'gpusharectl 9.8.7 (protocol 1)'; echo '{\"gpus\": [' ;;\n"                                  \
  "  odd) echo 'gpusharectl 9.8.7 (protocol 1)'; echo '{\"gpus\": 3, \"rows\": {}}' ;;\n"                    \
  "  other) echo 'Welcome to other'; echo 'gpusharectl 9.8.7 (protocol 1)'; cat \"$GS_FOLDER/answer\" ;;\n"  \
  "  pair*) touch \"$GS_FOLDER/$2\"\n"                                                                       \
  "    until [ -e \"$GS_FOLDER/pair1\" ] && [ -e \"$GS_FOLDER/pair2\" ]; do sleep 0.05; done\n"              \
  "    echo 'gpusharectl 9.8.7 (protocol 1)'; echo '{\"gpus\": []}' ;;\n"                                    \
  "esac\n"

#define ANSWER                                                                                               \
  "{\"gpus\": [{\"index\": 3, \"name\": \"H100\\u001b[2J\", \"used_bytes\": 3221225472,"                     \
  "  \"capacity_bytes\": 85899345920, \"waiting\": 2, \"jobs\": ["                                           \
  "    {\"state\": \"holding\", \"user\": \"ann\", \"name\": \"train.py\"},"                                 \
  "    {\"state\": \"dropping\", \"user\": \"bob\", \"name\": \"x\"},"                                       \
  "    {\"state\": \"holding\", \"user\": \"eve\", \"name\": \"y\"}, {\"state\": \"waiting\"}, {}]}],"       \
  " \"rows\": [{\"user\": \"ann\", \"job\": 7, \"name\": \"train.py\", \"gpu\": 1, \"instance\": 2,"         \
  "    \"class\": \"standard\", \"jobs\": 4, \"held_ns\": 5400000000000, \"gpu_ns\": 3600000000000,"         \
  "    \"waited_ns\": 1800000000000, \"moved_bytes\": 1073741824, \"energy_joules\": 900000.0}]}\n"

static struct daemon_process daemon_process, *const it = &daemon_process;
static char folder[] = "/tmp/gpushare-hosts-XXXXXX";

static void write_file(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
  chmod(path, 0755);
}

static void set_up(void) {
  daemon_start(it, (const char *const[]){"--mode", "on", NULL});
  strcpy(folder, "/tmp/gpushare-hosts-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  write_file("ssh", SCRIPT);
  write_file("answer", ANSWER);
}

static void tear_down(void) {
  run_shell("rm -rf %s", folder);
  daemon_clean_up(it);
}

/* Run gpusharectl with variables and arguments, a line for the shell. Its exit code. */
static int ctl_with(const char *variables, const char *arguments) {
  return run_shell(
      "GPUSHARE_SOCKET=%s GS_FOLDER=%s GPUSHARE_SSH=%s/ssh GPUSHARE_SSH_TIMEOUT=100 %s %s %s 2>&1",
      it->socket, folder, folder, variables, GS_CTL, arguments);
}

static int ctl(const char *arguments) { return ctl_with("", arguments); }

static json_t *line_of(const char *host) {
  char *rest = output;
  for (char *line; (line = strsep(&rest, "\n")) && *line;) {
    json_t *object = json_loads(line, 0, NULL);
    ck_assert_msg(object != NULL, "%s", line);
    if (strcmp(json_string_value(json_object_get(object, "host")), host) == 0)
      return object;
    json_decref(object);
  }
  ck_abort_msg("no object of %s", host);
}

TEST(a_table_has_the_gpus_of_all_hosts) {
  int fd = register_client(it);
  attach_card(fd, 1, UINT64_C(3) << 30, GS_ATTACH_MANAGED);
  tell_simple(fd, GS_REQ_LOCK);
  expect(fd, GS_LOCK_OK);
  get_status(it, GS_STATUS_GPU);
  ck_assert_int_eq(ctl("--host here,other status"), 0);
  output_has("HOST  GPU MODEL");
  output_has("here    0 ");
  output_has("   1    3.0 GiB   16.0 GiB       0  ");
  output_has("other   3 H100?[2J    5    3.0 GiB   80.0 GiB       2  ann:train.py bob:x +1\n");
}

TEST(a_host_without_an_answer_is_a_line_with_its_reason) {
  ck_assert_int_eq(ctl("status --host down,bare,mute,dead,torn,odd,other"), 3);
  output_has("\ndown  does not answer: ssh: connect to host down: Connection refused\n");
  output_has("\nbare  does not answer: install gpushare there: sh: gpusharectl: not found\n");
  output_has("/ssh has ended with exit code 7, and said nothing\n");
  output_has("/ssh has died of signal 15\n");
  output_has("\ntorn  does not answer: its answer is not understood (gpusharectl is 9.8.7 there, ");
  output_has("\nodd   does not answer: its answer is not understood");
  output_has("\nother   3 H100");
  output_lacks("Warning");
  ck_assert_int_eq(ctl_with("GPUSHARE_SSH=/nonexistent/ssh", "status --host a"), 3);
  output_has("a    does not answer: can't run /nonexistent/ssh: No such file or directory (GPUSHARE_SSH)\n");
}

TEST(a_host_without_a_daemon_says_so) {
  ck_assert_int_eq(ctl_with("GPUSHARE_SOCKET=/nonexistent", "status --host here"), 3);
  output_has("here does not answer: ");
  output_has("/nonexistent");
}

TEST(hosts_are_asked_at_the_same_time) {
  ck_assert_int_eq(ctl("status --host pair1,pair2"), 0);
  output_has("pair1 no program has used a GPU yet\n");
  output_has("pair2 no program has used a GPU yet\n");
}

TEST(a_host_has_its_time_and_nothing_of_it_is_left) {
  ck_assert_int_eq(ctl_with("GPUSHARE_SSH_TIMEOUT=5", "status --host slow,other"), 3);
  output_has("slow  does not answer: no answer within 5");
  output_has("other   3 H100");
  /* Killed: gone, or waited for by nobody yet. */
  ck_assert_int_eq(
      run_shell("for i in $(seq 200); do cat /proc/[0-9]*/stat 2>/dev/null |"
                " awk -v group=$(cat %s/slow) '$5 == group && $3 != \"Z\" {found = 1} END {exit !found}'"
                " || exit 0; sleep 0.05; done; exit 1",
                folder),
      0);
  ck_assert_int_eq(ctl_with("GPUSHARE_SSH_TIMEOUT=soon", "status --host other"), 2);
  output_has("GPUSHARE_SSH_TIMEOUT");
}

TEST(another_version_is_told) {
  ck_assert_int_eq(ctl("status --host here,other"), 0);
  output_has("\nother has gpusharectl 9.8.7; here it is " GPUSHARE_VERSION "\n");
  output_lacks("here  has gpusharectl");
}

TEST(json_is_an_object_per_host) {
  ck_assert_int_eq(ctl("status --json --host here,down,other"), 3);
  char kept[sizeof output];
  memcpy(kept, output, sizeof kept);
  json_t *host = line_of("here");
  ck_assert(json_is_null(json_object_get(host, "error")));
  ck_assert_str_eq(json_string_value(json_object_get(host, "release")), GPUSHARE_VERSION);
  ck_assert(json_is_object(json_object_get(json_object_get(host, "status"), "daemon")));
  json_decref(host);
  memcpy(output, kept, sizeof kept);
  host = line_of("down");
  ck_assert(json_is_null(json_object_get(host, "status")) && json_is_null(json_object_get(host, "release")));
  ck_assert(json_is_string(json_object_get(host, "error")));
  json_decref(host);
}

TEST(reports_have_rows_of_all_hosts) {
  ck_assert_int_eq(ctl("report --host here,other --since 7d"), 0);
  output_has("HOST  USER ");
  output_has("here  no job has had a GPU in that time");
  output_has("other ann             4      1.500      1.000      0.500     1.0 GiB      0.250\n");
  ck_assert_int_eq(ctl("report --by job --host other"), 0);
  output_has("other 7          ann        train.py        4      1.500");
  ck_assert_int_eq(ctl("report --by gpu --host other"), 0);
  output_has("other 1:2 ");
  ck_assert_int_eq(run_shell("cat %s/commands", folder), 0);
  output_has("gpusharectl --version && gpusharectl report --json --by user --since 7d\n");
}

TEST(top_asks_again) {
  ck_assert_int_eq(ctl("top --batch -n 2 -d 0.1 --host other,down"), 3);
  ck_assert_int_eq(run_shell("grep -c 'status --json' %s/commands", folder), 0);
  ck_assert_str_eq(output, "4\n");
  ck_assert_int_eq(ctl("top --batch --json -n 1 --host other"), 0);
  json_decref(line_of("other"));
}

TEST(no_name_is_taken_for_an_option_or_a_command) {
  static const char *const wrong[] = {"-oProxyCommand=x", "a,-V", "ann@-V", "-l@a", "'a b'", "'a;b'",
                                      "'$(x)'",           "a,,b", "''",     "a,a",  "ann@",  "a/b"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char arguments[64];
    snprintf(arguments, sizeof arguments, "status --host=%s", wrong[i]);
    ck_assert_msg(ctl(arguments) == 2, "%s: %s", wrong[i], output);
  }
  ck_assert_int_eq(ctl("report --since '7d;x' --host other"), 2);
  ck_assert_int_eq(ctl("report --by 'user;x' --host other"), 2);
  ck_assert_int_eq(run_shell("test -e %s/commands", folder), 1); /* nobody was asked */
}

TEST(what_cannot_go_together_is_told) {
  ck_assert_int_eq(ctl("status --host other --socket /tmp/x"), 2);
  output_has("--socket and --host exclude each other");
  ck_assert_int_eq(ctl("report --host other --csv"), 2);
  ck_assert_int_eq(ctl("why 1 --host other"), 2);
  output_has("this command does not have the option '--host'");
  ck_assert_int_eq(ctl("top --host other -n 1"), 2);
}

int main(void) { return suite_run_all("ctl_hosts", set_up, tear_down); }
