/* process.c - see process.h. Linux 6.5 tells the process of a connection; before that there is its number. */
#include "server/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/text_file.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Of the fields of /proc/PID/stat, from 1. */
#define STATE_FIELD 3
#define START_FIELD 22

void process_read(pid_t pid, const char *name, char *text, size_t size) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  text_file_read(AT_FDCWD, path, text, size);
}

/* From the third on: the second is the name, which may have anything in it. "": there is no such process. */
static const char *read_field(pid_t pid, int wanted, char *text, size_t size) {
  process_read(pid, "stat", text, size);
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < wanted; field++)
    at = strchr(at + 1, ' ');
  return at ? at + 1 : "";
}

uint64_t process_start_ticks(pid_t pid) {
  char text[1024];
  return strtoull(read_field(pid, START_FIELD, text, sizeof text), NULL, 10);
}

bool process_is_stopped(pid_t pid) {
  char text[1024];
  char state = *read_field(pid, STATE_FIELD, text, sizeof text);
  return state == 'T' || state == 't';
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

/*
 * ---- who may change settings ----
 *
 * Who may change settings, judged by what the kernel says of the process at the other end. Its groups are
 * those it had when it connected (SO_PEERGROUPS): no look-up of users, which could block on a network
 * service. And it must be in the daemon's own pid namespace: root of a container may be root of the host by
 * its number, and in any group that it likes.
 */

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

gid_t permission_find_group(const char *name) {
  const struct group *group = getgrnam(name);
  if (group)
    return group->gr_gid;
  char *end;
  unsigned long number = strtoul(name, &end, 10);
  return *name >= '0' && *name <= '9' && *end == '\0' ? (gid_t)number : PERMISSION_NO_GROUP;
}

static bool in_supplementary(int fd, gid_t group) {
  gid_t few[64], *groups = few;
  socklen_t size = sizeof few;
  int err = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
  if (err < 0 && errno == ERANGE) {
    groups = malloc(size);
    if (!groups)
      return false;
    err = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
  }
  bool member = false;
  for (size_t i = 0; err == 0 && i < size / sizeof *groups; i++)
    member |= groups[i] == group;
  if (groups != few)
    free(groups);
  return member;
}

/* Its numbers in all pid namespaces from ours on: of a process in ours there is one. */
bool permission_is_near(pid_t pid) {
  char path[32], line[256];
  bool ours = false;
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE *status = pid > 0 ? fopen(path, "re") : NULL;
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, "NSpid:\t", 7) == 0)
      ours = strtol(line + 7, NULL, 10) == pid && !strchr(line + 7, '\t');
  if (status)
    fclose(status);
  return ours;
}

bool permission_granted(int fd, gid_t group) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
    return false;
  if (peer.uid == 0 || peer.uid == geteuid())
    return true;
  return group != PERMISSION_NO_GROUP && (peer.gid == group || in_supplementary(fd, group));
}
