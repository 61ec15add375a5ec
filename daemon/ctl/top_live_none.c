/* top_live_none.c - gpusharectl top on a terminal, in a build without ncurses. */
#include <stdio.h>

#include "ctl/top.h"

int top_live(const char *path, uint64_t interval_ns) {
  (void)path;
  (void)interval_ns;
  fprintf(stderr, "gpusharectl: this build has no ncurses: use top --batch, or install libncurses-dev and "
                  "build gpushare again\n");
  return CTL_REFUSED;
}
