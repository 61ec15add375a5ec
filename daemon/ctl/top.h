/* top.h - gpusharectl top: on a terminal, or line by line. */
#ifndef GS_CTL_TOP_H
#define GS_CTL_TOP_H

#include "ctl/ctl.h"

/* On a terminal, until a key ends it (top_live.c; without ncurses top_live_none.c). An exit code, after a
 * line on stderr unless it is CTL_OK. */
int top_live(const char *path, uint64_t interval_ns);

#endif
