/* ctl.h - the parts of gpusharectl: main.c (what is asked), ask.c (the daemon), show.c (the answer). */
#ifndef GS_CTL_H
#define GS_CTL_H

#include <stddef.h>

#include "gpushare/protocol.h"

enum { CTL_OK = 0, CTL_REFUSED = 1, CTL_USAGE = 2, CTL_NO_DAEMON = 3 };

/* ---- ask.c: each prints one line on stderr when it fails, and returns an exit code ---- */

/* Connect; *fd on success. */
int ask_connect(const char *path, int *fd);

/* Ask for a change. */
int ask_change(int fd, const struct gs_msg *question);

/* Ask for the state: *msgs, from malloc, are STATUS_DAEMON, then STATUS_GPU and STATUS_JOB messages. */
int ask_status(int fd, struct gs_msg **msgs, size_t *count);

/* ---- show.c ---- */

void show_table(const struct gs_msg *msgs, size_t count);

/* CTL_OK, or CTL_REFUSED without memory. */
int show_json(const struct gs_msg *msgs, size_t count);

#endif
