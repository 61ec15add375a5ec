/*
 * mps.h - NVIDIA's MPS as a process of the daemon's: nvidia-cuda-mps-control in the foreground, on folders of
 * its own beside the socket, fresh for each daemon, which nobody else can make or write to. Started, watched,
 * started again when it ends, stopped with the daemon. Changes nothing of the GPUs, so neither their compute
 * mode.
 *
 * The kernel kills it when the daemon dies, and then its servers, one per user, end as well, and what their
 * programs submit fails (driver 580). So a package's upgrade does not restart a daemon whose MPS is in use.
 *
 * Not thread-safe. SIGCHLD is blocked, and its coming told by mps_on_child().
 */
#ifndef GS_MPS_H
#define GS_MPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/parse.h"
#include "server/overrides.h"

/*
 * ---- which GPUs, and which programs ----
 *
 * Who shares GPUs by MPS (setting spatial = mps): which GPUs, and which programs. Rules only. A program that
 * uses MPS sees the GPUs of MPS and no others. So a program that sees a GPU without the setting does not use
 * it.
 */

/* MPS serves 48 to 60 programs, by the GPU. */
#define SPATIAL_PROGRAMS_MOST 48

/* Fewer multiprocessors make an opportunistic program's kernels longer, and hold up its own work. */
#define SPATIAL_PERCENT_LEAST 10

struct spatial {
  bool all; /* GPUs have it: whatever a program sees */
  int count;
  uint8_t gpus[OVERRIDES_MAX][GS_UUID_SIZE]; /* otherwise, those that have */
  unsigned programs;                         /* that use it now */
  uid_t uid;                                 /* theirs: MPS serves one user at a time */
};

/* By the settings; host: the GPUs that there are, host_count < 1 if that can't be told. No programs yet. */
void spatial_choose(struct spatial *spatial, const struct sched_settings *general,
                    const struct overrides *overrides, const uint8_t (*host)[GS_UUID_SIZE], int host_count);

bool spatial_is_on(const struct spatial *spatial);
bool spatial_has(const struct spatial *spatial, const uint8_t uuid[GS_UUID_SIZE]);
bool spatial_is_same(const struct spatial *spatial, const struct spatial *other);

/* For CUDA_VISIBLE_DEVICES; empty: all. */
#define SPATIAL_VISIBLE_SIZE (OVERRIDES_MAX * GS_UUID_TEXT_SIZE)
void spatial_visible(const struct spatial *spatial, char text[SPATIAL_VISIBLE_SIZE]);

/* What becomes of a program that asks, as far as users and GPUs are concerned: GS_SPATIAL_ON, or what is in
 * the way. own: the daemon's user, who starts MPS, and can do so for others only if it is root. */
enum gs_spatial_verdict spatial_judge(const struct spatial *spatial, const struct gs_msg *ask, uid_t uid,
                                      uid_t own);

void spatial_enter(struct spatial *spatial, uid_t uid);
void spatial_leave(struct spatial *spatial);

/* ---- mps ---- */

/* All zero: none. */
struct mps {
  char folder[128];    /* the socket's path and GS_MPS_FOLDER; empty: none */
  int folder_fd;       /* of the one that is made; 0: none */
  int output_fd;       /* what the control says; 0: nothing */
  const char *visible; /* CUDA_VISIBLE_DEVICES; empty: all */
  pid_t pid;           /* of nvidia-cuda-mps-control; 0: it does not run */
  uint64_t started_ns;
  uint64_t again_ns; /* when to start it again; 0: never */
  uint64_t delay_ns;
  bool told; /* that it does not run, in the log */
};

/* Start it; `visible` stays the caller's. What goes wrong is one line in the log, and tried again. */
void mps_start(struct mps *mps, const char *socket, const char *visible, uint64_t now_ns);

/* It takes programs. */
bool mps_is_ready(const struct mps *mps);

/* A child of the daemon has ended. */
void mps_on_child(struct mps *mps, uint64_t now_ns);

uint64_t mps_deadline_ns(const struct mps *mps);
void mps_on_time(struct mps *mps, uint64_t now_ns);

/* Stop it: politely, then not. Waits for that, some seconds at most. */
void mps_end(struct mps *mps);

#endif
