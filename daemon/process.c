/* process.c - see process.h. Linux 6.5 tells the process of a connection; before that there is its number. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define START_FIELD 22 /* of /proc/PID/stat, from 1; the name, which may have anything in it, is 2 */

uint64_t process_start_ticks(pid_t pid) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0)
    close(fd);
  text[size > 0 ? size : 0] = '\0';
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < START_FIELD; field++)
    at = strchr(at + 1, ' ');
  return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* While the descriptor is there the number is nobody else's: what is read after that is of this process. */
int process_open_since(pid_t pid, uint64_t start_ticks) {
  if (pid <= 0 || start_ticks == 0)
    return -ESRCH;
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (pidfd < 0)
    return -errno;
  if (process_start_ticks(pid) == start_ticks)
    return pidfd;
  close(pidfd);
  return -ESRCH;
}

int process_open(int socket, pid_t pid) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
    return pidfd;
  if (errno == EINVAL) /* of one that is gone, before 6.16 */
    return -ESRCH;
  if (errno != ENOPROTOOPT)
    return -errno;
  uint64_t start_ticks = process_start_ticks(pid);
  return start_ticks ? process_open_since(pid, start_ticks) : -ENOSYS;
}

bool process_has_ended(int pidfd) {
  struct pollfd ended = {.fd = pidfd, .events = POLLIN};
  return poll(&ended, 1, 0) > 0 && ended.revents & POLLIN;
}
