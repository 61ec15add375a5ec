/* process.c - start, talk to, wait for and dump the processes of a test; see process.h. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner.h"

static struct process processes[PROCESS_MAX];
static int process_count;

/* Only async-signal-safe calls: between fork and exec. */
_Noreturn static void become(const struct process *process, int in, int out, char *const argv[],
                             char *const environment[]) {
  int log = open(process->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGUSR1, SIG_DFL);
  if (log < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(log, 2) < 0)
    _exit(126);
  execve(argv[0], argv, environment);
  dprintf(2, "cannot run %s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

struct process *process_start(const char *name, char *const argv[], char *const environment[],
                              const char *log) {
  CHECK(process_count < PROCESS_MAX, "too many processes");
  struct process *process = &processes[process_count++];
  int in[2], out[2];
  *process = (struct process){.alive = true};
  snprintf(process->name, sizeof process->name, "%s", name);
  snprintf(process->log, sizeof process->log, "%s", log);
  CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipe: %s", strerror(errno));
  process->pid = fork();
  CHECK(process->pid >= 0, "fork: %s", strerror(errno));
  if (process->pid == 0)
    become(process, in[0], out[1], argv, environment);
  close(in[0]);
  close(out[1]);
  process->in = in[1];
  process->out = out[0];
  process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
  CHECK(process->pidfd >= 0, "pidfd_open: %s", strerror(errno));
  return process;
}

/* Take one line out of what has been read. */
static bool take_line(struct process *process, char *line, size_t size) {
  char *end = memchr(process->text, '\n', process->filled);
  if (!end)
    return false;
  size_t length = (size_t)(end - process->text);
  snprintf(line, size, "%.*s", (int)length, process->text);
  process->filled -= length + 1;
  memmove(process->text, end + 1, process->filled);
  return true;
}

/* One read(2): 0 at the end of its stdout. */
static ssize_t read_more(struct process *process) {
  CHECK(process->filled < sizeof process->text, "%s: line too long", process->name);
  ssize_t got = read(process->out, process->text + process->filled, sizeof process->text - process->filled);
  process->filled += got > 0 ? (size_t)got : 0;
  return got;
}

bool process_next_line(struct process *process, char *line, size_t size) {
  struct pollfd readable = {.fd = process->out, .events = POLLIN};
  while (!take_line(process, line, size))
    if (poll(&readable, 1, 0) <= 0 || read_more(process) <= 0)
      return false;
  return true;
}

bool process_line(struct process *process, char *line, size_t size) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  while (!take_line(process, line, size)) {
    struct pollfd readable = {.fd = process->out, .events = POLLIN};
    int ready = poll(&readable, 1, deadline_left_ms(deadline));
    CHECK(ready != 0, "%s says nothing", process->name);
    if (read_more(process) == 0)
      return false;
  }
  return true;
}

void process_expect(struct process *process, const char *text, char *line, size_t size) {
  char own[512];
  char *where = line ? line : own;
  size_t room = line ? size : sizeof own;
  *where = '\0';
  while (process_line(process, where, room))
    if (strncmp(where, text, strlen(text)) == 0)
      return;
  test_fail(__FILE__, __LINE__, "%s ended before it said '%s', but after '%s'", process->name, text, where);
}

void process_drain(struct process *process) {
  struct pollfd readable = {.fd = process->out, .events = POLLIN};
  while (poll(&readable, 1, 0) > 0 && read(process->out, process->text, sizeof process->text) > 0)
    ;
  process->filled = 0;
}

void process_say(struct process *process, const char *text) {
  ssize_t written = dprintf(process->in, "%s\n", text);
  (void)written;
}

void process_close_input(struct process *process) {
  if (process->in >= 0)
    close(process->in);
  process->in = -1;
}

void process_signal(struct process *process, int signal_number) {
  if (process->alive)
    kill(process->pid, signal_number);
}

static void drop_output(struct process *process) {
  if (read(process->out, process->text, sizeof process->text) <= 0) {
    close(process->out);
    process->out = -1;
  }
}

int process_wait(struct process *process) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  int status = 0;
  process_close_input(process);
  for (;;) {
    struct pollfd events[] = {{.fd = process->pidfd, .events = POLLIN},
                              {.fd = process->out, .events = POLLIN}};
    CHECK(poll(events, 2, deadline_left_ms(deadline)) != 0, "%s does not end", process->name);
    if (events[0].revents)
      break;
    if (events[1].revents)
      drop_output(process);
  }
  waitpid(process->pid, &status, 0);
  process->alive = false;
  close(process->pidfd);
  if (process->out >= 0)
    close(process->out);
  process->pidfd = process->out = -1;
  return status;
}

void process_forget(const struct process *process) {
  if (process == &processes[process_count - 1])
    process_count--;
}

void process_wait_exit(struct process *process, int code) {
  int status = process_wait(process);
  CHECK(!WIFSIGNALED(status), "%s died of signal %d", process->name, WTERMSIG(status));
  CHECK(WEXITSTATUS(status) == code, "%s: exit %d, not %d", process->name, WEXITSTATUS(status), code);
}

void process_finish(struct process *process) {
  process_close_input(process);
  process_expect(process, "ok", NULL, 0);
  process_wait_exit(process, 0);
}

void process_kill(struct process *process) {
  process_signal(process, SIGKILL);
  process_wait(process);
}

bool process_ended(const struct process *process) {
  struct pollfd ended = {.fd = process->pidfd, .events = POLLIN};
  return !process->alive || poll(&ended, 1, 0) > 0;
}

static char *log_text(const struct process *process) {
  FILE *file = fopen(process->log, "r");
  char *text = NULL;
  size_t size = 0;
  if (!file || getdelim(&text, &size, 0, file) < 0) {
    free(text);
    text = strdup("");
  }
  if (file)
    fclose(file);
  return text;
}

int process_log_count(const struct process *process, const char *needle) {
  char *text = log_text(process);
  int count = 0;
  for (const char *at = text; (at = strstr(at, needle)); at += strlen(needle))
    count++;
  free(text);
  return count;
}

int process_log_lines(const struct process *process) { return process_log_count(process, "\n"); }

/* Logs and other people's processes give no event to wait for. */
static void pause_briefly(uint64_t deadline, const char *what) {
  CHECK(deadline_left_ms(deadline) > 0, "waited in vain: %s", what);
  nanosleep(&(struct timespec){.tv_nsec = 2000 * 1000}, NULL);
}

void process_await_log(const struct process *process, const char *text) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  while (process_log_count(process, text) == 0)
    pause_briefly(deadline, text);
}

static bool is_gone(pid_t pid) {
  char path[32], state = 'Z';
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "r");
  if (!file)
    return true;
  if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
    state = 'Z';
  fclose(file);
  return state == 'Z';
}

void process_await_gone(pid_t pid) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  while (!is_gone(pid))
    pause_briefly(deadline, "the end of a process");
}

void process_dump_all(void) {
  for (int i = 0; i < process_count; i++) {
    char *text = log_text(&processes[i]);
    if (*text || processes[i].alive)
      printf("--- %s (pid %d%s) wrote:\n%s", processes[i].name, processes[i].pid,
             processes[i].alive ? ", running" : "", text);
    free(text);
  }
}

void process_check_none_left(void) {
  for (int i = 0; i < process_count; i++)
    CHECK(!processes[i].alive, "%s has not been waited for", processes[i].name);
}
