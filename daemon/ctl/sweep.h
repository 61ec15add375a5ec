/* sweep.h - a run of many jobs, so many at once. */
#ifndef GS_CTL_SWEEP_H
#define GS_CTL_SWEEP_H

#include "ctl/joblist.h"

struct sweep_plan {
  char *const *command; /* NULL at the end */
  const struct joblist *list;
  const char *name;   /* of the jobs, with their index behind it; NULL: none */
  size_t slots;       /* so many at once */
  unsigned retries;   /* for each job that fails */
  uint64_t grace_ns;  /* from SIGTERM to SIGKILL, once one has failed */
  const char *output; /* folder; NULL: a new one */
  bool prefix;        /* lines of ours instead of files */
  bool fail_fast;
  struct spread *spread; /* which GPUs they see */
  const char *socket;    /* of the daemon that knows who uses the GPUs; it need not be there */
};

/* Run them all: an exit code. */
int sweep_run(const struct sweep_plan *plan);

/* Become the command as it is. Returns only an exit code, after a line on stderr. */
int sweep_become(char *const *command);

#endif
