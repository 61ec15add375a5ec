/* listen.c - where others find the daemon: socket files, and ports. */
#include "server/listen.h"

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
#include "common/wire.h"

/* Connections that wait to be accepted, in one queue of all users: how long others wait behind one who
 * connects as fast as can be. Who finds it full comes again soon (common/wire.c). */
#define BACKLOG 128

static void make_parent(const char *path) {
  char parent[sizeof((struct sockaddr_un *)0)->sun_path];
  strcpy(parent, path);
  char *slash = strrchr(parent, '/');
  if (!slash || slash == parent)
    return;
  *slash = '\0';
  if (mkdir(parent, 0755) < 0) {
    if (errno != EEXIST)
      log_error("can't make %s: %s", parent, strerror(errno));
    return;
  }
  log_info("made %s", parent);
  if (chmod(parent, 0755) < 0) /* every user must get to the socket, whatever the umask has taken away */
    log_error("can't open %s to all users: %s", parent, strerror(errno));
}

/* 0: nothing is in the way (any more). */
static int clear_stale(const char *path, int type) {
  struct stat status;
  if (lstat(path, &status) < 0) {
    int err = errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    if (err < 0)
      log_error("can't look at %s: %s", path, strerror(-err));
    return err;
  }
  if (!S_ISSOCK(status.st_mode)) {
    log_error("%s is there and is not a socket", path);
    return -EEXIST;
  }
  int fd = wire_connect_as(path, type);
  if (fd >= 0)
    close(fd);
  if (fd >= 0 || fd == -EAGAIN) { /* EAGAIN: alive, with a full queue */
    log_error("another daemon answers on %s", path);
    return -EADDRINUSE;
  }
  if (fd != -ECONNREFUSED) {
    log_error("can't tell whether a daemon lives on %s: %s", path, strerror(-fd));
    return fd;
  }
  int err = unlink(path) < 0 ? -errno : 0;
  if (err < 0)
    log_error("can't remove %s, which a daemon has left: %s", path, strerror(-err));
  return err;
}

int listen_open(const char *path, int type, struct stat *identity) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    log_error("the path of the socket is longer than %zu bytes: %s", sizeof address.sun_path - 1, path);
    return -ENAMETOOLONG;
  }
  strcpy(address.sun_path, path);
  make_parent(path);
  int err = clear_stale(path, type);
  if (err < 0)
    return err;
  int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t before = umask(0111); /* every user may connect, from the moment the file exists */
  err = fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
  umask(before);
  if (err == 0 && (listen(fd, BACKLOG) < 0 || lstat(path, identity) < 0))
    err = -errno;
  if (err == 0)
    return fd;
  log_error("can't listen on %s: %s", path, strerror(-err));
  if (fd >= 0)
    close(fd);
  return err;
}

int listen_open_inet(struct sockaddr *address, socklen_t *size) {
  int on = 1;
  int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(fd, address, *size) == 0 && listen(fd, BACKLOG) == 0 && getsockname(fd, address, size) == 0)
    return fd;
  int err = -errno;
  log_error("can't listen on a port: %s", strerror(errno));
  if (fd >= 0)
    close(fd);
  return err;
}

void listen_remove(const char *path, const struct stat *identity) {
  struct stat now;
  if (lstat(path, &now) == 0 && now.st_dev == identity->st_dev && now.st_ino == identity->st_ino)
    unlink(path);
}

/*
 * ---- passed by a service manager ----
 *
 * The listening socket that a service manager has opened for us: LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES,
 * as sd_listen_fds(3) describes them. It outlives us: who connects while we are started anew waits.
 */

enum { FIRST_FD = 3, PASSED_MAX = 1024 };

static int64_t number_of(const char *variable) {
  const char *text = getenv(variable);
  int64_t number;
  return text && parse_integer(text, 0, INT32_MAX, &number) == 0 ? number : 0;
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
  int fd = FIRST_FD + chosen, flags = fcntl(fd, F_GETFL);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    int err = -errno;
    log_error("the passed socket can't be set up: %s", strerror(errno));
    return err;
  }
  return fd;
}

int activation_take(char *path, size_t size) {
  int64_t count = number_of("LISTEN_PID") == getpid() ? number_of("LISTEN_FDS") : 0; /* for this process */
  int fd = count > 0 ? take_one_of(count < PASSED_MAX ? (int)count : PASSED_MAX, path, size) : -ENOENT;
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  return fd;
}
