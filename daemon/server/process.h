/* process.h - the process at the other end of a connection, by a descriptor: its number may be another's by
 * the time that one looks. */
#ifndef GS_PROCESS_H
#define GS_PROCESS_H

#include "gpushare/protocol.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor of the process that has made this connection, readable once that has ended. `pid`: as
 * SO_PEERCRED says. -ESRCH: it has ended. Another -errno: the kernel has none for us. */
int process_open(int socket, pid_t pid);

/* The same for the process of this number, if it has begun then; -ESRCH: it has not, or is gone. */
int process_open_since(pid_t pid, uint64_t start_ticks);

/* When it began, in the kernel's ticks since the machine did; 0: it can't be told. */
uint64_t process_start_ticks(pid_t pid);

/* A signal or a tracer holds it. */
bool process_is_stopped(pid_t pid);

/* The start of the text /proc/PID/NAME, as far as there is room; "": it can't be read. */
void process_read(pid_t pid, const char *name, char *text, size_t size);

/* It has ended. Of no descriptor (-1): it has not. */
bool process_has_ended(int pidfd);

/* ---- children of the daemon ---- */

/* In a child: it is killed when its parent dies. False: that has died. */
bool process_bind_to(pid_t parent);

/* Closes all descriptors from this one on. */
void process_close_from(int first);

/* In a child that has nothing more to do with the daemon but to end with it: both, and no signal is blocked.
 */
void process_leave(pid_t daemon);

/* Waits until a child may have ended, but not beyond that time: false. Caller must: block SIGCHLD. */
bool process_await_child(uint64_t end_ns);

/*
 * ---- who may change settings ----
 *
 * Who may change settings.
 */

#define PERMISSION_NO_GROUP ((gid_t)-1)

/* The id of a group given by name or number; PERMISSION_NO_GROUP if there is none. */
gid_t permission_find_group(const char *name);

/* The process of this number is in our own pid namespace, so in no container. False also if there is none.
 * Caller must: look afterwards that the process that is meant has not ended. Its number may be another's
 * then. */
bool permission_is_near(pid_t pid);

/* The process at the other end of the socket, which is near: root, of our own user, or in the group. */
bool permission_granted(int fd, gid_t group);

/*
 * ---- where a process comes from ----
 *
 * Container, pod, unit or batch job, by its control groups. Pure.
 */

struct origin {
  enum gs_origin kind;
  char name[GS_ORIGIN_SIZE];
  char container[GS_CONTAINER_SIZE]; /* the id's beginning; empty: in none, or nobody knows */
};

/* `text` is that of /proc/PID/cgroup, versions 1 and 2; it is written to. */
struct origin origin_parse(char *text);

#endif
