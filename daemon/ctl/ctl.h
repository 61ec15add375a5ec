/* ctl.h - the parts of gpusharectl: main.c (what is asked), ask.c (the daemon), table.c and json.c (the
 * answer), run.c (start a program). */
#ifndef GS_CTL_H
#define GS_CTL_H

#include <stddef.h>

#include "gpushare/protocol.h"

enum {
  CTL_OK = 0,
  CTL_REFUSED = 1,
  CTL_USAGE = 2,
  CTL_NO_DAEMON = 3,
  CTL_NOT_RUN = 126,
  CTL_NOT_FOUND = 127
};

/* ---- ask.c: each prints one line on stderr when it fails, and returns an exit code ---- */

/* Connect; *fd on success. */
int ask_connect(const char *path, int *fd);

/* Ask for a change. */
int ask_change(int fd, const struct gs_msg *question);

/* Ask for the state: *msgs, from malloc, are STATUS_DAEMON; then, for each GPU, STATUS_GPU, STATUS_HANDOVER
 * and its STATUS_JOBs. */
int ask_status(int fd, struct gs_msg **msgs, size_t *count);

/* ---- table.c ---- */

void table_show(const struct gs_msg *msgs, size_t count);

/* ---- json.c ---- */

/* CTL_OK, or CTL_REFUSED without memory. */
int json_show(const struct gs_msg *msgs, size_t count);

/* ---- run.c ---- */

struct run_request {
  const char *socket; /* NULL: what the environment says */
  const char *memory; /* a value of GPUSHARE_MEMORY; NULL: likewise */
  const char *library;
  char *const *command; /* with its arguments, NULL at the end */
};

/* Become the command, with libunified.so preloaded. Returns only an exit code, after a line on stderr. */
int run_command(const struct run_request *request);

#endif
