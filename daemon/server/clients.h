/* clients.h - the programs that are registered. */
#ifndef GS_CLIENTS_H
#define GS_CLIENTS_H

#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/fnv.h"
#include "core/scheduler.h"
#include "server/terms.h"

struct attachment;
struct daemon;
struct peer;

/* One more, with its number; it is gone. */
void clients_add(struct daemon *daemon, struct peer *peer);
void clients_remove(struct daemon *daemon, struct peer *peer);

/* The client with this job; NULL: there is none. */
struct peer *clients_find(struct daemon *daemon, uint32_t job_id);

/* ---- terms ---- */

/* What the user may have. */
struct user_limit clients_limit_of(const struct daemon *daemon, uid_t uid);

/* So much of what it asks for it is given from now on. If that is less, the log says so, once. */
void clients_bound(const struct daemon *daemon, struct peer *peer);
void clients_note_cut(struct peer *peer);

/* Its jobs are given its terms. Returns how many they are. */
int clients_apply_terms(struct peer *peer, uint64_t now_ns);

/* Likewise, after those of clients of which this was said before; of many clients, some in each turn of the
 * loop. */
void clients_apply_terms_soon(struct daemon *daemon, struct peer *peer);
void clients_apply_some_terms(struct daemon *daemon, uint64_t now_ns);

/* The job has been given other terms than these. */
void clients_on_terms(struct attachment *attachment, const struct sched_terms *before, uint64_t now_ns);

/* What users may and have: these count from now on, and for jobs that are there as soon as it is their turn,
 * as long as daemon->bounding. */
void clients_set_bounds(struct daemon *daemon, const struct terms_bounds *bounds,
                        const struct user_limits *users, uint64_t now_ns);
void clients_go_on_with_bounds(struct daemon *daemon, uint64_t now_ns);

/* ---- gangs: the jobs of one user that name the same one. Each lasts from its first job to its last ---- */

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

/* A gang's name as a number, by which it is known for longer than it lasts. 0: the empty name's. Who makes
 * names with the same number has one gang in place of two. */
static inline uint64_t gang_key(const char *name) {
  uint64_t key = fnv_add(FNV_BASIS, name, strlen(name));
  return *name ? key + !key : 0;
}

/* NULL: none of its jobs is there. */
struct gang *gang_table_find(struct gang_table *gangs, uid_t uid, uint64_t key);

/* Count a job of the gang with this name. NULL: no memory. */
struct gang *gang_table_enter(struct gang_table *gangs, uid_t uid, const char *name);

/* The job is not in gang->sched any more. */
void gang_table_leave(struct gang *gang);

/* The job joins the gang that its program names, once it has memory there, or wants to run: each process of a
 * distributed program may well have a context on every GPU, and use one of them. */
void clients_join_gang(struct daemon *daemon, struct attachment *attachment, uint64_t now_ns);

/* The job is in no gang of the core's any more. */
void clients_leave_gang(struct attachment *attachment);

#endif
