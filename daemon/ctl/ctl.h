/* ctl.h - what a command is asked for, the commands, and the conversation with the daemon. */
#ifndef GS_CTL_H
#define GS_CTL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpushare/protocol.h"

enum {
  CTL_OK = 0,
  CTL_REFUSED = 1,
  CTL_USAGE = 2,
  CTL_NO_DAEMON = 3,
  CTL_NOT_RUN = 126,
  CTL_NOT_FOUND = 127
};

/* ---- what a command is asked for ---- */

/* Values as they are given on the command line; NULL: not given. */
struct run_request {
  const char *socket, *memory, *library; /* else what the environment says */
  const char *name, *weight, *priority, *expected, *limit, *soft_limit, *expected_memory,
      *class;                         /* likewise */
  const char *slots, *jobs;           /* either makes it many */
  const char *output, *retry, *grace; /* these, and what follows, for many only */
  const char *gpus_per_job;
  bool prefix, fail_fast;
  char *const *command; /* with its arguments, NULL at the end; empty only with jobs */
};

struct request {
  const char *gpu;    /* NULL: all */
  const char *hosts;  /* status, top, report: NULL: this one; "a,b,c" */
  const char *job;    /* events: NULL: of all */
  const char *signal; /* kill: NULL: SIGTERM */
  const char *by;     /* report: NULL: the default */
  bool json, csv, follow, batch;
  const char *since;      /* NULL: from the beginning */
  const char *file;       /* NULL: stdout */
  const char *delay;      /* between looks; NULL: the default */
  struct run_request run; /* its socket is for all commands */
  uint64_t options;       /* those that are given, as ctl_main.c knows them */
  char **words;           /* command and its arguments */
  int word_count;
};

/* ---- the commands: each returns an exit code, after a line on stderr unless it is CTL_OK ---- */

int status_command(const struct request *request);   /* show.c */
int jobs_command(const struct request *request);     /* likewise */
int plan_command(const struct request *request);     /* likewise */
int why_command(const struct request *request);      /* why.c: why JOB */
int top_command(const struct request *request);      /* top.c */
int events_command(const struct request *request);   /* event.c: events, history */
int history_command(const struct request *request);  /* likewise */
int report_command(const struct request *request);   /* report.c */
int timeline_command(const struct request *request); /* trace.c */
int cdi_command(const struct request *request);      /* run.c: cdi generate */
int doctor_command(const struct request *request);   /* doctor.c */
int reload_command(const struct request *request);   /* change.c */
int change_gpus(const struct request *request);      /* change.c: of GPUs */
int change_job(const struct request *request);       /* likewise, of a job: terms, pause, evict */
int kill_command(const struct request *request);     /* kill.c */
int hosts_command(const struct request *request);    /* hosts.c: status, top, report of other hosts */
int run_command(const struct run_request *request);  /* run.c: becomes the command, or starts many */

/* Whether the options of a report or of top are right: CTL_OK, or CTL_USAGE after a line on stderr.
 * *interval_ns between looks; times 0: without end. */
int report_check(const struct request *request);                                     /* report.c */
int top_check(const struct request *request, uint64_t *interval_ns, int64_t *times); /* top.c */

/* Draw on a terminal, not line by line. */
bool top_is_live(const struct request *request);

/* ---- ask.c: what returns an exit code prints one line on stderr if that is not CTL_OK; what takes an
 * ask_error prints nothing, and writes the line there ---- */

/* One line on stderr, with the word that is wrong, if any; CTL_USAGE. */
int usage_error(const char *what, const char *word);

/* Likewise, with what was meant; NULL: nobody knows. */
int usage_error_near(const char *what, const char *word, const char *meant);

/* A line on stderr; returns the code. */
int command_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Of the daemon that the request is for. */
const char *daemon_path(const struct run_request *request);

/* Connect to that daemon; *fd on success. */
int connect_daemon(const struct request *request, int *fd);

#define ASK_ANSWER_MS 10000 /* so long the daemon may take */
#define ASK_MORE (-1)       /* no exit code: more is to come */

struct ask_error {
  char text[512];
};

/* Write it; the code. */
int ask_complain(struct ask_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Print it, unless the code is CTL_OK; the code. */
int ask_say(int code, const struct ask_error *error);

/* Connect; *fd on success. And without waiting; ASK_MORE: as many wait already as may. */
int ask_try_connect(const char *path, int *fd, struct ask_error *error);
int ask_connect_now(const char *path, int *fd, struct ask_error *error);

/* A message that has come. ASK_MORE: none has. */
int ask_take(int fd, struct gs_msg *msg, struct ask_error *error);

/* Ask for a change. */
int ask_try_change(int fd, const struct gs_msg *question, struct ask_error *error);

/* Ask for the process of a job: its descriptor (pidfd) in *process on success; and told: "pid 7, python". */
int ask_process(const char *path, uint32_t job, int *process, struct ask_error *told);
/* Ask for the configuration to be read again, or only looked at: `take` gets what differs, or what is wrong.
 */
int ask_try_reload(int fd, bool only_looks, void (*take)(void *argument, enum gs_note kind, const char *text),
                   void *argument, struct ask_error *error);

/* Ask for the state: *msgs, from malloc, are STATUS_DAEMON; then, for each GPU, STATUS_GPU, STATUS_HANDOVER
 * and a STATUS_JOB, STATUS_TERMS, STATUS_WAIT, STATUS_ORIGIN and STATUS_MEMORY of each of its jobs; and a
 * STATUS_COMMAND of those whose command this user may see. */
int ask_try_status(int fd, struct gs_msg **msgs, size_t *count, struct ask_error *error);

/* The same over a connection of its own. */
int ask_status(const char *path, struct gs_msg **msgs, size_t *count, struct ask_error *error);

/* The same in steps, without waiting: the question; then, whenever the connection is readable, what has come
 * of the answer (ASK_MORE, until CTL_OK: it is whole). */
struct answer {
  struct gs_msg *msgs; /* from malloc */
  size_t count, room;
  bool has_gpu; /* among them */
};
int answer_begin(struct answer *answer, int fd, struct ask_error *error);
int answer_take(struct answer *answer, int fd, struct ask_error *error);
void answer_drop(struct answer *answer);

/* Say that the answer takes too long. */
int ask_silence(struct ask_error *error);

/* Read a record, by a GET_EVENTS. `take` gets EVENTS_BEGIN, EVENT and EVENTS_MISSED, and ends it with a code
 * that is not CTL_OK. */
int ask_events(int fd, const struct gs_msg *question, int (*take)(void *reader, const struct gs_msg *msg),
               void *reader);

/* The number of a job. CTL_USAGE after a line on stderr: it is none. */
int read_job(const char *text, uint32_t *job);

/* Do it for each job that a word of the request names, from the second one to that before `end`, if all of
 * them are numbers. The first code that is not CTL_OK. `act` prints nothing but what it has done. */
int for_each_job(const struct request *request, int end,
                 int (*act)(void *context, uint32_t job, struct ask_error *error), void *context);
/* ---- run.c ---- */

/* The library as it is named, else as the environment says, else the one that belongs to this program. *path
 * is one that a command finds wherever it goes; or, for the loader to look for, the plain name. */
int library_find(const char *named, char path[PATH_MAX], struct ask_error *error);

#endif
