/*
 * permission.c - who may change settings, judged by what the kernel says of the process at the other end.
 *
 * Its groups are those it had when it connected (SO_PEERGROUPS): no look-up of users, which could block on a
 * network service. And it must be in the daemon's own pid namespace: root of a container may be root of the
 * host by its number, and in any group that it likes.
 */
#include "server/permission.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

static bool in_groups(const gid_t *groups, size_t count, gid_t group) {
  for (size_t i = 0; i < count; i++)
    if (groups[i] == group)
      return true;
  return false;
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
  bool member = err == 0 && in_groups(groups, size / sizeof *groups, group);
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
