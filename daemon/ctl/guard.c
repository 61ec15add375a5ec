/* guard.c - kills the jobs' groups when gpusharectl itself has been killed. A job's own process would go with
 * its parent (launch.c); those that it has started would not. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/sweep.h"

/* Until the other end of the pipe is gone. In a group of its own, so that what is meant for ours spares it.
 */
static void watch(const struct guard *guard, int fd) {
  sigset_t all;
  char nothing;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  setpgid(0, 0);
  while (read(fd, &nothing, 1) < 0 && errno == EINTR)
    ;
  for (size_t i = 0; i < guard->count; i++)
    if (guard->groups[i])
      kill(-guard->groups[i], SIGKILL);
}

static int start(struct guard *guard) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) < 0)
    return -errno;
  guard->fd = fds[1];
  guard->pid = fork();
  int err = guard->pid < 0 ? -errno : 0;
  if (guard->pid == 0) {
    close(fds[1]);
    watch(guard, fds[0]);
    _exit(0);
  }
  close(fds[0]);
  if (err < 0)
    close(guard->fd);
  return err;
}

static size_t size(const struct guard *guard) { return guard->count * sizeof *guard->groups; }

int guard_start(struct guard *guard, size_t slots) {
  *guard = (struct guard){.count = slots};
  void *shared = mmap(NULL, size(guard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    return -errno;
  guard->groups = shared;
  int err = start(guard);
  if (err < 0)
    munmap(shared, size(guard));
  return err;
}

void guard_stop(struct guard *guard) {
  close(guard->fd);
  while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
    ;
  munmap(guard->groups, size(guard));
}
