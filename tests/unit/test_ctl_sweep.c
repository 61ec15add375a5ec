/* test_ctl_sweep.c - gpusharectl run of many jobs: who runs when, what is left of them, signals, ends. Real
 * processes, which tell what they do on descriptor 9; nobody sleeps. No daemon, no GPU. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "shell.h"
#include "suite.h"

/* The library is an empty file here: the loader complains about it on stderr and goes on. */
static char folder[] = "/tmp/gpushare-sweep-XXXXXX";
static char path[64];

static void set_up(void) {
  strcpy(folder + sizeof folder - 7, "XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_assert_int_eq(
      run_shell("cd %s && mkdir bin lib && : >lib/libunified.so && ln -s %s bin/run", folder, GS_CTL), 0);
  snprintf(path, sizeof path, "%s/lib/libunified.so", folder);
  setenv("GPUSHARE_LIB", path, 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  ck_assert_int_eq(chdir(folder), 0);
}

static void tear_down(void) {
  ck_assert_int_eq(chdir("/"), 0);
  ck_assert_int_eq(run_shell("rm -r %s", folder), 0);
}

/* gpusharectl run with these arguments: its exit code; its stderr is `output`. */
#define run_many(arguments) run_shell("%s run %s 2>&1 >stdout", GS_CTL, arguments)

static void expect_text(const char *command, const char *wanted) {
  ck_assert_int_eq(run_shell("%s", command), 0);
  ck_assert_str_eq(output, wanted);
}

/* index, result and tries of each job in the folder `o` */
static void expect_results(const char *wanted) {
  expect_text("tail -n +2 o/results.tsv | cut -f 1,2,4 | sort -n | tr '\\t' ' '", wanted);
}

static void write_file(const char *name, const char *text) {
  FILE *file = fopen(name, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs(text, file), 0);
  ck_assert_int_eq(fclose(file), 0);
}

/* ---- a gpusharectl that the test goes on beside ---- */

static pid_t started;
static int heard; /* of what is written to descriptor 9, by anybody that has come from it */

static void start(const char *arguments) {
  char command[2048];
  int fds[2];
  ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
  snprintf(command, sizeof command, "exec 9>&%d; exec %s run %s 2>stderr", fds[1], GS_CTL, arguments);
  started = fork();
  ck_assert_int_ge(started, 0);
  if (started == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test fails */
    setpgid(0, 0);                    /* so that its group is not an orphaned one, which can't be stopped */
    fcntl(fds[1], F_SETFD, 0);
    execl("/bin/sh", "sh", "-c", command, NULL);
    _exit(127);
  }
  close(fds[1]);
  heard = fds[0];
}

/* The next line. */
static void expect_heard(const char *wanted) {
  char line[64];
  size_t length = 0;
  while (length < sizeof line - 1 && read(heard, &line[length], 1) == 1 && line[length] != '\n')
    length++;
  line[length] = '\0';
  ck_assert_str_eq(line, wanted);
}

/* All that could write have ended, and have not. */
static void expect_nobody_left(void) {
  expect_heard("");
  close(heard);
}

static void expect_exit(int code) {
  int status;
  ck_assert_int_eq(waitpid(started, &status, 0), started);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == code, "status %x", (unsigned)status);
}

/* ---- jobs and what is left of them ---- */

struct left {
  const char *command, *output;
};

/* A run of many: what it is given, and what is to become of it. */
struct run {
  const char *list, *devices, *arguments;
  int code;
  const char *said[3], *unsaid; /* on stderr */
  const char *results;          /* as expect_results has them; NULL: whatever there is */
  struct left left[2];
};

static void expect_run(const struct run *run) {
  if (run->list)
    write_file("list", run->list);
  setenv("CUDA_VISIBLE_DEVICES", run->devices ? run->devices : "", 1);
  int code = run_many(run->arguments);
  ck_assert_msg(code == run->code, "%s: %d: %s", run->arguments, code, output);
  for (size_t i = 0; i < 3 && run->said[i]; i++)
    output_has(run->said[i]);
  if (run->unsaid)
    output_lacks(run->unsaid);
  if (run->results)
    expect_results(run->results);
  for (size_t i = 0; i < 2 && run->left[i].command; i++)
    expect_text(run->left[i].command, run->left[i].output);
  run_shell("rm -rf o once");
}

/* What each job sees, in order. */
#define SEEN "cat $(ls o/*.out | sort -V)"
#define SHOW "sh -c 'echo $CUDA_VISIBLE_DEVICES'"

START_TEST(jobs_know_themselves_and_their_ends_are_told) {
  static const struct run runs[] = {
      {.arguments =
           "-n 3 --output o -- sh -c 'echo $GPUSHARE_JOB_INDEX of $GPUSHARE_JOB_COUNT; echo wrong >&2'",
       .results = "0 0 1\n1 0 1\n2 0 1\n",
       .left = {{"cat o/0.out o/1.out o/2.out stdout", "0 of 3\n1 of 3\n2 of 3\n"},
                {"grep -c wrong o/0.err", "1\n"}}},
      {.list = "# two\nA='x y' one \"two  words\"\n\nthree\n",
       .arguments = "--jobs list --output o -- sh -c 'echo \"$A|$1|$2|${LD_PRELOAD##*/}\"' sh",
       .left = {{"cat o/0.out o/1.out", "x y|one|two  words|libunified.so\n|three||libunified.so\n"},
                {"grep -m1 ^0 o/results.tsv | cut -f 5",
                 "A='x y' sh -c 'echo \"$A|$1|$2|${LD_PRELOAD##*/}\"' sh one 'two  words'\n"}}},
      {.list = "echo a\nprintf b", /* may name the programs, and come from stdin */
       .arguments = "--jobs - --output o <list",
       .left = {{"cat o/0.out o/1.out", "a\nb"}}},
      {.list = "text", .arguments = "-n 2 --output o cat <list", .left = {{"cat o/0.out o/1.out", ""}}},
      {.list = "'exit 7'\n'kill -9 $$'\n'exec no-such-program'\ntrue\n",
       .arguments = "--jobs list --output o sh -c",
       .code = 1,
       .said = {": exit code 7\n", ": signal 9 (Killed)\n",
                "1 done, 3 failed, 0 not started; their output is in o\n"},
       .results = "0 7 1\n1 signal 9 1\n2 127 1\n3 0 1\n"},
      {.arguments = "-n 1 --output o no-such-program",
       .code = 1,
       .said = {"job 0 failed after "},
       .left = {{"grep -v ld.so o/0.err",
                 "gpusharectl: can't run no-such-program: No such file or directory\n"}}},
      {.list = "'echo try; mkdir once'\n'echo try; exit 3'\n",
       .arguments = "-n 1 --jobs list --output o --retry 2 sh -c 'mkdir once && exit 1; eval \"$0\"'",
       .code = 1,
       .results = "0 1 3\n1 3 3\n",
       .left = {{"cat o/1.out", "try\ntry\ntry\n"}}},
      {.arguments = "-n 1 --output o --retry 1 sh -c 'echo try; mkdir once && exit 1; true'",
       .said = {"exit code 1, it is tried again\n"},
       .left = {{"cat o/0.out", "try\ntry\n"}}},
      /* Lines of ours: the index in front, and the line whole, or in pieces if it is too long. */
      {.list = "'printf \"a\\n\\nb\"; printf \"\\n c\"; echo wrong >&2'\n",
       .arguments = "--prefix --jobs list sh -c",
       .said = {"[0] wrong\n"},
       .left = {{"cat stdout", "[0] a\n[0] \n[0] b\n[0]  c\n"},
                {"ls -d gpushare-run-* 2>/dev/null | wc -l", "0\n"}}},
      {.list = "': >meet'\n': <meet'\n", /* both write at the same time, by and by */
       .arguments =
           "--prefix --jobs list sh -c 'mkfifo meet 2>/dev/null; eval \"$0\"; i=0; while [ $i -lt 500 ]; do "
           "printf abc; echo def; i=$((i+1)); done'",
       .left = {{"sort stdout | uniq -c | tr -s ' '", " 500 [0] abcdef\n 500 [1] abcdef\n"}}},
      {.arguments = "--prefix -n 1 sh -c 'head -c 20000 /dev/zero | tr \"\\0\" x'",
       .left = {{"cut -d ' ' -f 1 stdout | uniq -c | tr -s ' '", " 3 [0]\n"},
                {"tr -cd x <stdout | wc -c", "20000\n"}}}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
    expect_run(&runs[i]);
}
END_TEST

/* Parts of cards are taken as they are named, so they need not be there. */
START_TEST(gpus_are_spread_over_jobs) {
  static const struct run runs[] = {
      {.devices = "MIG-a,MIG-b,MIG-c",
       .list = "a\nCUDA_VISIBLE_DEVICES=7 b\nc\nGPUSHARE_GANG=g d\ne\nf\n",
       .arguments = "--jobs list --output o -- " SHOW,
       .said = {"3 GPUs are visible, each job gets 1; see --gpus-per-job\n",
                "job 0 started on MIG-a: ", "job 1 started: CUDA_VISIBLE_DEVICES=7 "},
       .left = {{SEEN, "MIG-a\n7\nMIG-b\nMIG-a,MIG-b,MIG-c\nMIG-c\nMIG-a\n"},
                {"tail -n +2 o/results.tsv | cut -f 1,6 | sort -n | tr '\\t' ' '",
                 "0 MIG-a\n1 \n2 MIG-b\n3 \n4 MIG-c\n5 MIG-a\n"}}},
      {.devices = "MIG-a,MIG-b", /* job 0 stays until the last one has come */
       .list = "': <meet'\ntrue\ntrue\ntrue\n': >meet'\n",
       .arguments = "-n 2 --jobs list --output o sh -c 'mkfifo meet 2>/dev/null; eval \"$1\"; echo "
                    "$CUDA_VISIBLE_DEVICES' sh",
       .left = {{SEEN, "MIG-a\nMIG-b\nMIG-b\nMIG-b\nMIG-b\n"}}},
      {.devices = "MIG-a,MIG-b", /* a job that fails leaves its GPU */
       .arguments = "-n 1 --retry 2 --output o sh -c 'echo $CUDA_VISIBLE_DEVICES; exit 1'",
       .code = 1,
       .said = {" on MIG-a: exit code 1, it is tried again\n"},
       .left = {{"cat o/0.out", "MIG-a\nMIG-a\nMIG-a\n"}}},
      {.devices = "MIG-a,MIG-b,MIG-c",
       .arguments = "-n 2 --gpus-per-job 2 --output o " SHOW,
       .left = {{SEEN, "MIG-a,MIG-b\nMIG-a,MIG-c\n"}}},
      {.devices = "MIG-a,MIG-b,MIG-c",
       .arguments = "-n 2 --gpus-per-job all --output o " SHOW,
       .unsaid = "see --gpus-per-job",
       .left = {{SEEN, "MIG-a,MIG-b,MIG-c\nMIG-a,MIG-b,MIG-c\n"}}},
      {.devices = "MIG-a,MIG-b",
       .arguments = "-n 2 --gpus-per-job 3 true",
       .code = 2,
       .said = {"--gpus-per-job is 3, but the number of visible GPUs is 2; CUDA_VISIBLE_DEVICES is "
                "MIG-a,MIG-b\n"}}};
  /* Processes of a gang keep what they see. */
  static const struct run of_gang[] = {{.devices = "MIG-a,MIG-b",
                                        .arguments = "-n 2 --output o " SHOW,
                                        .left = {{SEEN, "MIG-a,MIG-b\nMIG-a,MIG-b\n"}}},
                                       {.devices = "MIG-a,MIG-b",
                                        .arguments = "-n 2 --gpus-per-job 1 --output o " SHOW,
                                        .left = {{SEEN, "MIG-a\nMIG-b\n"}}}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
    expect_run(&runs[i]);
  setenv("GPUSHARE_GANG", "g", 1);
  for (size_t i = 0; i < sizeof of_gang / sizeof *of_gang; i++)
    expect_run(&of_gang[i]);
  unsetenv("GPUSHARE_GANG");
}
END_TEST

/* Jobs 0 and 1 meet; a third one must not have been started before either has ended. */
START_TEST(so_many_run_at_once) {
  write_file("list", "': >meet'\n': <meet'\ntrue\ntrue\ntrue\n");
  ck_assert_int_eq(run_many("-n 2 --jobs list sh -c 'mkfifo meet 2>/dev/null; eval \"$1\"' sh"), 0);
  int running = 0, most = 0;
  for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
    running += strstr(line, " started: ") ? 1 : strstr(line, " done in ") ? -1 : 0;
    most = running > most ? running : most;
  }
  ck_assert_int_eq(most, 2);
  ck_assert_int_eq(running, 0);
  write_file("list", "': >meet0; : <meet1'\n': <meet0; : >meet2'\n': >meet1; : <meet2'\n"); /* all */
  ck_assert_int_eq(run_many("--jobs list sh -c 'mkfifo meet0 meet1 meet2 2>/dev/null; eval \"$1\"' sh"), 0);
}
END_TEST

START_TEST(results_are_not_written_over) {
  ck_assert_int_eq(run_shell("mkdir o && %s run -n 1 --output o echo first 2>&1", GS_CTL), 0);
  ck_assert_int_eq(run_many("-n 1 --output o echo second"), 1);
  output_has("there are results in o: name another folder\n");
  expect_text("cat o/0.out", "first\n");
  ck_assert_int_eq(run_shell("rm o/results.tsv"), 0);
  ck_assert_int_eq(run_many("-n 1 --output o echo second"), 0);
  expect_text("cat o/0.out", "second\n");
  ck_assert_int_eq(run_many("-n 1 --output no/where true"), 1);
  output_has("can't make the folder no/where: No such file or directory\n");
  ck_assert_int_eq(run_many("-n 1 true"), 0); /* two of the same second */
  ck_assert_int_eq(run_many("-n 1 true"), 0);
  expect_text("ls -d gpushare-run-2*/results.tsv | wc -l", "2\n");
}
END_TEST

/* Who has left its group may hold its stream open for ever: here until the test ends. */
START_TEST(a_stream_that_stays_open_is_not_waited_for) {
  ck_assert_int_eq(run_shell("mkfifo stay go"), 0);
  start("--prefix -n 1 sh -c 'setsid sh -c \"echo out >&9; read x <stay\" & echo said; : <go' >stdout");
  expect_heard("out");
  ck_assert_int_eq(run_shell(": >go"), 0);
  expect_exit(0);
  expect_text("cat stdout", "[0] said\n");
  ck_assert_int_eq(run_shell(": >stay"), 0);
  expect_nobody_left();
}
END_TEST

/* ---- ends ---- */

/* Job 1 says so and stays; job 0 then fails; job 2 would be next. */
#define FAIL_FAST "': <meet; exit 5'\n'echo ready >&9; : >meet; sleep 1000 & wait'\ntrue\n"

START_TEST(the_first_failure_ends_the_rest) {
  write_file("list", FAIL_FAST);
  ck_assert_int_eq(run_shell("mkfifo meet"), 0);
  start("--fail-fast -n 2 --jobs list --output o sh -c");
  expect_heard("ready");
  expect_exit(1);
  expect_nobody_left();
  expect_results("0 5 1\n1 signal 15 1\n2 not started 0\n");
}
END_TEST

START_TEST(who_does_not_end_is_killed) {
  write_file("list", FAIL_FAST);
  ck_assert_int_eq(run_shell("mkfifo meet"), 0);
  start("--fail-fast --grace 100ms -n 2 --jobs list --output o sh -c 'trap \"\" TERM; eval \"$0\"'");
  expect_heard("ready");
  expect_exit(1);
  expect_nobody_left();
  expect_results("0 5 1\n1 signal 9 1\n2 not started 0\n");
}
END_TEST

START_TEST(what_a_job_leaves_is_killed) {
  start("-n 2 --output o sh -c 'trap \"\" TERM HUP; sleep 1000 & echo left >&9'");
  expect_heard("left");
  expect_heard("left");
  expect_exit(0);
  expect_nobody_left();
}
END_TEST

/* Its first child. */
static void signal_guard(int number) {
  ck_assert_int_eq(
      run_shell("kill -%d $(cut -d ' ' -f 1 /proc/%d/task/%d/children)", number, started, started), 0);
}

START_TEST(nobody_outlives_a_killed_gpusharectl) {
  start("-n 2 --output o sh -c 'trap \"\" TERM HUP; sleep 1000 & echo ready >&9; wait'");
  expect_heard("ready");
  expect_heard("ready");
  signal_guard(SIGTERM); /* as who ends all processes of a service */
  kill(started, SIGKILL);
  expect_nobody_left();
}
END_TEST

START_TEST(without_its_guard_programs_end_all_the_same) {
  start("-n 1 --output o sh -c 'echo ready >&9; exec sleep 1000'");
  expect_heard("ready");
  signal_guard(SIGKILL);
  kill(started, SIGKILL);
  expect_nobody_left();
}
END_TEST

/* ---- signals ---- */

/* To a program that a job has started, which then ends. */
static void forward(int number, const char *name) {
  char text[128];
  snprintf(text, sizeof text, "trap 'echo got >&9; exit 4' %s; echo ready >&9; sleep 1000 & wait", name);
  write_file("inner", text);
  snprintf(text, sizeof text, "trap : %s; sh inner; exit 5", name);
  write_file("outer", text);
  write_file("list", "a\nb\nc\n");
  start("-n 2 --jobs list --retry 1 --output o sh outer");
  expect_heard("ready");
  expect_heard("ready");
  kill(started, number);
  expect_heard("got");
  expect_heard("got");
  expect_exit(1);
  expect_nobody_left();
  expect_results("0 5 1\n1 5 1\n2 not started 0\n");
  ck_assert_int_eq(run_shell("rm -r o"), 0);
}

START_TEST(signals_are_for_the_jobs) {
  forward(SIGINT, "INT");
  forward(SIGTERM, "TERM");
  forward(SIGHUP, "HUP");
}
END_TEST

START_TEST(a_stopped_job_ends_too) {
  start("-n 1 --output o sh -c 'trap \"exit 4\" TERM; (kill -STOP $$; echo stopped >&9) & wait'");
  expect_heard("stopped");
  kill(started, SIGTERM);
  expect_exit(1);
  expect_nobody_left();
}
END_TEST

START_TEST(a_second_interrupt_kills) {
  start("-n 1 --output o sh -c 'trap \"echo got >&9\" INT; echo ready >&9; while :; do sleep 1000 & wait; "
        "done'");
  expect_heard("ready");
  kill(started, SIGINT);
  expect_heard("got");
  kill(started, SIGINT);
  expect_exit(1);
  expect_nobody_left();
  expect_results("0 signal 9 1\n");
}
END_TEST

START_TEST(all_stop_and_go_on) {
  int status;
  start("-n 1 --output o sh -c 'trap \"echo stopped >&9\" TSTP; trap \"echo on >&9; exit 0\" CONT; echo "
        "ready >&9; "
        "while :; do sleep 1000 & wait; done'");
  expect_heard("ready");
  kill(started, SIGTSTP);
  ck_assert_int_eq(waitpid(started, &status, WUNTRACED), started);
  ck_assert_msg(WIFSTOPPED(status), "status %x", (unsigned)status);
  expect_heard("stopped");
  kill(started, SIGCONT);
  expect_heard("on");
  expect_exit(0);
  expect_nobody_left();
}
END_TEST

/* As under nohup: the second job is started all the same. */
START_TEST(an_ignored_signal_stays_ignored) {
  ck_assert_int_eq(run_shell("mkfifo go"), 0);
  signal(SIGHUP, SIG_IGN);
  write_file("list", "'echo ready >&9; : <go'\n'echo second >&9'\n");
  start("-n 1 --jobs list --output o sh -c");
  expect_heard("ready");
  kill(started, SIGHUP);
  ck_assert_int_eq(run_shell(": >go"), 0);
  expect_heard("second");
  expect_exit(0);
  expect_nobody_left();
}
END_TEST

/* ---- what a person sees ---- */

/* What comes out of a terminal that is the stderr of a command. */
static void run_on_terminal(const char *term, const char *arguments) {
  int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ck_assert_int_ge(terminal, 0);
  ck_assert_int_eq(grantpt(terminal), 0);
  ck_assert_int_eq(unlockpt(terminal), 0);
  ck_assert_int_ge(run_shell("TERM=%s %s run %s 2>%s", term, GS_CTL, arguments, ptsname(terminal)), 0);
  size_t length = 0;
  for (ssize_t count;
       (count = read(terminal, output + length, sizeof output - 1 - length)) > 0;) /* then EIO */
    length += (size_t)count;
  output[length] = '\0';
  close(terminal);
}

START_TEST(a_terminal_has_one_line) {
  write_file("list", "false\ntrue\n");
  run_on_terminal("xterm", "-n 1 --output o --jobs list");
  output_has("\r\033[K1 running, 1 waiting, 0 done, 0 failed ");
  output_has("\r\033[Kgpusharectl: job 0 failed after ");
  output_has(": exit code 1\r\n");
  output_has("\r\033[K1 running, 0 waiting, 0 done, 1 failed ");
  output_has("\r\033[Kgpusharectl: 1 done, 1 failed, 0 not started; their output is in o\r\n");
  output_lacks("started:");
}
END_TEST

START_TEST(a_terminal_tells_how_long_it_takes) {
  write_file("list", "1.1\n0\n0\n");
  run_on_terminal("xterm", "-n 1 --output o --jobs list sleep");
  output_has("\r\033[K1 running, 2 waiting, 0 done, 0 failed ");
  output_has("\r\033[K1 running, 1 waiting, 1 done, 0 failed, about "); /* 2 s */
  output_has(" left ");
}
END_TEST

START_TEST(a_dumb_terminal_has_a_line_for_each_event) {
  run_on_terminal("dumb", "-n 2 --output o true");
  output_has("gpusharectl: job 1 started: true\r\n");
  output_has("gpusharectl: job 1 done in ");
  output_lacks("\033");
}
END_TEST

START_TEST(many_jobs_have_the_name_with_their_index) {
  ck_assert_int_eq(run_shell("%s run -n 2 --name 'a sweep with a name that is long' --prefix sh -c "
                             "'echo $GPUSHARE_NAME.' 2>&1",
                             GS_CTL),
                   2);
  output_has("--name is at most 31 printable characters of ASCII, not 'a sweep with a name that is long'");
  ck_assert_int_eq(run_shell("%s run -n 2 --name 'a sweep with a name, that long' --prefix sh -c "
                             "'echo $GPUSHARE_NAME.' 2>&1",
                             GS_CTL),
                   0);
  output_has("[0] a sweep with a name, that lon.0.\n");
  output_has("[1] a sweep with a name, that lon.1.\n");
}
END_TEST

START_TEST(wrong_usage_is_said) {
  static const struct {
    const char *arguments, *text;
  } wrong[] = {{"run -n 2", "an argument is missing after 'run'"},
               {"run -n", "the value is missing after '-n'"},
               {"run -n '' true", "the value is missing after '-n'"},
               {"run -n 0 true", "-n is a number from 1 to 1000000, not '0'"},
               {"run -n 2x true", "-n is a number from 1 to 1000000, not '2x'"},
               {"run -n -1 true", "-n is a number from 1 to 1000000, not '-1'"},
               {"run -n 99999999999999999999 true", "-n is a number from 1 to"},
               {"run -n 1 --retry x true", "--retry is a number from 0 to"},
               {"run -n 1 --grace x true", "--grace is a duration"},
               {"run -n 1 --prefix --output o true", "--prefix writes no files"},
               {"run -n 1 --gpus-per-job 0 true", "--gpus-per-job is all, or a number from 1 to 64, not '0'"},
               {"run -n 1 --gpus-per-job many true", "--gpus-per-job is all, or a number from"},
               {"run --gpus-per-job 1 true", "are for many jobs: -n or --jobs"},
               {"run --retry 1 true", "are for many jobs: -n or --jobs"},
               {"run --fail-fast true", "are for many jobs: -n or --jobs"},
               {"run --jobs nowhere true", "can't read the jobs in nowhere: No such file"},
               {"run --jobs /dev/null true", "can't read the jobs in /dev/null: it is empty"},
               {"run --jobs . true", "can't read the jobs in .: Is a directory"},
               {"run --jobs comments true", "can't read the jobs in comments: there are none"},
               {"run --jobs zero true", "can't read the jobs in zero: it is not text"},
               {"run --jobs quote true", "quote, line 2: a quote is not closed"},
               {"run --jobs bare", "bare, line 2: no program is named"},
               {"status -n 2", "this command does not have the option '-n'"},
               {"on --jobs x", "only run has the option '--jobs'"}};
  ck_assert_int_eq(
      run_shell("echo '#' >comments; printf 'a\\0b' >zero; printf 'a\\n\"b' >quote; printf 'a\\nB=1' >bare"),
      0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(run_shell("%s %s 2>&1", GS_CTL, wrong[i].arguments) == 2, "%s: %s", wrong[i].arguments,
                  output);
    output_has(wrong[i].text);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {jobs_know_themselves_and_their_ends_are_told,
                                gpus_are_spread_over_jobs,
                                so_many_run_at_once,
                                results_are_not_written_over,
                                a_stream_that_stays_open_is_not_waited_for,
                                the_first_failure_ends_the_rest,
                                who_does_not_end_is_killed,
                                what_a_job_leaves_is_killed,
                                nobody_outlives_a_killed_gpusharectl,
                                without_its_guard_programs_end_all_the_same,
                                signals_are_for_the_jobs,
                                a_stopped_job_ends_too,
                                a_second_interrupt_kills,
                                all_stop_and_go_on,
                                an_ignored_signal_stays_ignored,
                                a_terminal_has_one_line,
                                a_terminal_tells_how_long_it_takes,
                                a_dumb_terminal_has_a_line_for_each_event,
                                many_jobs_have_the_name_with_their_index,
                                wrong_usage_is_said,
                                NULL};
  return suite_main("ctl_sweep", tests, set_up, tear_down);
}
