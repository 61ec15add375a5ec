/* figures.h - the daemon's answer to the question for its state, taken apart: GPUs, jobs, and what a status
 * shows of them beyond what the daemon's messages say as such. */
#ifndef GS_CTL_FIGURES_H
#define GS_CTL_FIGURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/parse.h"
#include "common/words.h"
#include "ctl/ctl.h"
#include "ctl/output.h"

#define MILLIJOULES_PER_KWH 3.6e9

/* For a line: they live as long as the block. */
#define BYTES_TEXT(bytes) words_bytes(bytes, (char[WORDS_SIZE]){0})
#define DURATION_TEXT(ns) words_duration(ns, (char[WORDS_SIZE]){0})
#define UUID_TEXT(gpu) gpu_uuid(gpu, (char[GS_UUID_TEXT_SIZE]){0})
#define TOGETHER_TEXT(gpu) figures_together(gpu, (char[FIGURES_TOGETHER_SIZE]){0})

struct job_figures {
  const struct gpu_figures *gpu;
  const struct gs_msg *job;     /* STATUS_JOB */
  const struct gs_msg *terms;   /* its STATUS_TERMS */
  const struct gs_msg *wait;    /* its STATUS_WAIT */
  const struct gs_msg *origin;  /* its STATUS_ORIGIN */
  const struct gs_msg *command; /* its STATUS_COMMAND; its text is empty: unknown, or not for this user */
  const struct gs_msg *memory;  /* its STATUS_MEMORY */
};

struct gpu_figures {
  const struct gs_msg *gpu;      /* STATUS_GPU */
  const struct gs_msg *handover; /* its STATUS_HANDOVER */
  const struct gs_msg *card;     /* its STATUS_CARD; NULL: NVML has not told lately */
  struct job_figures *jobs;      /* so many */
  size_t job_count;
  uint64_t held_sum_ns;              /* time that its jobs have held it, all together */
  uint64_t card_bytes, away_bytes;   /* of its jobs: on the card, and not */
  unsigned preempting, own_contexts; /* of its jobs: how many have these flags */
};

struct status {
  struct gs_msg *msgs;         /* from malloc; all others point there */
  const struct gs_msg *daemon; /* STATUS_DAEMON; NULL: nothing is known */
  struct gpu_figures *gpus;
  struct job_figures *jobs; /* of all GPUs, in the order of these */
  size_t gpu_count, job_count;
};

/* Of a daemon's whole answer, which it takes over (from malloc). 0 or -ENOMEM, and *status is empty. */
int status_read(struct status *status, struct gs_msg *msgs, size_t count);

/* It is empty then. */
void status_free(struct status *status);

/* Ask the daemon that the request is for. An exit code, after a line on stderr unless it is CTL_OK. */
int status_fetch(const struct request *request, struct status *status);

/* ---- GPUs ---- */

/* Of a STATUS_GPU. Returns the text. */
const char *gpu_uuid(const struct gs_msg *gpu, char text[GS_UUID_TEXT_SIZE]);

/* Why all its jobs run though they have more than the capacity (GS_GPU_TOGETHER). Returns the text. */
#define FIGURES_TOGETHER_SIZE 192
const char *figures_together(const struct gpu_figures *gpu, char text[FIGURES_TOGETHER_SIZE]);

/* What it does: "61 C, 250 W, GPU 97 %, memory 40 %; 1 unshared process with 512.0 MiB". Empty: nothing is
 * known. */
#define FIGURES_CARD_SIZE 128
const char *figures_card(const struct gpu_figures *gpu, char buffer[FIGURES_CARD_SIZE]);

/* ---- jobs ---- */

const char *figures_state_name(unsigned state);
const char *figures_reason_name(unsigned reason);

/* Of a STATUS_WAIT: less than the whole GPU is the job's; how much of it. */
const char *figures_limited_name(unsigned limited);
bool figures_has_limit(const struct gs_msg *wait);
double figures_limit_share(const struct gs_msg *wait);

/* It has none yet, and waits until card and host have it left. */
bool figures_waits_for_memory(const struct job_figures *job);

/* It holds the GPU, and waits for others to leave the card. */
bool figures_waits_for_room(const struct job_figures *job);

/* What it has beyond what is on the card. */
uint64_t figures_away_bytes(const struct gs_msg *job);

/* Of a STATUS_ORIGIN. The short form has only the beginning of a pod's uid: "docker:3f2a9c1b4d5e". Empty: no
 * name is known. */
const char *figures_origin_name(unsigned kind);
#define FIGURES_FROM_SIZE 96
const char *figures_from(const struct gs_msg *origin, char buffer[FIGURES_FROM_SIZE]);

/* Of a STATUS_COMMAND: the script, or the program, without its folder, and the arguments: "train.py --lr
 * 0.1". Empty: it is unknown, or not for this user. */
const char *figures_command(const struct gs_msg *command, char buffer[GS_COMMAND_SIZE]);

/* Valid until the next one is asked for. */
const char *user_name(uint32_t uid);

/* Where a rule of the plan puts a job, in the order in which they are shown: those with seats among those
 * that run, those that get one, those that wait, others. */
enum plan_part { PLAN_SEATED, PLAN_STOPS, PLAN_NEXT, PLAN_LATER, PLAN_WAITS, PLAN_RESTS };

/* The rule of a STATUS_WAIT: "has a seat". */
struct plan_rule {
  const char *text, *name; /* for people, for programs */
  enum plan_part part;
};
struct plan_rule figures_rule(const struct gs_msg *wait);

/* ---- as JSON ---- */

/* The whole. */
json_t *status_json(const struct status *status);

/* Of a GPU, index and uuid, and what of the card is in use; of a STATUS_WAIT, what the plan has for a job; of
 * a STATUS_MEMORY, what can't leave the card, and what need not be copied; all that a job does or waits for.
 */
void figures_put_gpu(json_t *object, const char *key, const struct gs_msg *gpu);
void figures_put_occupied(json_t *object, const struct gpu_figures *gpu);
void figures_put_plan(json_t *object, const struct gs_msg *wait);
void figures_put_memory(json_t *object, const struct gs_msg *memory);
void figures_put_wait(json_t *object, const struct gs_msg *wait);

/* What a job on a GPU does or waits for, in a sentence or a few (why.c), from malloc; NULL: no memory. */
char *why_text(const struct status *status, const struct job_figures *job);

/* To the end of a text of this size, as much as fits. */
void append_text(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
