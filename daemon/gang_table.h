/*
 * gang_table.h - the gangs that there are: the jobs of one user that name the same one. Each lasts from its
 * first job to its last.
 */
#ifndef GS_GANG_TABLE_H
#define GS_GANG_TABLE_H

#include <stdint.h>
#include <sys/types.h>

#include "core/scheduler.h"

struct gang {
  struct list link;
  struct sched_gang sched;
  uid_t uid;
  uint32_t jobs;
  char name[GS_GANG_SIZE];  /* as the programs say it */
  char shown[GS_GANG_SIZE]; /* for people */
};

/* Count a job of the gang with this name. NULL: no memory. */
struct gang *gang_table_enter(struct list *gangs, uid_t uid, const char *name);

/* The job is not in gang->sched any more. */
void gang_table_leave(struct gang *gang);

#endif
