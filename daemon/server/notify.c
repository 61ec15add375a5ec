/*
 * notify.c - datagrams to the service manager, as sd_notify(3) describes them. The protocol is a few lines of
 * text and promised to stay; a library for it would be the daemon's only need for systemd, which containers
 * do without.
 */
#include "server/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
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
