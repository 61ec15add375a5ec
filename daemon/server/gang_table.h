/*
 * gang_table.h - the gangs that there are: the jobs of one user that name the same one. Each lasts from its
 * first job to its last.
 */
#ifndef GS_GANG_TABLE_H
#define GS_GANG_TABLE_H

#include <stdint.h>
#include <sys/types.h>

#include "core/scheduler.h"

#define GANG_BUCKETS 256

struct gang_table {
  struct list buckets[GANG_BUCKETS];
  size_t count;
};

struct gang {
  struct list link; /* of its bucket */
  struct gang_table *table;
  struct sched_gang sched;
  uid_t uid;
  uint64_t key; /* its name's */
  uint32_t jobs;
  char name[GS_GANG_SIZE];  /* as the programs say it */
  char shown[GS_GANG_SIZE]; /* for people */
};

void gang_table_init(struct gang_table *gangs);

/* A gang's name as a number, by which it is known for longer than it lasts. 0: the empty name's. */
uint64_t gang_key(const char *name);

/* NULL: none of its jobs is there. */
struct gang *gang_table_find(struct gang_table *gangs, uid_t uid, uint64_t key);

/* Count a job of the gang with this name. NULL: no memory. */
struct gang *gang_table_enter(struct gang_table *gangs, uid_t uid, const char *name);

/* The job is not in gang->sched any more. */
void gang_table_leave(struct gang *gang);

#endif
