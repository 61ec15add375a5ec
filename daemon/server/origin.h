/* origin.h - where a process comes from (container, pod, unit, batch job), by its control groups. Pure. */
#ifndef GS_ORIGIN_H
#define GS_ORIGIN_H

#include "gpushare/protocol.h"

struct origin {
  enum gs_origin kind;
  char name[GS_ORIGIN_SIZE];
  char container[GS_CONTAINER_SIZE]; /* the id's beginning; empty: in none, or nobody knows */
};

/* `text` is that of /proc/PID/cgroup, versions 1 and 2; it is written to. */
struct origin origin_parse(char *text);

#endif
