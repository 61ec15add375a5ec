/* launch.c - become a command; start one job of many. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/sweep.h"

int launch_become(char *const *command) {
  execvp(command[0], command);
  return command_error(errno == ENOENT ? CTL_NOT_FOUND : CTL_NOT_RUN, "can't run %s: %s", command[0],
                       strerror(errno));
}

static int set_number(const char *name, size_t number) {
  char text[24];
  snprintf(text, sizeof text, "%zu", number);
  return setenv(name, text, 1);
}

static int set_environment(const struct launch *launch) {
  int err = set_number("GPUSHARE_JOB_INDEX", launch->index);
  err |= set_number("GPUSHARE_JOB_COUNT", launch->count);
  if (launch->gpus)
    err |= setenv("CUDA_VISIBLE_DEVICES", launch->gpus, 1);
  for (size_t i = 0; i < launch->job->settings; i++)
    err |= putenv(launch->job->words[i]);
  return err;
}

/* The command and the words of the job. */
static char **join(const struct launch *launch) {
  size_t count = 0, more = 0;
  char **words = launch->job->words + launch->job->settings;
  while (launch->command[count])
    count++;
  while (words[more])
    more++;
  char **all = malloc((count + more + 1) * sizeof *all);
  if (!all)
    return NULL;
  memcpy(all, launch->command, count * sizeof *all);
  memcpy(all + count, words, (more + 1) * sizeof *all);
  return all;
}

/* Nothing to read: a job in the background that read from the terminal would be stopped. */
static int set_streams(const struct launch *launch) {
  int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(launch->out, STDOUT_FILENO) < 0)
    return -1;
  return dup2(launch->err, STDERR_FILENO);
}

/* In the child. An exit code, if it can't be. */
static int become(const struct launch *launch, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    return CTL_NOT_RUN; /* died before it could be said */
  setpgid(0, 0);
  char **command = join(launch);
  if (!command || set_streams(launch) < 0 || set_environment(launch) < 0) {
    fprintf(stderr, "gpusharectl: can't start job %zu: %s\n", launch->index, strerror(errno));
    return CTL_NOT_RUN;
  }
  sigprocmask(SIG_SETMASK, launch->signals, NULL);
  return launch_become(command);
}

pid_t launch_start(const struct launch *launch) {
  pid_t parent = getpid(), pid = fork();
  if (pid == 0)
    _exit(become(launch, parent));
  if (pid < 0)
    return -errno;
  setpgid(pid, pid); /* here too: whoever comes first, signals to the group reach it from now on */
  return pid;
}
