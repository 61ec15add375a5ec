/* abstract_socket.c - every descriptor is looked at before it is used: its number may be the program's by
 * now. */
#include "common/abstract_socket.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/random.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire.h"

uint64_t abstract_draw(_Atomic uint64_t *number) {
  uint64_t seen = atomic_load(number), drawn;
  if (seen || syscall(SYS_getrandom, &drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn)
    return seen;
  return atomic_compare_exchange_strong(number, &seen, drawn) ? drawn : seen;
}

static socklen_t set_address(struct sockaddr_un *address, struct abstract_name name) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "gpushare-%.16s-%016" PRIx64,
                        name.kind, name.number);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

struct descriptor abstract_listen(struct abstract_name name, int backlog) {
  struct sockaddr_un address;
  socklen_t size = set_address(&address, name);
  struct descriptor made = wire_socket_as_guest();
  if (made.fd >= 0 && (bind(made.fd, (struct sockaddr *)&address, size) < 0 || listen(made.fd, backlog) < 0))
    descriptor_close(&made);
  return made;
}

/* As accept has made it. */
static bool is_accepted(int fd, const void *name) {
  struct sockaddr_un own, address = {.sun_family = AF_UNSPEC};
  socklen_t own_size = set_address(&own, *(const struct abstract_name *)name), size = sizeof address;
  return getsockname(fd, (struct sockaddr *)&address, &size) == 0 && size == own_size &&
         memcmp(&own, &address, size) == 0;
}

struct descriptor abstract_accept(const struct descriptor *listening, struct abstract_name name) {
  if (!descriptor_is_ours(listening)) {
    errno = EBADF;
    return DESCRIPTOR_NONE;
  }
  long fd = syscall(SYS_accept4, listening->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return descriptor_keep((int)fd, is_accepted, &name); /* descriptor.c says why a system call */
}

struct descriptor abstract_connect(struct abstract_name name) {
  struct sockaddr_un address;
  socklen_t size = set_address(&address, name);
  struct descriptor made = wire_socket_as_guest();
  if (made.fd >= 0 && syscall(SYS_connect, made.fd, &address, size) < 0)
    descriptor_close(&made);
  return made;
}

static bool look_at(const struct descriptor *connected, struct ucred *other) {
  socklen_t size = sizeof *other;
  return getsockopt(connected->fd, SOL_SOCKET, SO_PEERCRED, other, &size) == 0;
}

bool abstract_is_trusted(const struct descriptor *connected, pid_t pid) {
  struct ucred other;
  return look_at(connected, &other) && other.uid == geteuid() && (!pid || other.pid == pid);
}

pid_t abstract_other(const struct descriptor *connected) {
  struct ucred other;
  return look_at(connected, &other) ? other.pid : 0;
}
