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
