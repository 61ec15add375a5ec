/* gpu_choice.h - which GPUs a text on the command line names: "0", "0,2", "0:1" (a MIG instance), a UUID, or
 * how one begins ("GPU-5d3a"), as CUDA_VISIBLE_DEVICES takes it. Pure. */
#ifndef GS_CTL_GPU_CHOICE_H
#define GS_CTL_GPU_CHOICE_H

#include "ctl/figures.h"

#define GPU_CHOICE_MAX 256

struct gpu_choice {
  size_t count;
  uint8_t uuids[GPU_CHOICE_MAX][GS_UUID_SIZE]; /* each once */
};

/* Whether a status is needed to tell: not if only whole UUIDs are named. */
bool gpu_choice_needs_status(const char *text);

/* An exit code; the status may be empty if none is needed. */
int gpu_choice_read(struct gpu_choice *choice, const char *text, const struct status *status,
                    struct ask_error *error);

#endif
