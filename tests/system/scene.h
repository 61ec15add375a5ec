/*
 * scene.h - what a system test plays in: a fresh folder with a simulated card, a daemon of its own, and
 * programs with libunified preloaded. Everything is found by the environment that the scene gives its
 * processes.
 */
#ifndef TEST_SCENE_H
#define TEST_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpushare/protocol.h"
#include "process.h"
#include "sim/sim.h"

struct scene {
  char folder[64];
  char socket[96];
  const char *card; /* description of the simulated card */
  char state[96];   /* of the simulated card, shared by all processes */
  const char *nvml; /* a library that the daemon asks for the host's cards; NULL: none */
  struct process *daemon;
  int started; /* programs so far, for their logs' names */
};

/* A fresh folder, with a simulated card (GPUSHARE_SIM_CARD, see tests/sim/card.h). No daemon yet. */
void scene_begin(struct scene *scene, const char *card);

/* Ask the daemon to end, check that it does so with 0, and remove the folder. */
void scene_end(struct scene *scene);

/* Start the daemon (again) with more arguments, NULL at the end; returns when it accepts connections. */
void scene_start_daemon(struct scene *scene, ...) __attribute__((sentinel));
void scene_stop_daemon(struct scene *scene);
void scene_kill_daemon(struct scene *scene);

/* "NAME=value" lists, NULL at the end. LD_PRELOAD here replaces the scene's. */
typedef const char *const *environment_list;

/* Start a test program (a file beside this one, or an absolute path) with libunified preloaded. */
struct process *scene_start(struct scene *scene, environment_list environment, const char *program, ...)
    __attribute__((sentinel));
struct process *scene_start_argv(struct scene *scene, environment_list environment, char *const argv[]);

/* Run gpusharectl to its end: its exit code; its stdout in `output`. */
int scene_ctl(struct scene *scene, char *output, size_t size, ...) __attribute__((sentinel));

/* What LD_PRELOAD is for libunified in this build, with the sanitizer's runtime first where there is one. */
const char *scene_preload(void);

/* Whether this run is one with GS_TEST_MEMORY=swap: GPUSHARE_MEMORY of all programs that don't say otherwise.
 */
bool scene_uses_swap(void);

/* Counters of the simulated driver: of a GPU, of a process on it. */
struct gs_sim_card scene_card(const struct scene *scene, unsigned gpu);
struct gs_sim_process scene_process(const struct scene *scene, const struct process *process, unsigned gpu);

/* No two processes had work on the GPU at the same time. */
void scene_check_no_overlaps(const struct scene *scene, unsigned gpu);

/* A connection to the daemon, and the next message on it: 0 or -errno. The test fails without either. */
int scene_connect(const struct scene *scene);
int scene_receive(int fd, struct gs_msg *msg);

/* What gpusharectl would send: GS_SET_TQ, GS_SET_MODE or GS_SET_CAPACITY, for all GPUs. 0 or -errno. */
int scene_order(const struct scene *scene, enum gs_msg_type type, uint64_t value);

/* The daemon's answer to GET_STATUS. */
#define SCENE_STATUS_MAX 160
struct scene_status {
  struct gs_msg daemon;
  struct gs_msg gpus[8];
  struct gs_msg handovers[8]; /* of the GPUs */
  struct gs_msg jobs[SCENE_STATUS_MAX];
  struct gs_msg terms[SCENE_STATUS_MAX]; /* of the jobs */
  struct gs_msg waits[SCENE_STATUS_MAX]; /* likewise */
  int gpu_count, job_count;
};
/* 0 or -errno when the daemon can't be asked. */
int scene_ask_status(const struct scene *scene, struct scene_status *status);

/* Ask until the condition holds; fails the test when it doesn't within the limit. */
void scene_await(const struct scene *scene, bool (*holds)(const struct scene_status *, const void *),
                 const void *what, const char *description);

/* The entry of this process, NULL if the daemon doesn't know it. */
const struct gs_msg *scene_job_of(const struct scene_status *status, pid_t pid);

/* What it is given; likewise. */
const struct gs_msg *scene_terms_of(const struct scene_status *status, pid_t pid);

/* What it waits for, and what limits it; likewise. */
const struct gs_msg *scene_wait_of(const struct scene_status *status, pid_t pid);

/* Common conditions for scene_await. */
bool scene_job_known(const struct scene_status *status, const void *process);
bool scene_job_gone(const struct scene_status *status, const void *process);
bool scene_job_holds(const struct scene_status *status, const void *process);
bool scene_job_waits(const struct scene_status *status, const void *process);
bool scene_job_drops(const struct scene_status *status, const void *process);

#endif
