/* program.h - gpushare-daemon as a program: what its command line, its files and its parts come to. */
#ifndef GS_PROGRAM_H
#define GS_PROGRAM_H

#include <stdatomic.h>

#include "metrics/exporter.h"
#include "server/cards.h"
#include "server/config.h"
#include "server/daemon_log.h"
#include "server/listen.h"
#include "server/server.h"
#include "web_child.h"

struct arguments {
  const char *config_path; /* NULL: the default, which may be absent */
  bool only_checks;        /* the configuration */
  const char *values[CONFIG_KEYS_MAX];
};

/* What is read of files: at the start, and again by SIGHUP or gpusharectl reload. */
struct files {
  struct config config;
  int err;         /* of the configuration: -errno */
  char error[512]; /* likewise, for people */
  struct user_names names;
  gid_t group; /* that of the configuration */
};

struct program {
  struct server server; /* first: a server's program */
  struct daemon daemon;
  struct arguments arguments;
  struct config config;
  struct files files;       /* while `reads`: a thread's */
  bool reads;               /* the files, again: */
  uint64_t read_ns;         /* since then */
  _Atomic bool has_read;    /* the thread has */
  bool applies;             /* what is read counts: it is not only looked at */
  bool signalled;           /* SIGHUP has come since then */
  const char *reads_how;    /* by a signal, or a program, */
  struct log_text reads_by; /* of this one, who has been the last */
  struct notify notify;
  struct exporter *exporter; /* NULL: metrics are not shown */
  struct web_child web;
  char visible[SPATIAL_VISIBLE_SIZE]; /* to MPS */
  char cards_trouble[NVML_WHY_SIZE];  /* why NVML has told nothing, as it stands in the log */
};

static inline struct program *program_of(struct server *server) { return (struct program *)(void *)server; }

/* ---- program.c ---- */

/* "host_memory" -> "host-memory" */
const char *option_name(const char *key, char name[32]);

/* Defaults, then the files, then the command line. Any file, and who knows of groups, may be on a network. */
void files_read(const struct arguments *arguments, struct files *files);

/* 0, or -errno of what has been read, after a line in the log, which the service manager is told as well. */
int program_check_files(struct program *program);

/* What has been read counts from now on: program->config, and the rest of program->files. */
void program_apply(struct program *program);

/* The host's cards may be others. */
void program_ask_for_cards(struct program *program);

/* A child has ended, which may have asked for them. */
void program_look_for_cards(struct program *program);

/* Programs are better not served before the daemon knows the cards. But a driver may take its time, or hang.
 */
void program_await_cards(struct program *program);

/* Metrics are shown no more. */
void program_close_exporter(struct program *program);

/* It is of this daemon alone, once that has the socket. */
void program_start_spatial(struct program *program);

/* Of a GPU, the configuration has another setting `spatial` than at the start. */
bool program_spatial_changes(const struct program *program, const struct config *fresh);

/* ---- reload.c: the configuration, again ---- */

void reload_on_signal(struct program *program, struct log_text by);

/* The peer waits for it (server->reloads). */
void reload_on_peer(struct server *server, const struct peer *peer);

/* SIGRTMIN has come: the thread has read the files, or somebody else has sent it. */
void reload_on_read(struct program *program);

#endif
