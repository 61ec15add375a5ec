/*
 * descriptor.h - descriptors of ours in someone else's process. The program may close any number, and open
 * something else by it. So a number is ours only as long as it still means what we have opened.
 *
 * A check cannot exclude that another thread of the program changes the table between the check and the use.
 * So what is used afterwards must be harmless to a foreign file: pread of a small file, sendmsg, a read that
 * does not wait. For anything else there is descriptor_frozen.
 */
#ifndef GS_DESCRIPTOR_H
#define GS_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

/* Numbers below are the program's, where its limit leaves us a choice. */
#define DESCRIPTOR_LEAST 512

struct descriptor {
  int fd; /* -1: none */
  mode_t type;
  dev_t device;
  ino_t inode;
};

#define DESCRIPTOR_NONE ((struct descriptor){.fd = -1})

/* What a number means now; fd is -1 if it means nothing. */
struct descriptor descriptor_identify(int fd);

/* Takes over what has just been opened, and moves it to a number from DESCRIPTOR_LEAST on. In a table that
 * the program shares, it may have put something else at this number meanwhile: is_it looks whether that is
 * what we have opened. fd is -1, with errno set, if it is not, or there is no number. Passes -1 on. */
struct descriptor descriptor_keep(int fd, bool (*is_it)(int fd, const void *argument), const void *argument);

/* Whether it may stay for long: its number is among so many eighths of those that the program may have open,
 * from DESCRIPTOR_LEAST on. More for what nothing stands in for: memory that is passed (2) can be copied. */
#define DESCRIPTOR_PASSED 2
#define DESCRIPTOR_LEASE 3
bool descriptor_may_stay(const struct descriptor *descriptor, unsigned eighths);

/* Opens a file for reading. fd is -1, with errno set, where that fails. */
struct descriptor descriptor_open(const char *path);

/* Whether the number still means what it did. */
bool descriptor_is_ours(const struct descriptor *descriptor);

/* Runs the action in a thread with a descriptor table of its own: the program never sees, in its table, what
 * the action opens and closes. Where that can't be, it runs here. Keeps errno; no cancellation point. */
void descriptor_apart(void (*action)(void *argument), void *argument);

/* Runs the action in a moment's thread whose descriptor table is a copy, of 0 to 2 at least: a number that
 * has been checked there means the same when it is used. The caller waits. A signal that a write causes
 * (SIGPIPE, SIGXFSZ) ends with the thread. The action shares the caller's errno. No allocation, no lock, no
 * cancellation point: safe in a signal handler. False: there can be no such thread, and the action has not
 * run. */
bool descriptor_frozen(void (*action)(void *argument), void *argument);

/* From here on the calling thread, and threads that it starts, have a table of their own, an empty one: not
 * for threads that call the driver. False: this kernel, or a sandbox, does not let them. */
bool descriptor_own_table(void);

/* Closes it if it is ours; forgets it in any case. Keeps errno. */
void descriptor_close(struct descriptor *descriptor);

/* The same of a socket, with what is in it. The other side sees its end, and so does a thread that waits for
 * it, even if a process that was made by a raw clone still has it. */
void descriptor_hang_up(struct descriptor *connected);

#endif
