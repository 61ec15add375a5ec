/* joblist.h - many jobs: each is words to append to one command, and settings of its environment; its words
 * as a text that a shell reads back as these words; and which of several GPUs it sees. */
#ifndef GS_CTL_JOBLIST_H
#define GS_CTL_JOBLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpushare/protocol.h"

struct joblist_job {
  char **words;    /* NULL at the end */
  size_t settings; /* how many of them, from the first on, are NAME=VALUE for the environment */
  size_t line;     /* where it stands, from 1 */
};

struct joblist {
  struct joblist_job *jobs;
  size_t count;
  char **words; /* of all jobs */
};

struct joblist_error {
  size_t line;
  const char *what;
};

/*
 * A job per line; lines without words are none. Words are parted by blanks and quoted as in a shell: '...' as
 * it is; "..." with \ before " \ $ and `; elsewhere \ before any character. A # where a word could begin
 * starts a comment. Nothing is expanded. Words in front that read NAME=VALUE, the name not quoted, are
 * settings.
 *
 * Takes the text apart where it lies: it must outlive the list. 0; -ENOMEM; or -EINVAL, with the error told.
 */
int joblist_parse(struct joblist *list, char *text, struct joblist_error *error);

/* As often the same, without words of its own. 0 or -ENOMEM. */
int joblist_repeat(struct joblist *list, size_t count);

/* What it sets a variable of its environment to; NULL: nothing. */
const char *joblist_setting(const struct joblist_job *job, const char *name);

void joblist_free(struct joblist *list);

/* A job's settings, the command and the job's words in one line without tabs, from malloc; NULL without
 * memory. Control characters are written as bash, ksh and zsh read them: $'\011'. */
char *quote_command(char *const *command, const struct joblist_job *job);

/* ---- GPUs for them ---- */

#define SPREAD_GPUS_MAX 64
#define SPREAD_NAME_SIZE 64

struct spread_gpu {
  char name[SPREAD_NAME_SIZE]; /* as CUDA_VISIBLE_DEVICES has it */
  unsigned running;            /* of these jobs */
  uint64_t room_bytes; /* what all jobs that the daemon knows leave over; SPREAD_UNUSED: nobody uses it */
};
#define SPREAD_UNUSED UINT64_MAX

/* All zero: every job sees what we see. */
struct spread {
  struct spread_gpu gpus[SPREAD_GPUS_MAX];
  size_t count;
  size_t per_job; /* so many for each */
  bool as_told;   /* by a person: also for jobs that, as it seems, use several GPUs themselves */
};

/* One more GPU; none beyond SPREAD_GPUS_MAX. */
void spread_add(struct spread *spread, const char *name);

/* True: there are more GPUs than a job sees. */
bool spread_is_needed(const struct spread *spread);

/* Whether GPUs are to be taken for this job: not where it sets CUDA_VISIBLE_DEVICES itself; nor, unless
 * as_told, where it is of a gang or its program starts several processes. */
bool spread_concerns(const struct spread *spread, char *const *command, const struct joblist_job *job);

/* What the daemon says of a GPU, after spread_forget_rooms: it says nothing of those that nobody uses, or no
 * capacity. */
void spread_forget_rooms(struct spread *spread);
void spread_set_use(struct spread *spread, const uint8_t uuid[GS_UUID_SIZE], uint64_t capacity_bytes,
                    uint64_t used_bytes);

/* Take per_job GPUs for a job: those with the fewest of these jobs; of equal ones those with the most room;
 * then the first. They are the bits of the result. */
uint64_t spread_take(struct spread *spread);

/* The job has ended. 0: nothing. */
void spread_give_back(struct spread *spread, uint64_t taken);

/* For CUDA_VISIBLE_DEVICES, in the order of the list, from malloc; NULL without memory. */
char *spread_text(const struct spread *spread, uint64_t taken);

/* GPUs, as others tell of them: the driver, which are visible; the daemon, who uses them. */

/* Add the GPUs that a program which we start would see, in its order. An exit code, after a line on stderr
 * if CUDA_VISIBLE_DEVICES names some that are not there. Without a driver there are none. */
int visible_find(struct spread *spread);

/* Tell `spread` what room there is, as the daemon says; without one it stays. */
void visible_look_at_rooms(struct spread *spread, const char *socket);

#endif
