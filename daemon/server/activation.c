/*
 * activation.c - the listening socket that a service manager has opened for us: LISTEN_PID, LISTEN_FDS and
 * LISTEN_FDNAMES, as sd_listen_fds(3) describes them. It outlives us: who connects while we are started anew
 * waits.
 */
#include "server/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "common/parse.h"

enum { FIRST_FD = 3, PASSED_MAX = 1024 };

static int64_t number_of(const char *variable) {
  const char *text = getenv(variable);
  int64_t number;
  return text && parse_integer(text, 0, INT32_MAX, &number) == 0 ? number : 0;
}

/* Those of the descriptors that are for this process. */
static int count_passed(void) {
  int64_t count = number_of("LISTEN_PID") == getpid() ? number_of("LISTEN_FDS") : 0;
  return count < PASSED_MAX ? (int)count : PASSED_MAX;
}

/* NAME:NAME:... Without names a single one is meant. */
static int find_named(int count) {
  const char *name = getenv("LISTEN_FDNAMES");
  if (!name)
    return count == 1 ? 0 : -1;
  for (int i = 0; i < count; i++) {
    size_t length = strcspn(name, ":");
    if (length == strlen(ACTIVATION_NAME) && strncmp(name, ACTIVATION_NAME, length) == 0)
      return i;
    name += length + (name[length] == ':');
  }
  return -1;
}

static int option_of(int fd, int option) {
  int value;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

/* NULL, or what is wrong with the descriptor. */
static const char *look_at(int fd, char *path, size_t path_size) {
  struct sockaddr_un address = {0};
  socklen_t size = sizeof address;
  if (option_of(fd, SO_DOMAIN) != AF_UNIX || option_of(fd, SO_TYPE) != SOCK_SEQPACKET)
    return "is not a UNIX socket for sequential packets (ListenSequentialPacket=)";
  if (option_of(fd, SO_ACCEPTCONN) != 1)
    return "does not listen";
  if (getsockname(fd, (struct sockaddr *)&address, &size) < 0 || address.sun_path[0] != '/')
    return "is not a socket file";
  snprintf(path, path_size, "%.*s", (int)sizeof address.sun_path, address.sun_path);
  return NULL;
}

static int keep(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    int err = -errno;
    log_error("the passed socket can't be set up: %s", strerror(errno));
    return err;
  }
  return fd;
}

static int take_one_of(int count, char *path, size_t size) {
  int chosen = find_named(count);
  for (int i = 0; i < count; i++)
    if (i != chosen)
      close(FIRST_FD + i);
  if (chosen < 0) {
    log_error("none of the sockets passed by the service manager is named " ACTIVATION_NAME
              " (FileDescriptorName=)");
    return -EINVAL;
  }
  const char *wrong = look_at(FIRST_FD + chosen, path, size);
  if (wrong) {
    log_error("what the service manager has passed %s", wrong);
    return -EINVAL;
  }
  return keep(FIRST_FD + chosen);
}

int activation_take(char *path, size_t size) {
  int count = count_passed();
  int fd = count > 0 ? take_one_of(count, path, size) : -ENOENT;
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  return fd;
}
