/* listen.c - where others find the daemon: socket files, and ports. */
#include "server/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
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

/* ---- at an address of the configuration ---- */

int listener_open(struct listener *listener, const char *text) {
  struct address *address = &listener->address;
  *listener = (struct listener){.fd = -1};
  int err = address_parse(text, address);
  if (err < 0)
    return err;
  strncpy(listener->text, text, sizeof listener->text - 1);
  listener->fd = address->any.sa_family == AF_UNIX
                     ? listen_open(address->file.sun_path, SOCK_STREAM, &listener->identity)
                     : listen_open_inet(&address->any, &address->size);
  address_format(address, listener->shown);
  return listener->fd < 0 ? listener->fd : 0;
}

void listener_close(struct listener *listener) {
  if (listener->fd >= 0)
    close(listener->fd);
  listener->fd = -1;
  if (listener->address.any.sa_family == AF_UNIX)
    listen_remove(listener->address.file.sun_path, &listener->identity);
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

/*
 * ---- what a service manager is told ----
 *
 * By datagrams, as sd_notify(3) describes them. The protocol is a few lines of text and promised to stay; a
 * library for it would be the daemon's only need for systemd, which containers do without.
 */

#define NS_PER_US 1000
#define PATIENCE_S 5 /* with a manager that does not read */

/* A file or, with '@' in front, an abstract address. 0: it is neither. */
static socklen_t set_address(struct sockaddr_un *address, const char *text) {
  size_t length = strlen(text);
  if ((*text != '/' && *text != '@') || length >= sizeof address->sun_path)
    return 0;
  memcpy(address->sun_path, text, length + 1);
  if (*text == '@')
    address->sun_path[0] = '\0';
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*text == '/'));
}

static int connect_to(const char *text) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct timeval patience = {.tv_sec = PATIENCE_S};
  socklen_t size = set_address(&address, text);
  int fd = size ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, size) == 0 &&
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0)
    return fd;
  log_warn("NOTIFY_SOCKET=%s can't be used: %s", text, size ? strerror(errno) : "no such address");
  if (fd >= 0)
    close(fd);
  return -1;
}

static uint64_t read_interval_ns(void) {
  const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
  int64_t number;
  if (pid && (parse_integer(pid, 1, INT32_MAX, &number) < 0 || number != getpid()))
    return 0;
  if (!usec || parse_integer(usec, 2, INT64_MAX / NS_PER_US, &number) < 0)
    return 0;
  return (uint64_t)number * NS_PER_US / 2;
}

void notify_open(struct notify *notify, uint64_t now_ns) {
  const char *text = getenv("NOTIFY_SOCKET");
  *notify = (struct notify){.fd = text && *text ? connect_to(text) : -1, .next_ns = UINT64_MAX};
  notify->interval_ns = notify->fd >= 0 ? read_interval_ns() : 0;
  if (notify->interval_ns)
    notify->next_ns = now_ns + notify->interval_ns;
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  unsetenv("WATCHDOG_PID");
}

void notify_close(struct notify *notify) {
  if (notify->fd >= 0)
    close(notify->fd);
  notify->fd = -1;
  notify->next_ns = UINT64_MAX;
}

static void tell(const struct notify *notify, const char *message, int flags) {
  if (notify->fd < 0)
    return;
  if (send(notify->fd, message, strlen(message), MSG_NOSIGNAL | flags) < 0)
    log_debug("the service manager does not hear: %s", strerror(errno));
}

static void tell_status(const struct notify *notify, const char *state, uint32_t programs, int flags) {
  char message[1024];
  snprintf(message, sizeof message, "%s\nSTATUS=%" PRIu32 " program%s%s%s", state, programs,
           programs == 1 ? "" : "s", *notify->trouble ? "; " : "", notify->trouble);
  tell(notify, message, flags);
}

void notify_ready(const struct notify *notify, uint32_t programs) {
  tell_status(notify, "READY=1", programs, 0);
}

void notify_reloading(const struct notify *notify, uint64_t now_ns) {
  char message[128];
  snprintf(message, sizeof message, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, now_ns / NS_PER_US);
  tell(notify, message, 0);
}

void notify_stopping(const struct notify *notify) { tell(notify, "STOPPING=1", 0); }

void notify_failing(const struct notify *notify) {
  char message[1024];
  snprintf(message, sizeof message, "STATUS=%s", notify->trouble);
  tell(notify, message, 0);
}

void notify_alive(struct notify *notify, uint64_t now_ns, uint32_t programs) {
  if (now_ns < notify->next_ns)
    return;
  notify->next_ns = now_ns + notify->interval_ns;
  tell_status(notify, "WATCHDOG=1", programs, MSG_DONTWAIT);
}
