/* test_daemon_hook.c - on_job_end: what is run when a job has ended, what it is told, and that nobody waits
 * for it. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text_file.h"
#include "common/wire.h"
#include "daemon_process.h"
#include "server/hook.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)

static struct daemon_process daemon_process, *const it = &daemon_process;
static char folder[64], log_path[96];

static void start(const char *command) {
  daemon_start(it, (const char *const[]){"--on-job-end", command, NULL});
}

static void set_up(void) {
  strcpy(folder, "/tmp/gpushare-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(log_path, sizeof log_path, "%s/log", folder);
}

static void tear_down(void) {
  daemon_clean_up(it);
  run_shell("rm -rf %s", folder);
}

/* A job that ends with this status, by a word to the daemon. */
static void run_job(int32_t status) {
  struct gs_msg command = wire_msg(GS_COMMAND, 0), exiting = wire_msg(GS_EXITING, 0);
  int fd = register_client(it);
  strcpy(command.command.text, "train.py --lr '0.1; rm -rf /'");
  exiting.exiting.status = status;
  tell(fd, &command);
  attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
  tell(fd, &exiting);
  close(fd);
}

/* So many lines are in the hook's file. */
static void await_lines(unsigned count) {
  for (int tries = 0; tries < 1000; tries++) {
    run_shell("cat %s 2>/dev/null | wc -l", log_path);
    if (atoi(output) >= (int)count)
      break;
    usleep(20000);
  }
  run_shell("cat %s", log_path);
}

/* Writes down the job; and stays, once it is told to. */
static void start_noting(void) {
  char command[256];
  snprintf(command, sizeof command, "echo $GPUSHARE_JOB_ID >>%s; test ! -e %s/stay || exec sleep 1000",
           log_path, folder);
  start(command);
}

/* As many jobs end as there are places, and their hooks stay there: those of the `lines` before are over.
 * What has been written is in the output, sorted. */
static void fill_places(unsigned lines) {
  run_shell("touch %s/stay", folder);
  for (int i = 0; i < HOOK_AT_ONCE; i++)
    run_job(0);
  await_lines(lines + HOOK_AT_ONCE);
  run_shell("sort -n %s", log_path);
}

TEST(it_is_told_of_the_job) {
  char command[256];
  snprintf(command, sizeof command, "env >%s/new && mv %s/new %s", folder, folder, log_path);
  start(command);
  run_job(3);
  await_lines(10);
  output_has("GPUSHARE_JOB_ID=1\n");
  output_has("GPUSHARE_JOB_COMMAND=train.py --lr '0.1; rm -rf /'\n");
  output_has("GPUSHARE_JOB_END=exit\n");
  output_has("GPUSHARE_JOB_STATUS=3\n");
  output_has("GPUSHARE_JOB_GPU_SECONDS=0.");
  output_has("PATH=");
  output_lacks("CK_"); /* nothing else of the daemon's environment */
  char uid[48];
  snprintf(uid, sizeof uid, "GPUSHARE_JOB_UID=%u\n", geteuid());
  output_has(uid);
  output_has("GPUSHARE_JOB_STARTED=1");
}

TEST(each_end_is_told_once) {
  start_noting();
  for (int i = 0; i < 30; i++)
    run_job(0);
  await_lines(30);
  fill_places(30);
  run_shell("sort -n %s | uniq | wc -l; wc -l <%s", log_path, log_path);
  ck_assert_str_eq(output, "34\n34\n");
}

/* A program that only looks at its GPUs is no job. */
TEST(what_was_on_no_gpu_is_not_told) {
  start_noting();
  close(register_client(it));
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 0) /* until it has been heard of */
    usleep(1000);
  run_job(0);
  await_lines(1);
  fill_places(1);
  ck_assert_str_eq(output, "2\n3\n4\n5\n6\n");
}

TEST(nobody_waits_for_it) {
  char command[256];
  snprintf(command, sizeof command, "echo begun >>%s; sleep 1000; echo over >>%s", log_path, log_path);
  start(command);
  for (int i = 0; i < HOOK_WAITING + 20; i++)
    run_job(0);
  uint64_t begin_ns = clock_now_ns();
  get_status(it, GS_STATUS_DAEMON);
  ck_assert_uint_lt(clock_now_ns() - begin_ns, 100 * NS_PER_S);
  await_lines(HOOK_AT_ONCE);
  begin_ns = clock_now_ns();
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  ck_assert_uint_lt(clock_now_ns() - begin_ns, 100 * NS_PER_S);
  run_shell("cat %s", log_path);
  output_lacks("over");
}

TEST(no_more_run_at_once_than_there_are_places) {
  char command[400];
  int running = 0;
  snprintf(command, sizeof command, "echo + >>%s; while test -e %s/stay; do sleep 0.01; done; echo - >>%s",
           log_path, folder, log_path);
  run_shell("touch %s/stay", folder);
  start(command);
  for (int i = 0; i < 40; i++)
    run_job(0);
  await_lines(HOOK_AT_ONCE);
  run_shell("rm %s/stay", folder);
  await_lines(80);
  ck_assert_uint_eq(strlen(output), 2 * 80);
  for (const char *line = output; *line; line += 2) {
    running += *line == '+' ? 1 : -1;
    ck_assert_int_le(running, HOOK_AT_ONCE);
  }
}

/* Each end by the setting that there is then. */
TEST(none_is_none_and_a_reload_counts) {
  char text[256];
  const char *const settings[] = {NULL, text, "on_job_end = off\n", text};
  snprintf(text, sizeof text, "on_job_end = echo $GPUSHARE_JOB_ID >>%s\n", log_path);
  daemon_start(it, (const char *const[]){NULL});
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    if (settings[i])
      daemon_configure(it, settings[i]);
    run_job(0);
    get_status(it, GS_STATUS_DAEMON); /* the end has been heard of */
    await_lines(i == 1 ? 1 : i == 3 ? 2 : 0);
  }
  ck_assert_str_eq(output, "2\n4\n");
}

int main(void) { return suite_run_all("daemon_hook", set_up, tear_down); }
