/*
 * spatial.h - who shares GPUs by MPS (setting spatial = mps): which GPUs, and which programs. Rules only;
 * mps.h has the process, ask_spatial.c the messages.
 *
 * A program that uses MPS sees the GPUs of MPS and no others. So a program that sees a GPU without the
 * setting does not use it.
 */
#ifndef GS_SPATIAL_H
#define GS_SPATIAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/parse.h"
#include "server/overrides.h"

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

#endif
