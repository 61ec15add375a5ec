/* listen.c - where others find the daemon: socket files, and ports. */
#include "server/listen.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
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

/* Every user may connect, from the moment the file exists. */
static int bind_for_all(int fd, const struct sockaddr_un *address) {
  mode_t before = umask(0111);
  int err = bind(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? -errno : 0;
  umask(before);
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
  err = fd < 0 ? -errno : bind_for_all(fd, &address);
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
