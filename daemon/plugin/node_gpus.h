/* node_gpus.h - the GPUs of this host. */
#ifndef GS_NODE_GPUS_H
#define GS_NODE_GPUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/parse.h"

#define GPUS_MAX 64
#define GPUS_NODE_SIZE 108

struct gpu {
  char uuid[GS_UUID_TEXT_SIZE];
  uint64_t memory_bytes;     /* 0: unknown */
  char node[GPUS_NODE_SIZE]; /* its device file; "": not looked at */
  int numa;                  /* the memory that is near to it; -1: unknown */
  void *nvml;                /* its handle; NULL: not known by NVML */
  atomic_bool healthy;       /* written by who watches it (watch.h) */
};

struct gpus {
  struct gpu at[GPUS_MAX];
  size_t count;
};

/* From text: "UUID[:MEMORY[:DEVICE FILE]],...", with each UUID once. 0, -EINVAL or -ENOMEM. */
int gpus_parse(struct gpus *gpus, const char *text);

/* As NVML knows them, which stays loaded. 0 or -errno, after a line in the log: -ENODEV if there are none. */
int gpus_find(struct gpus *gpus);

/* Whether it can be used now. May take long where a driver does not answer. Any thread. */
bool gpus_answers(const struct gpu *gpu);

/* The index of the GPU with this UUID; -1: none. */
int gpus_index(const struct gpus *gpus, const char *uuid, size_t length);

#endif
