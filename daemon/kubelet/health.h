/* health.h - the GPUs of this host; and what the devices' health follows: whether the daemon answers, and
 * whether the GPUs do. GPUs are looked at in a thread of its own, as a driver may take long to answer. */
#ifndef GS_KUBELET_HEALTH_H
#define GS_KUBELET_HEALTH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "common/parse.h"
#include "kubelet/loop.h"

/* ---- GPUs ---- */

#define GPUS_MAX 64
#define GPUS_NODE_SIZE 108
#define GPUS_TEXT_SIZE 65

struct gpu {
  char uuid[GS_UUID_TEXT_SIZE];
  unsigned index;                                             /* NVML's; else its place in the list */
  uint64_t memory_bytes;                                      /* 0: unknown */
  char product[GPUS_TEXT_SIZE], architecture[GPUS_TEXT_SIZE]; /* "": unknown */
  char node[GPUS_NODE_SIZE];                                  /* its device file; "": not looked at */
  int numa;                                                   /* the memory that is near to it; -1: unknown */
  void *nvml;                                                 /* its handle; NULL: not known by NVML */
  atomic_bool healthy;                                        /* written by the thread that looks */
};

struct gpus {
  struct gpu at[GPUS_MAX];
  size_t count;
  char driver_version[GPUS_TEXT_SIZE]; /* "": unknown */
};

/* From text: "UUID[:MEMORY[:DEVICE FILE]],...", with each UUID once. 0, -EINVAL or -ENOMEM. */
int gpus_parse(struct gpus *gpus, const char *text);

/* As NVML knows them, which stays loaded. 0 or -errno, after a line in the log: -ENODEV if there are none. */
int gpus_find(struct gpus *gpus);

/* The index of the GPU with this UUID; -1: none. */
int gpus_index(const struct gpus *gpus, const char *uuid, size_t length);

/* ---- their health ---- */

struct health {
  struct loop *loop;
  struct gpus *gpus;
  const char *socket;                       /* the daemon's */
  uint64_t interval_ns;                     /* between looks, and between questions */
  void (*on_change)(struct health *health); /* of a GPU's `healthy`, or daemon_answers; in the loop */
  bool daemon_answers;
  struct source daemon;   /* a connection, as gpusharectl's; fd -1: none */
  struct timer timer;     /* of the next question, or of giving up the answer to the last one */
  bool asked;             /* and not answered */
  bool refused;           /* by a daemon of another version, which has been said */
  uint64_t full_since_ns; /* wire_connect_again_ns */
  struct source changed;  /* by which the thread tells the loop of changes */
  pthread_t thread;
  int stop_fd; /* readable once the thread is to end */
};

/* All down to on_change is set. Looks at the GPUs once before it returns; a daemon that is not there comes
 * later. 0 or -errno. */
int health_open(struct health *health);

/* Waits for the thread. */
void health_close(struct health *health);

#endif
