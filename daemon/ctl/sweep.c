/* sweep.c - runs many jobs, so many at once. One loop: signals (a job has ended, a person wants something),
 * the jobs' output, the time. */
#include "ctl/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/words.h"
#include "ctl/ctl.h"
#include "ctl/table.h"

#define ROOM 8192
#define TABLE "results.tsv"
#define CLEAR "\r\033[K"

/* ---- a process that outlives us, if only to kill the jobs' groups when we have been killed ----
 *
 * A job's own process would go with its parent (below); those that it has started would not. */

struct guard {
  pid_t *groups; /* by slot; 0: none. Those that are here when we are no more are killed */
  size_t count;
  pid_t pid;
  int fd; /* closed by our end */
};

/* Until the other end of the pipe is gone. */
static void watch(const struct guard *guard, int fd) {
  char nothing;
  while (read(fd, &nothing, 1) < 0 && errno == EINTR)
    ;
  for (size_t i = 0; i < guard->count; i++)
    if (guard->groups[i])
      kill(-guard->groups[i], SIGKILL);
}

/* In a group of its own, and without signals from its first moment on, so that what is meant for us spares
 * it. 0 or -errno. */
static int guard_start(struct guard *guard, size_t slots) {
  int fds[2], err = 0;
  sigset_t all, before;
  *guard = (struct guard){.count = slots};
  guard->groups =
      mmap(NULL, slots * sizeof *guard->groups, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (guard->groups == MAP_FAILED || pipe2(fds, O_CLOEXEC) < 0)
    return -errno;
  guard->fd = fds[1];
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  guard->pid = fork();
  if (guard->pid < 0)
    err = -errno;
  if (guard->pid == 0) {
    close(fds[1]);
    setpgid(0, 0);
    watch(guard, fds[0]);
    _exit(0);
  }
  if (guard->pid > 0)
    setpgid(guard->pid, guard->pid); /* here too: whoever comes first */
  sigprocmask(SIG_SETMASK, &before, NULL);
  close(fds[0]);
  if (err < 0)
    close(guard->fd);
  return err;
}

static void guard_stop(struct guard *guard) {
  close(guard->fd);
  while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
    ;
  munmap(guard->groups, guard->count * sizeof *guard->groups);
}

/* ---- a stream of a job, copied in whole lines ---- */

struct lines {
  int fd; /* -1: none */
  size_t filled;
  char *text; /* what is not yet a whole line */
};

/* What the job writes to: a close-on-exec descriptor, or -errno. */
static int lines_open(struct lines *lines) {
  int fds[2];
  char *text = malloc(ROOM);
  if (!text)
    return -ENOMEM;
  if (pipe2(fds, O_CLOEXEC) < 0) {
    int err = -errno;
    free(text);
    return err;
  }
  *lines = (struct lines){.fd = fds[0], .text = text};
  return fds[1];
}

static void print(const char *text, size_t size, size_t index, FILE *to) {
  fprintf(to, "[%zu] ", index);
  fwrite(text, 1, size, to);
  fputc('\n', to);
}

static void end(struct lines *lines, size_t index, FILE *to) {
  if (lines->filled)
    print(lines->text, lines->filled, index, to);
  close(lines->fd);
  free(lines->text);
  *lines = (struct lines){.fd = -1};
}

/* Once; more than 0: so many bytes. Whole lines are printed, and what is as long as there is room. */
static ssize_t copy(struct lines *lines, size_t index, FILE *to) {
  ssize_t count = read(lines->fd, lines->text + lines->filled, ROOM - lines->filled);
  if (count <= 0)
    return count;
  char *text = lines->text, *newline;
  size_t left = lines->filled + (size_t)count;
  for (; (newline = memchr(text, '\n', left)); text = newline + 1) {
    print(text, (size_t)(newline - text), index, to);
    left -= (size_t)(newline + 1 - text);
  }
  if (left == ROOM) {
    print(text, left, index, to);
    left = 0;
  }
  memmove(lines->text, text, left);
  lines->filled = left;
  return count;
}

static void lines_copy(struct lines *lines, size_t index, FILE *to) {
  if (copy(lines, index, to) == 0)
    end(lines, index, to);
  fflush(to);
}

/* Not until its end: a process that has left the job's group may hold it open. */
static void lines_close(struct lines *lines, size_t index, FILE *to) {
  int left;
  if (lines->fd < 0)
    return;
  if (ioctl(lines->fd, FIONREAD, &left) < 0)
    left = 0;
  for (ssize_t count = 1; left > 0 && count > 0; left -= (int)count)
    count = copy(lines, index, to);
  end(lines, index, to);
  fflush(to);
}

/* ---- the folder with the jobs' output, and the table of their ends ---- */

struct ending {
  unsigned tries; /* 0: not started */
  int status;     /* of the last try, as of wait */
  uint64_t took_ns;
  char *gpus; /* that were taken for it, from malloc; NULL: none, it has seen what we see */
};

struct results {
  char *path; /* NULL: no folder */
  int folder;
  FILE *table;
};

static int complain(const char *what, const char *path) {
  return command_error(CTL_REFUSED, "can't %s %s: %s", what, path, strerror(errno));
}

/* *path, from malloc. Name NULL: one with the time, and a number if others have begun in the same second. */
static int make_folder(const char *name, char **path) {
  char stamp[32] = "";
  time_t now = time(NULL);
  struct tm parts;
  if (!name && localtime_r(&now, &parts))
    strftime(stamp, sizeof stamp, "-%Y%m%d-%H%M%S", &parts);
  for (unsigned number = 1;; number++) {
    int length = name          ? asprintf(path, "%s", name)
                 : number == 1 ? asprintf(path, "gpushare-run%s", stamp)
                               : asprintf(path, "gpushare-run%s-%u", stamp, number);
    if (length < 0)
      return complain("make", "a folder");
    if (mkdir(*path, 0777) == 0 || (name && errno == EEXIST))
      return CTL_OK;
    int code = errno == EEXIST ? CTL_OK : complain("make the folder", *path);
    free(*path);
    if (code != CTL_OK)
      return code;
  }
}

static int make_table(struct results *results) {
  int fd = openat(results->folder, TABLE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST)
    return command_error(CTL_REFUSED, "there are results in %s: name another folder", results->path);
  results->table = fd < 0 ? NULL : fdopen(fd, "w");
  if (!results->table)
    return complain("write " TABLE " in", results->path);
  fprintf(results->table, "index\tresult\tseconds\ttries\tcommand\tgpus\n");
  return CTL_OK;
}

static int results_close(struct results *results) {
  int code = CTL_OK;
  if (results->table) {
    bool lost = ferror(results->table);
    if (fclose(results->table) != 0 || lost)
      code = complain("write " TABLE " in", results->path);
  }
  if (results->folder >= 0)
    close(results->folder);
  free(results->path);
  return code;
}

/* Name NULL: a new folder with the time in its name. */
static int results_open(struct results *results, const char *name) {
  *results = (struct results){.folder = -1};
  int code = make_folder(name, &results->path);
  if (code != CTL_OK) {
    results->path = NULL;
    return code;
  }
  results->folder = open(results->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  code = results->folder < 0 ? complain("open the folder", results->path) : make_table(results);
  if (code != CTL_OK)
    results_close(results);
  return code;
}

static void results_add(struct results *results, size_t index, const struct ending *ending,
                        const char *command) {
  char result[32] = "not started";
  if (!results->table)
    return;
  if (ending->tries > 0 && WIFSIGNALED(ending->status))
    snprintf(result, sizeof result, "signal %d", WTERMSIG(ending->status));
  else if (ending->tries > 0)
    snprintf(result, sizeof result, "%d", WEXITSTATUS(ending->status));
  fprintf(results->table, "%zu\t%s\t%.3f\t%u\t%s\t%s\n", index, result, (double)ending->took_ns / NS_PER_S,
          ending->tries, command, ending->gpus ? ending->gpus : "");
  fflush(results->table);
}

static int results_open_stream(const struct results *results, size_t index, const char *stream, bool first) {
  char name[32];
  snprintf(name, sizeof name, "%zu.%s", index, stream);
  int fd =
      openat(results->folder, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (first ? O_TRUNC : 0), 0666);
  return fd < 0 ? -errno : fd;
}

/* ---- how far they are: on a terminal a line that is written anew, else a line per event ---- */

#define REFRESH_NS NS_PER_S

struct progress {
  size_t waiting, running, done, failed;
  size_t tries;     /* that have ended; */
  uint64_t took_ns; /* so long they took, all together */
  bool live;        /* one line, written anew */
};

static void progress_show(const struct progress *progress, uint64_t left_ns) {
  char left[WORDS_SIZE];
  if (!progress->live)
    return;
  fprintf(stderr, CLEAR "%zu running, %zu waiting, %zu done, %zu failed", progress->running,
          progress->waiting, progress->done, progress->failed);
  if (left_ns != UINT64_MAX && left_ns >= NS_PER_S)
    fprintf(stderr, ", about %s left", words_duration(left_ns / NS_PER_S * NS_PER_S, left));
  fputc(' ', stderr);
}

static const char *clear(const struct progress *progress) { return progress->live ? CLEAR : ""; }

static void progress_open(struct progress *progress, size_t jobs, bool live) {
  *progress = (struct progress){.waiting = jobs, .live = live};
}

static void progress_start(struct progress *progress, size_t index, const char *gpus, const char *command) {
  progress->waiting--;
  progress->running++;
  if (!progress->live)
    fprintf(stderr, "gpusharectl: job %zu started%s%s: %s\n", index, gpus ? " on " : "", gpus ? gpus : "",
            command);
}

static void progress_end(struct progress *progress, size_t index, const struct ending *ending, bool again) {
  int status = ending->status;
  double took_s = (double)ending->took_ns / NS_PER_S;
  progress->running--;
  progress->tries++;
  progress->took_ns += ending->took_ns;
  progress->waiting += again;
  progress->failed += status != 0 && !again;
  progress->done += status == 0;
  if (status != 0) {
    fprintf(stderr, "%sgpusharectl: job %zu failed after %.1f s%s%s: ", clear(progress), index, took_s,
            ending->gpus ? " on " : "", ending->gpus ? ending->gpus : "");
    if (WIFSIGNALED(status))
      fprintf(stderr, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
      fprintf(stderr, "exit code %d", WEXITSTATUS(status));
    fprintf(stderr, "%s\n", again ? ", it is tried again" : "");
  } else if (!progress->live) {
    fprintf(stderr, "gpusharectl: job %zu done in %.1f s\n", index, took_s);
  }
}

static void progress_close(struct progress *progress, const char *folder) {
  fprintf(stderr, "%sgpusharectl: %zu done, %zu failed, %zu not started%s%s\n", clear(progress),
          progress->done, progress->failed, progress->waiting, folder ? "; their output is in " : "",
          folder ? folder : "");
}

/* ---- many ---- */

enum { OUT, ERR, STREAMS };

struct slot {
  size_t job;
  char *text;     /* its command line; NULL without memory */
  uint64_t taken; /* GPUs, as spread has them; 0: none */
  uint64_t started_ns;
  struct ending ending; /* of the last try */
  struct lines lines[STREAMS];
};

struct sweep {
  const struct sweep_plan *plan;
  struct slot *slots; /* slot i is taken while guard.groups[i] is a process */
  struct guard guard;
  struct results results;
  struct progress progress;
  struct pollfd *polled; /* signals, then the streams of each slot */
  sigset_t before;       /* signals that were blocked when we began */
  size_t next;           /* the first job that has not been started */
  uint64_t kill_ns;      /* when to kill those that run; UINT64_MAX: never */
  bool stopping;         /* nothing more is started */
  bool interrupted;      /* by SIGINT */
  bool looked;           /* the GPUs' room is that of now */
};

/* ---- one job's process: first of a process group of its own, which ends when we do ---- */

int sweep_become(char *const *command) {
  execvp(command[0], command);
  return command_error(errno == ENOENT ? CTL_NOT_FOUND : CTL_NOT_RUN, "can't run %s: %s", command[0],
                       strerror(errno));
}

/* The command and the words of the job. */
static char **join(char *const *command, char *const *words) {
  size_t count = 0, more = 0;
  while (command[count])
    count++;
  while (words[more])
    more++;
  char **all = malloc((count + more + 1) * sizeof *all);
  if (!all)
    return NULL;
  memcpy(all, command, count * sizeof *all);
  memcpy(all + count, words, (more + 1) * sizeof *all);
  return all;
}

/* Its streams, and what it is told. Nothing to read: a job in the background that read from the terminal
 * would be stopped. CUDA_VISIBLE_DEVICES is ours, unless the job sets it, or GPUs are taken for it. */
static int set_up(const struct sweep *sweep, const struct slot *slot, int out, int err) {
  const struct joblist_job *job = &sweep->plan->list->jobs[slot->job];
  char index[24], count[24];
  int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
      dup2(err, STDERR_FILENO) < 0)
    return -1;
  snprintf(index, sizeof index, "%zu", slot->job);
  snprintf(count, sizeof count, "%zu", sweep->plan->list->count);
  int failed = setenv("GPUSHARE_JOB_INDEX", index, 1) | setenv("GPUSHARE_JOB_COUNT", count, 1);
  if (sweep->plan->name) {
    char name[GS_NAME_SIZE];
    int room = (int)(sizeof name - strlen(index) - 2);
    snprintf(name, sizeof name, "%.*s.%s", room, sweep->plan->name, index);
    failed |= setenv("GPUSHARE_NAME", name, 1);
  }
  if (slot->ending.gpus)
    failed |= setenv("CUDA_VISIBLE_DEVICES", slot->ending.gpus, 1);
  for (size_t i = 0; i < job->settings; i++)
    failed |= putenv(job->words[i]);
  return failed;
}

/* In the child. An exit code, if it can't be. */
static int become(const struct sweep *sweep, const struct slot *slot, int out, int err, pid_t parent) {
  const struct joblist_job *job = &sweep->plan->list->jobs[slot->job];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    return CTL_NOT_RUN; /* died before it could be said */
  setpgid(0, 0);
  sweep->guard.groups[slot - sweep->slots] = getpid(); /* before there is anything to be left */
  char **command = join(sweep->plan->command, job->words + job->settings);
  if (!command || set_up(sweep, slot, out, err) < 0) {
    fprintf(stderr, "gpusharectl: can't start job %zu: %s\n", slot->job, strerror(errno));
    return CTL_NOT_RUN;
  }
  sigprocmask(SIG_SETMASK, &sweep->before, NULL);
  return sweep_become(command);
}

static int open_stream(struct sweep *sweep, struct slot *slot, int stream) {
  static const char *const names[STREAMS] = {"out", "err"};
  return sweep->plan->prefix
             ? lines_open(&slot->lines[stream])
             : results_open_stream(&sweep->results, slot->job, names[stream], slot->ending.tries == 1);
}

/* Its pid, or -errno. What keeps the program from running is told on its stderr. */
static pid_t launch(struct sweep *sweep, struct slot *slot) {
  int out = open_stream(sweep, slot, OUT), err = out < 0 ? out : open_stream(sweep, slot, ERR);
  pid_t parent = getpid(), pid = err < 0 ? err : fork();
  if (pid == 0)
    _exit(become(sweep, slot, out, err, parent));
  if (pid < 0 && err >= 0)
    pid = -errno;
  if (pid > 0)
    setpgid(pid, pid); /* here too: whoever comes first, signals to the group reach it from now on */
  if (out >= 0)
    close(out);
  if (err >= 0)
    close(err);
  return pid;
}

/* ---- to those that run ---- */

static void signal_all(const struct sweep *sweep, int number) {
  for (size_t i = 0; i < sweep->guard.count; i++)
    if (sweep->guard.groups[i])
      kill(-sweep->guard.groups[i], number);
}

/* Those that have been stopped could not answer. */
static void ask_to_end(struct sweep *sweep, int number) {
  sweep->stopping = true;
  signal_all(sweep, number);
  signal_all(sweep, SIGCONT);
}

/* ---- a job's life ---- */

/* 0 or -errno. */
static int take_gpus(struct sweep *sweep, struct slot *slot) {
  const struct sweep_plan *plan = sweep->plan;
  if (!spread_concerns(plan->spread, plan->command, &plan->list->jobs[slot->job]))
    return 0;
  if (!sweep->looked)
    visible_look_at_rooms(plan->spread, plan->socket);
  sweep->looked = true;
  slot->taken = spread_take(plan->spread);
  slot->ending.gpus = spread_text(plan->spread, slot->taken);
  return slot->ending.gpus ? 0 : -ENOMEM;
}

static void give_gpus_back(struct sweep *sweep, struct slot *slot) {
  spread_give_back(sweep->plan->spread, slot->taken);
  free(slot->ending.gpus);
  slot->taken = 0;
  slot->ending.gpus = NULL;
}

static void conclude(struct sweep *sweep, struct slot *slot) {
  bool failed = slot->ending.status != 0;
  progress_end(&sweep->progress, slot->job, &slot->ending, false);
  results_add(&sweep->results, slot->job, &slot->ending, slot->text ? slot->text : "");
  give_gpus_back(sweep, slot);
  free(slot->text);
  slot->text = NULL;
  if (failed && sweep->plan->fail_fast && !sweep->stopping) {
    ask_to_end(sweep, SIGTERM);
    sweep->kill_ns = clock_now_ns() + sweep->plan->grace_ns;
  }
}

static void close_lines(struct slot *slot) {
  lines_close(&slot->lines[OUT], slot->job, stdout);
  lines_close(&slot->lines[ERR], slot->job, stderr);
}

static void try(struct sweep *sweep, size_t i) {
  struct slot *slot = &sweep->slots[i];
  slot->ending.tries++;
  int err = take_gpus(sweep, slot);
  slot->started_ns = clock_now_ns();
  progress_start(&sweep->progress, slot->job, slot->ending.gpus, slot->text ? slot->text : "");
  pid_t pid = err < 0 ? err : launch(sweep, slot);
  if (pid > 0) {
    sweep->guard.groups[i] = pid;
    return;
  }
  fprintf(stderr, "gpusharectl: can't start job %zu: %s\n", slot->job, strerror(-pid));
  close_lines(slot);
  slot->ending.status = W_EXITCODE(CTL_NOT_RUN, 0);
  conclude(sweep, slot);
}

static void on_end(struct sweep *sweep, size_t i, int status) {
  struct slot *slot = &sweep->slots[i];
  sweep->guard.groups[i] = 0;
  close_lines(slot);
  slot->ending.status = status;
  slot->ending.took_ns = clock_now_ns() - slot->started_ns;
  if (status == 0 || sweep->stopping || slot->ending.tries > sweep->plan->retries) {
    conclude(sweep, slot);
    return;
  }
  progress_end(&sweep->progress, slot->job, &slot->ending, true);
  give_gpus_back(sweep, slot);
  try(sweep, i);
}

/* A job is over when its program is: what it has left in its group would stay for ever. Killed while the
 * program is still there to be waited for, so that the group's number is nobody else's. */
static void reap(struct sweep *sweep, size_t i) {
  pid_t pid = sweep->guard.groups[i];
  siginfo_t info = {0};
  int status;
  if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
    return;
  kill(-pid, SIGKILL);
  if (waitpid(pid, &status, 0) == pid)
    on_end(sweep, i, status);
}

/* ---- signals ---- */

/* Stop all, then ourselves as the default action does, which may be not at all; behind that, go on. */
static void pause_all(const struct sweep *sweep) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  signal_all(sweep, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, NULL);
  sigprocmask(SIG_BLOCK, &stop, NULL);
  signal_all(sweep, SIGCONT);
}

static void on_signal(struct sweep *sweep, int number) {
  if (number == SIGCHLD) {
    for (size_t i = 0; i < sweep->guard.count; i++)
      if (sweep->guard.groups[i])
        reap(sweep, i);
  } else if (number == SIGTSTP) {
    pause_all(sweep);
  } else {
    ask_to_end(sweep, number == SIGINT && sweep->interrupted ? SIGKILL : number);
    sweep->interrupted |= number == SIGINT;
  }
}

/* ---- the loop ---- */

/* Those that run. */
static size_t fill_slots(struct sweep *sweep) {
  size_t running = 0;
  for (size_t i = 0; i < sweep->guard.count; i++) {
    struct slot *slot = &sweep->slots[i];
    while (!sweep->guard.groups[i] && !sweep->stopping && sweep->next < sweep->plan->list->count) {
      slot->job = sweep->next++;
      slot->text = quote_command(sweep->plan->command, &sweep->plan->list->jobs[slot->job]);
      slot->ending = (struct ending){0};
      try(sweep, i);
    }
    running += sweep->guard.groups[i] != 0;
  }
  return running;
}

/* As if each took as long as those that have ended did; UINT64_MAX: none has. */
static uint64_t time_left_ns(const struct sweep *sweep, uint64_t now_ns) {
  const struct progress *progress = &sweep->progress;
  size_t at_once = progress->running + progress->waiting;
  if (progress->tries == 0 || at_once == 0)
    return UINT64_MAX;
  uint64_t each_ns = progress->took_ns / progress->tries, work_ns = progress->waiting * each_ns;
  for (size_t i = 0; i < sweep->guard.count; i++) {
    uint64_t had_ns = now_ns - sweep->slots[i].started_ns;
    if (sweep->guard.groups[i] && had_ns < each_ns)
      work_ns += each_ns - had_ns;
  }
  return work_ns / (at_once < sweep->plan->slots ? at_once : sweep->plan->slots);
}

static struct pollfd *polled_of(const struct sweep *sweep, size_t slot, int stream) {
  return &sweep->polled[1 + slot * STREAMS + (size_t)stream];
}

static void wait_for_something(struct sweep *sweep) {
  sweep->looked = false;
  for (size_t i = 0; i < sweep->guard.count; i++)
    for (int stream = 0; stream < STREAMS; stream++)
      *polled_of(sweep, i, stream) =
          (struct pollfd){.fd = sweep->slots[i].lines[stream].fd, .events = POLLIN};
  uint64_t now_ns = clock_now_ns(), until_ns = sweep->kill_ns;
  if (sweep->progress.live && until_ns > now_ns + REFRESH_NS)
    until_ns = now_ns + REFRESH_NS;
  struct timespec most = clock_timespec(until_ns > now_ns ? until_ns - now_ns : 0);
  progress_show(&sweep->progress, time_left_ns(sweep, now_ns));
  if (ppoll(sweep->polled, 1 + sweep->guard.count * STREAMS, until_ns == UINT64_MAX ? NULL : &most, NULL) < 0)
    for (size_t i = 0; i < 1 + sweep->guard.count * STREAMS; i++)
      sweep->polled[i].revents = 0;
}

static void copy_lines(struct sweep *sweep) {
  for (size_t i = 0; i < sweep->guard.count; i++) {
    struct slot *slot = &sweep->slots[i];
    if (polled_of(sweep, i, OUT)->revents)
      lines_copy(&slot->lines[OUT], slot->job, stdout);
    if (polled_of(sweep, i, ERR)->revents)
      lines_copy(&slot->lines[ERR], slot->job, stderr);
  }
}

static void loop(struct sweep *sweep) {
  struct signalfd_siginfo info;
  while (fill_slots(sweep) > 0) {
    wait_for_something(sweep);
    copy_lines(sweep);
    while (sweep->polled->revents && read(sweep->polled->fd, &info, sizeof info) == sizeof info)
      on_signal(sweep, (int)info.ssi_signo);
    if (clock_now_ns() >= sweep->kill_ns) {
      signal_all(sweep, SIGKILL);
      sweep->kill_ns = UINT64_MAX;
    }
  }
}

/* ---- from the first to the last ---- */

static int fail(const char *what, int error) {
  return command_error(CTL_REFUSED, "can't %s: %s", what, strerror(error));
}

static int open_slots(struct sweep *sweep) {
  size_t count = sweep->plan->slots;
  sweep->slots = calloc(count, sizeof *sweep->slots);
  sweep->polled = calloc(1 + count * STREAMS, sizeof *sweep->polled);
  if (!sweep->slots || !sweep->polled)
    return fail("have so many at once", ENOMEM);
  for (size_t i = 0; i < count; i++)
    sweep->slots[i].lines[OUT].fd = sweep->slots[i].lines[ERR].fd = -1;
  return CTL_OK;
}

/* The guard first: what is opened after it, it does not hold open. */
static int open_processes(struct sweep *sweep) {
  static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGTSTP};
  struct sigaction action;
  sigset_t signals;
  int err = guard_start(&sweep->guard, sweep->plan->slots);
  if (err < 0)
    return fail("start a process", -err);
  sigemptyset(&signals);
  signal(SIGCHLD, SIG_DFL); /* ignored, no status of a child would be left to us */
  for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) /* what is ignored (nohup) stays so */
    if (sigaction(watched[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&signals, watched[i]);
  sigprocmask(SIG_BLOCK, &signals, &sweep->before);
  int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) {
    int code = fail("receive signals", errno);
    guard_stop(&sweep->guard);
    return code;
  }
  *sweep->polled = (struct pollfd){.fd = fd, .events = POLLIN};
  return CTL_OK;
}

static int run_all(struct sweep *sweep) {
  const struct sweep_plan *plan = sweep->plan;
  int code = plan->prefix ? CTL_OK : results_open(&sweep->results, plan->output);
  if (code != CTL_OK)
    return code;
  progress_open(&sweep->progress, plan->list->count,
                !plan->prefix && isatty(STDERR_FILENO) && !table_screen_is_dumb());
  loop(sweep);
  for (size_t job = sweep->next; job < plan->list->count; job++) { /* not started */
    char *text = quote_command(plan->command, &plan->list->jobs[job]);
    results_add(&sweep->results, job, &(struct ending){0}, text ? text : "");
    free(text);
  }
  progress_close(&sweep->progress, sweep->results.path);
  if (!plan->prefix)
    code = results_close(&sweep->results);
  return sweep->progress.done < plan->list->count ? CTL_REFUSED : code;
}

int sweep_run(const struct sweep_plan *plan) {
  struct sweep sweep = {.plan = plan, .kill_ns = UINT64_MAX};
  int fd;
  do /* so that no file of ours becomes somebody's stderr */
    fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO)
    close(fd);
  int code = open_slots(&sweep);
  if (code == CTL_OK)
    code = open_processes(&sweep);
  if (code == CTL_OK) {
    code = run_all(&sweep);
    guard_stop(&sweep.guard);
    close(sweep.polled->fd);
  }
  free(sweep.slots);
  free(sweep.polled);
  return code;
}
