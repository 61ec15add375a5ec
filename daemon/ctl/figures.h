/* figures.h - what a status shows of GPUs and jobs beyond what the daemon's messages say as such. */
#ifndef GS_CTL_FIGURES_H
#define GS_CTL_FIGURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/words.h"
#include "gpushare/protocol.h"

/* For a line: they live as long as the block. */
#define BYTES_TEXT(bytes) words_bytes(bytes, (char[WORDS_SIZE]){0})
#define DURATION_TEXT(ns) words_duration(ns, (char[WORDS_SIZE]){0})
#define USER_TEXT(uid) figures_user_name(uid, (char[16]){0})

/* The text, in which put writes what stands for a code: "$x". */
void figures_say(FILE *out, const char *text, void (*put)(FILE *out, char code, const void *context),
                 const void *context);

struct gpu_figures {
  const struct gs_msg *gpu;           /* STATUS_GPU */
  const struct gs_msg *handover;      /* its STATUS_HANDOVER */
  uint64_t held_sum_ns;               /* time that its jobs have held it, all together */
  bool terms_shown[GS_TERM_RATE + 1]; /* by enum gs_term: some job has another than most */
  int gang_width;                     /* of the longest name; 0: no job has a gang */
  int from_width;                     /* likewise: where jobs come from, figures_from */
  bool own_pids;                      /* some job has another pid in its own pid namespace */
  unsigned preempting, own_contexts;  /* of its jobs: how many have these flags */
};

/* Of the GPU whose STATUS_GPU `gpu` is, in messages that end at `end`. */
struct gpu_figures figures_of_gpu(const struct gs_msg *gpu, const struct gs_msg *end);

struct job_figures {
  const struct gs_msg *job;    /* STATUS_JOB */
  const struct gs_msg *terms;  /* its STATUS_TERMS */
  const struct gs_msg *wait;   /* its STATUS_WAIT */
  const struct gs_msg *origin; /* its STATUS_ORIGIN */
};

/* Of the job whose STATUS_JOB `job` is, in messages that end at `end`. */
struct job_figures figures_of_job(const struct gs_msg *job, const struct gs_msg *end);

const char *figures_state_name(unsigned state);
const char *figures_reason_name(unsigned reason);

/* Of a STATUS_WAIT: less than the whole GPU is the job's; how much of it. */
const char *figures_limited_name(unsigned limited);
bool figures_has_limit(const struct gs_msg *wait);
double figures_limit_share(const struct gs_msg *wait);

/* It has none yet, and waits until card and host have it left. */
bool figures_waits_for_memory(const struct job_figures *job);

/* It holds the GPU, and waits for others to leave the card. */
bool figures_waits_for_room(const struct gpu_figures *figures, const struct gs_msg *job);

/* Of a STATUS_ORIGIN. The short form has only the beginning of a pod's uid: "docker:3f2a9c1b4d5e". Empty: no
 * name is known. */
const char *figures_origin_name(unsigned kind);
#define FIGURES_FROM_SIZE 96
const char *figures_from(const struct gs_msg *origin, char buffer[FIGURES_FROM_SIZE]);

const char *figures_user_name(uint32_t uid, char buffer[16]);

#endif
