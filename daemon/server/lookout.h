/*
 * lookout.h - a small process of the daemon's that alone may look at other users' open files, and answers one
 * kind of question: has this process that device open?
 *
 * It is made of two: one that waits, and one that looks and is replaced if it dies. Both have the
 * capabilities for it (CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, where the daemon was given them) and no
 * others; the daemon, unless it is root, has none from then on.
 */
#ifndef GS_LOOKOUT_H
#define GS_LOOKOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct lookout {
  int fd;       /* to it; -1: there is none */
  pid_t pid;    /* of the one that waits */
  pid_t worker; /* of the one that looks; 0: none has begun */
};

struct lookout_question {
  uint64_t id;          /* not 0 */
  uint64_t start_ticks; /* when the process began (process.h); 0: the caller makes sure which one it is */
  int32_t pid;
  uint32_t major, minor; /* of the device, whose name begins with "nvidia" */
};

struct lookout_answer {
  uint64_t id;   /* 0: one that looks begins, its number is in `found`; what was asked before is forgotten */
  int32_t found; /* 1, 0, or -errno: -EACCES, it may not look; -ESRCH, there is no such process; -E2BIG, the
                    process has more open than is looked at */
  uint32_t looked_at;
};

/* May the daemon look at other users' processes, or start a lookout that does? */
bool lookout_is_able(void);

/* 0 or -errno. */
int lookout_start(struct lookout *lookout);

void lookout_end(struct lookout *lookout);

/* Its process has ended: true, and it is to be started again. */
bool lookout_on_child(struct lookout *lookout);

/* 0; -EAGAIN: later; or another -errno: it is gone. */
int lookout_ask(const struct lookout *lookout, const struct lookout_question *question);

/* 0; -EAGAIN: none has come; or another -errno: it is gone. */
int lookout_hear(const struct lookout *lookout, struct lookout_answer *answer);

/* It takes too long: another one shall look. */
void lookout_replace(struct lookout *lookout);

/* What it does. */
struct lookout_answer lookout_look(const struct lookout_question *question);

#endif
