/*
 * kept.h - what outlives the daemon, and the text that it is written as.
 *
 * Each line is one fact, with a checksum: later lines count more than earlier ones, so a new fact is a line
 * at the end, and a line that is damaged costs itself alone. Names are what the daemon has made printable, so
 * fields have tabs between them:
 *
 *   gpushare-state 1
 *   boot     ID                            jobs that follow are of this boot of the machine
 *   last     JOB                           numbers up to this one have been given away
 *   job      PID START UID JOB STARTED     a process (START: field 22 of its stat) has this number
 *   gang     PID JOB KEY                   it is in this gang (clients.h); later ones count. 0: in none
 *   term     PID JOB TERM VALUE STANDING   somebody has set this for it, and for all jobs of its process
 *   gone     PID JOB
 *   set      UUID|all SETTING VALUE BASE   decisions. all: in place of what was set for single GPUs
 *   unset    UUID|all SETTING              likewise
 *   learnt   UID HASH NS                   terms.h
 *   command  AT JOB PID UID TEXT           record.h, of runs that have ended; AT: by the clock on the wall
 *   ended    AT JOB PID UID HOW STATUS STARTED GPU WAITED TURNS NAME
 *   usage    AT JOB PID UID CARD CLASS SINCE HELD GPU WAITED MOVED ENERGY NAME     usage.h
 *
 * No value is taken that the daemon would not take from gpusharectl. Pure; one thread at a time.
 */
#ifndef GS_KEPT_H
#define GS_KEPT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/list.h"
#include "server/overrides.h"
#include "server/record.h"
#include "server/terms.h"

#define KEPT_LINE_SIZE 512            /* the longest */
#define KEPT_RUNS (UINT64_C(1) << 13) /* COMMAND and ENDED, one each */
#define KEPT_USAGE (UINT64_C(1) << 16)
#define KEPT_PROCESSES_MAX 65536
#define KEPT_BUCKETS 1024
/* Of those that have left this daemon: altogether; and of one user, but for what stands. */
#define KEPT_AWAY_MAX 4096
#define KEPT_AWAY_PER_USER 256

/* A process that has, or had, a job. */
struct kept_process {
  struct list link;
  bool left; /* this daemon, and is there still: */
  struct list away_link;
  pid_t pid;
  uint64_t start; /* in ticks since the boot */
  uid_t uid;
  uint32_t job_id;
  uint64_t started_ns; /* its job */
  struct terms terms;  /* what has been set of them */
  uint64_t gang;       /* its key; 0: none */
  struct list gang_link;
};

struct kept {
  uint32_t last_job_id;
  struct decisions decisions;
  struct list processes[KEPT_BUCKETS]; /* by pid */
  size_t process_count;
  struct list gangs[KEPT_BUCKETS]; /* of these, those in gangs, by user and gang */
  struct list away;                /* of the former, the one that was looked at longest ago first */
  size_t away_count;
  struct history history;
  struct record runs, usage; /* at_ns: by the clock on the wall */
  size_t wrong_lines;
  bool this_boot; /* what a line says of processes that follows is of this boot */
};

void kept_init(struct kept *kept);
void kept_end(struct kept *kept);

/* Add what the text says; a line without an end is none. boot: this one, as the kernel names it. 0;
 * -EPROTONOSUPPORT: it is of a later version, and means something else. */
int kept_read(struct kept *kept, const char *text, size_t size, const char *boot);

/* All of it as lines. Processes that are not there any more (there is NULL: all are) are passed over.
 * put returns 0 or -errno, which ends it and is returned. */
struct kept_output {
  int (*put)(struct kept_output *output, const char *line, size_t length);
  bool (*there)(const struct kept_process *process);
};
int kept_write(const struct kept *kept, const char *boot, struct kept_output *output);

/* Take out what is kept of this process, from malloc; NULL: nothing. */
struct kept_process *kept_take(struct kept *kept, pid_t pid, uint64_t start, uid_t uid);

/* The next that is kept of this process; after NULL the first one. NULL: there is none. */
struct kept_process *kept_next(struct kept *kept, const struct kept_process *after, pid_t pid, uint64_t start,
                               uid_t uid);

/* Keep this process, which has left, from malloc, for when it comes back. The one that must be given up for
 * that, which is the caller's, or NULL; it may be this one. What was set by somebody whom the owner can't
 * overrule goes last. */
struct kept_process *kept_leave(struct kept *kept, struct kept_process *process);

/* What is kept of this user's gang: the next after `last`; NULL: the first, none. */
struct kept_process *kept_next_of_gang(struct kept *kept, const struct kept_process *last, uid_t uid,
                                       uint64_t gang);

/* Look at the next of those that have left: taken out if it is not there any more, and the caller's. */
struct kept_process *kept_take_ended(struct kept *kept, bool (*there)(const struct kept_process *process));

/* ---- lines: their lengths ---- */

/* For tests: of what it says itself. */
size_t kept_line_text(char line[KEPT_LINE_SIZE], const char *text);
size_t kept_line_version(char line[KEPT_LINE_SIZE]);
size_t kept_line_boot(char line[KEPT_LINE_SIZE], const char *boot);
size_t kept_line_job(char line[KEPT_LINE_SIZE], const struct kept_process *process);
size_t kept_line_gang(char line[KEPT_LINE_SIZE], const struct kept_process *process);
size_t kept_line_last(char line[KEPT_LINE_SIZE], uint32_t job_id);
size_t kept_line_term(char line[KEPT_LINE_SIZE], pid_t pid, uint32_t job_id, const struct terms *terms,
                      enum gs_term term);
size_t kept_line_gone(char line[KEPT_LINE_SIZE], pid_t pid, uint32_t job_id);
size_t kept_line_set(char line[KEPT_LINE_SIZE], const struct decision *decision);
/* Of a decision only the GPU and the setting count. */
size_t kept_line_unset(char line[KEPT_LINE_SIZE], const struct decision *decision);
size_t kept_line_learnt(char line[KEPT_LINE_SIZE], uid_t uid, uint64_t command_hash, uint64_t ns);
/* A COMMAND, ENDED or USAGE, with its times by the clock on the wall. */
size_t kept_line_event(char line[KEPT_LINE_SIZE], const struct gs_msg *event);

#endif
