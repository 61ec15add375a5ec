/* notify.h - what a service manager is told of the daemon: that it is ready, reloads, ends, and that it is
 * alive. */
#ifndef GS_NOTIFY_H
#define GS_NOTIFY_H

#include <stdint.h>

struct notify {
  int fd;               /* -1: nobody wants to know */
  uint64_t interval_ns; /* between signs of life; 0: nobody waits for them */
  uint64_t next_ns;     /* the next one; UINT64_MAX: never */
  char trouble[544];    /* shown beside what goes on; empty: none */
};

/* By NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, which our children are not to see. */
void notify_open(struct notify *notify, uint64_t now_ns);
void notify_close(struct notify *notify);

void notify_ready(const struct notify *notify, uint32_t programs);
void notify_reloading(const struct notify *notify, uint64_t now_ns);
void notify_stopping(const struct notify *notify);

/* It won't get ready, because of the trouble. */
void notify_failing(const struct notify *notify);

/* The loop turns, at next_ns or later. Never blocks. */
void notify_alive(struct notify *notify, uint64_t now_ns, uint32_t programs);

#endif
