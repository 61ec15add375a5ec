/* test_screen.c - gpusharectl top as a person sees and uses it: on a terminal of tmux, beside jobs on a
 * simulated card. */
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner.h"
#include "scene.h"

static struct scene scene;
static struct process *tmux_server, *jobs[2];
static char screen[32768];

/* ---- tmux ---- */

/* A command of tmux, its output in `screen`. */
static bool run_tmux(const char *format, va_list list) {
  char command[1024];
  int used = snprintf(command, sizeof command, "tmux -N -S %s/tmux ", scene.folder);
  vsnprintf(command + used, sizeof command - (size_t)used, format, list);
  strncat(command, " 2>&1", sizeof command - strlen(command) - 1);
  FILE *pipe = popen(command, "r");
  CHECK(pipe != NULL);
  screen[fread(screen, 1, sizeof screen - 1, pipe)] = '\0';
  return pclose(pipe) == 0;
}

__attribute__((format(printf, 1, 2))) static bool try_tmux(const char *format, ...) {
  va_list list;
  va_start(list, format);
  bool done = run_tmux(format, list);
  va_end(list);
  return done;
}

__attribute__((format(printf, 1, 2))) static void tmux(const char *format, ...) {
  va_list list;
  va_start(list, format);
  bool done = run_tmux(format, list);
  va_end(list);
  CHECK(done, "%s", screen);
}

static void start_tmux(void) {
  char command[160], log[96], path[4096], options[4096], shell[] = "SHELL=/bin/sh";
  snprintf(command, sizeof command, "exec tmux -D -S %s/tmux -f /dev/null", scene.folder);
  snprintf(log, sizeof log, "%s/tmux.log", scene.folder);
  snprintf(path, sizeof path, "PATH=%s", getenv("PATH"));
  snprintf(options, sizeof options, "LSAN_OPTIONS=%s", getenv("LSAN_OPTIONS") ? getenv("LSAN_OPTIONS") : "");
  char *const argv[] = {"/bin/sh", "-c", command, NULL};
  char *const environment[] = {path, options, shell, "LC_ALL=C.UTF-8", "TERM=xterm-256color", NULL};
  tmux_server = process_start("tmux", argv, environment, log);
  for (uint64_t deadline = deadline_in(20); !try_tmux("show-options -g"); poll(NULL, 0, 10))
    CHECK(deadline_left_ms(deadline) > 0, "tmux does not start: %s", screen);
}

/* A shell, with a prompt that top never shows. */
static void open_terminal(const char *environment) {
  tmux("new-session -d -x 100 -y 24 \"env PS1='%%%%%%%% ' GPUSHARE_SOCKET=%s %s /bin/sh\"", scene.socket,
       environment);
}

static void begin(const char *environment) {
  if (system("command -v tmux >/dev/null") != 0)
    test_skip("no tmux");
  if (system(GS_CTL " top 2>&1 </dev/null | grep -q 'has no ncurses'") == 0)
    test_skip("gpusharectl is built without ncurses");
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "1h", NULL);
  start_tmux();
  open_terminal(environment);
}

/* What ran on the terminals ends with them, as orphans, which come to us (begin). */
static void reap_orphans(void) {
  uint64_t deadline = deadline_in(20);
  for (pid_t pid = 0; pid >= 0; pid = waitpid(-1, NULL, WNOHANG)) {
    CHECK(deadline_left_ms(deadline) > 0, "what ran on a terminal does not end");
    if (pid == 0)
      poll(NULL, 0, 5);
  }
}

static void end(void) {
  try_tmux("kill-server");
  process_wait(tmux_server);
  scene_end(&scene);
  reap_orphans();
}

/* A program of this name, which has so much memory, and has had the GPU. */
static struct process *start_job(const char *name) {
  char path[96];
  snprintf(path, sizeof path, "%s/%s", scene.folder, name);
  CHECK(symlink(GS_PROGRAMS "/idler", path) == 0);
  return scene_start(&scene, NULL, path, NULL);
}

static void await_idle(struct process *job) { process_expect(job, "idle", NULL, 0); }

static void end_job(struct process *job) {
  process_close_input(job);
  process_wait_exit(job, 0);
}

static void press(const char *keys) { tmux("send-keys %s", keys); }

/* A line for the shell. */
static void enter(const char *text) {
  tmux("send-keys -l '%s'", text);
  press("Enter");
}

static void look(const char *options) { tmux("capture-pane -p %s", options); }

/* Of texts on the screen; below NULL: only the other one, and not that where `gone`. */
struct sight {
  const char *above, *below;
  bool gone;
};

static bool is_seen(const struct sight *sight) {
  const char *above = strstr(screen, sight->above),
             *below = sight->below ? strstr(screen, sight->below) : NULL;
  return sight->below ? above && below && above < below : (above != NULL) != sight->gone;
}

static void await_sight(struct sight sight) {
  uint64_t deadline = deadline_in(20);
  for (look(""); !is_seen(&sight); look("")) {
    CHECK(deadline_left_ms(deadline) > 0, "'%s'%s%s%s, but there is:\n%s", sight.above,
          sight.gone ? " should be gone" : " is awaited", sight.below ? " above " : "",
          sight.below ? sight.below : "", screen);
    poll(NULL, 0, 20);
  }
}

static void await(const char *text) { await_sight((struct sight){.above = text}); }

static void await_gone(const char *text) { await_sight((struct sight){.above = text, .gone = true}); }

static void await_order(const char *above, const char *below) {
  await_sight((struct sight){.above = above, .below = below});
}

static void start_top(const char *options) {
  char line[512];
  snprintf(line, sizeof line, "%s top -d 0.1 %s", GS_CTL, options);
  enter(line);
  await("gpushare-daemon ");
}

/* ---- tests ---- */

#define TRAIN "     1 root       train  "
#define INFER "     2 root       infer  "

/* Nobody has work: the last one has the GPU. */
static void begin_with_jobs(const char *environment) {
  begin(environment);
  jobs[0] = start_job("train");
  await_idle(jobs[0]);
  jobs[1] = start_job("infer");
  await_idle(jobs[1]);
  start_top("");
  await(INFER);
}

static void end_with_jobs(void) {
  end_job(jobs[0]);
  end_job(jobs[1]);
  end();
}

TEST(gpus_jobs_and_their_states_are_seen) {
  begin_with_jobs("");
  await("1 GPU, 2 jobs  every 0.1 s");
  await("GPU 0 Simulated GPU small: on, fair, turns of 3600 s; held by 2 (infer), 0 wait");
  await("] 16.0 MiB on the card, 0 B away, of 32.0 MiB");
  await("hand-overs 0.00/s, 0.00 GB/s moved, 0.0 % of the time lost");
  await("  *JOB USER       NAME             CLASS STATE            GPU%  WAIT%    ON CARD       AWAY   RATE");
  await_order(TRAIN "          std   idle              0.0    0.0    8.0 MiB        0 B      -",
              INFER "          std   holding         100.0    0.0    8.0 MiB        0 B      -");
  process_signal(jobs[1], SIGSTOP); /* it can't give the GPU back */
  struct process *third = start_job("bench");
  await("     3 root       bench            std   waiting (1)       0.0  100.0");
  await(" s left; held by 2 (infer), 1 wait");
  process_signal(jobs[1], SIGCONT);
  await("     3 root       bench            std   holding         100.0    0.0");
  await("; held by 3 (bench), 0 wait");
  await_idle(third);
  end_job(third);
  await_gone("bench");
  await("1 GPU, 2 jobs");
  end_with_jobs();
}

/* Line after line, with nothing that moves the cursor, so the line with the order is still there. */
TEST(a_dumb_terminal_is_written_to_line_by_line) {
  begin("TERM=dumb");
  jobs[0] = start_job("train");
  await_idle(jobs[0]);
  enter(GS_CTL " top");
  await_order("gpusharectl top", "gpushare-daemon ");
  await(TRAIN);
  press("C-c");
  end_job(jobs[0]);
  end();
}

TEST(keys) {
  begin_with_jobs("");
  await("*JOB ");
  await_order(TRAIN, INFER);
  press("I");
  await_order(INFER, TRAIN);
  press("N");
  await_order(TRAIN, INFER);
  press("P"); /* who has the GPU first */
  await("*GPU%");
  await_order(INFER, TRAIN);
  press("'<'");
  await("*STATE");
  press("F6");
  await("*GPU%");
  press("F1");
  await("Any key goes back.");
  press("F1");
  await("*GPU%");
  press("F4");
  press("-l INF");
  await("Filter: INF_");
  await_gone(TRAIN);
  press("Enter");
  await("only: INF");
  press("F4 Escape");
  await(TRAIN);
  press("Enter");
  await("GPU 0: job 2 (pid ");
  press("/");
  press("-l train");
  await("Search: train_");
  await("GPU 0: job 1 (pid ");
  press("Escape");
  press("Up");
  await("GPU 0: job 2 (pid ");
  press("d");
  press("-l 0.3");
  press("Enter");
  await("every 0.3 s");
  press("-");
  await("every 0.15 s");
  end_with_jobs();
}

TEST(a_job_is_paused_and_resumed) {
  begin_with_jobs("");
  press("p");
  await(TRAIN "          std   paused");
  press("p");
  await(TRAIN "          std   idle");
  end_with_jobs();
}

TEST(the_terminal_is_as_it_was) {
  begin("");
  char line[256];
  snprintf(line, sizeof line, "cd %s; stty -g >before", scene.folder);
  enter(line);
  static const char *const ends[] = {"q", "F10", "C-c"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    start_top("");
    press(ends[i]);
    await_gone("gpushare-daemon ");
    enter("clear; stty -g | cmp - before && echo the sa''me");
    await("the same");
    CHECK(!strstr(screen, "gpushare-daemon "), "%s", screen);
    enter("clear");
    await_gone("the same");
  }
  end();
}

TEST(a_daemon_that_is_gone_is_said_and_comes_back) {
  begin("");
  start_top("");
  scene_kill_daemon(&scene);
  await("(trying again)");
  await_gone("gpushare-daemon 0");
  scene_start_daemon(&scene, "--mode", "on", NULL);
  await("gpushare-daemon 0");
  end();
}

/* What does not answer is said, and the keys work. */
TEST(a_daemon_that_hangs_does_not_hold_up_the_keys) {
  begin("");
  start_top("");
  process_signal(scene.daemon, SIGSTOP);
  press("h");
  await("Any key goes back.");
  press("h");
  await("the daemon does not answer: see gpushare-daemon's log (trying again)");
  process_signal(scene.daemon, SIGCONT);
  await("gpushare-daemon 0");
  end();
}

TEST(any_size_will_do) {
  begin_with_jobs("");
  static const int sizes[][2] = {{1, 1}, {2, 2}, {10, 3}, {200, 50}, {30, 7}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tmux("resize-window -x %d -y %d", sizes[i][0], sizes[i][1]);
    press("Down");
  }
  await("  *JOB NAME");
  await("     1 train");
  tmux("resize-window -x 30 -y 4"); /* one row */
  press("End");
  await("     2 infer");
  await_gone("     1 train");
  tmux("resize-window -x 100 -y 24");
  await_order(TRAIN, INFER);
  press("F1");
  await("Any key goes back.");
  tmux("resize-window -x 20 -y 2");
  await("gpusharectl top");
  end_with_jobs();
}

static bool is_coloured(void) {
  look("-e");
  return strstr(screen, "\033[32m") || strstr(screen, "\033[46m") || strstr(screen, "\033[30m");
}

TEST(colours_are_for_terminals_that_have_them_and_who_wants_them) {
  static const struct {
    const char *environment;
    bool coloured;
  } cases[] = {{"", true}, {"NO_COLOR=1", false}, {"NO_COLOR=", true}, {"TERM=vt100", false}};
  begin("");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tmux("kill-session");
    open_terminal(cases[i].environment);
    start_top("");
    await("JOB ");
    CHECK(is_coloured() == cases[i].coloured, "%s: %s", cases[i].environment, screen);
  }
  end();
}

TEST(no_terminal_is_said) {
  begin("");
  char line[512];
  snprintf(line, sizeof line, "%s top | cat; TERM=no-such %s top; echo co''de $?", GS_CTL, GS_CTL);
  enter(line);
  await("code 2");
  const char *first = strstr(screen, "gpusharectl: top needs a terminal that ncurses knows");
  CHECK(first && strstr(first + 1, "gpusharectl: top needs a terminal"), "%s", screen);
  end();
}

TEST(plain_text_for_pipes) {
  char output[16384];
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", NULL);
  struct process *job = start_job("train");
  await_idle(job);
  uint64_t deadline = deadline_in(2); /* whoever asks for one look does not wait until a second one is due */
  CHECK(scene_ctl(&scene, output, sizeof output, "top", "--batch", "-n", "1", NULL) == 0);
  CHECK(deadline_left_ms(deadline) > 0 && strstr(output, "holding         100.0 "), "%s", output);
  CHECK(scene_ctl(&scene, output, sizeof output, "top", "--batch", "-n", "2", "-d", "0.1", NULL) == 0);
  const char *first = strstr(output, "gpushare-daemon "),
             *second = first ? strstr(first + 1, "gpushare-daemon ") : NULL;
  CHECK(second && !strstr(second + 1, "gpushare-daemon ") && !strchr(output, '\033'), "%s", output);
  CHECK(strstr(second, " train            std   holding         100.0    0.0    8.0 MiB        0 B"), "%s",
        output);
  CHECK(scene_ctl(&scene, output, sizeof output, "top", "--batch", "-n", "2", "-d", "0.1", "--json", NULL) ==
        0);
  const char *line = strchr(output, '\n');
  CHECK(strstr(output, "{\"daemon\":") == output && line && strstr(line, "{\"daemon\":") == line + 1, "%s",
        output);
  CHECK(scene_ctl(&scene, NULL, 0, "top", "--json", NULL) == 2);
  CHECK(scene_ctl(&scene, NULL, 0, "top", "-n", "2", NULL) == 2);
  CHECK(scene_ctl(&scene, NULL, 0, "top", "--batch", "-d", "0", NULL) == 2);
  CHECK(scene_ctl(&scene, NULL, 0, "status", "--batch", NULL) == 2);
  end_job(job);
  scene_end(&scene);
}
