/* top_source.h - gpusharectl top: asks a daemon again and again, without waiting; one that is gone is looked
 * for until it is back. */
#ifndef GS_CTL_TOP_SOURCE_H
#define GS_CTL_TOP_SOURCE_H

#include "ctl/ctl.h"

struct top_source {
  const char *path;
  int fd; /* -1: not connected */
  bool asking;
  uint64_t asked_ns;      /* last; 0: never */
  uint64_t full_since_ns; /* as many wait for the daemon as may; */
  uint64_t again_ns;      /* then it is asked again; 0: the usual time */
  struct answer answer;   /* as far as it has come */
  struct ask_error error; /* empty: all is well */
};

struct top_source top_source_init(const char *path);

/* When top_source_step has something to do, even if the connection is not readable. */
uint64_t top_source_due_ns(const struct top_source *source, uint64_t interval_ns);

/* Do what is to be done now. True: source->answer is whole; whoever calls takes it. */
bool top_source_step(struct top_source *source, uint64_t interval_ns, uint64_t now_ns);

void top_source_end(struct top_source *source);

#endif
