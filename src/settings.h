/*
 * settings.h - what the environment says (GPUSHARE_*). Read once, before the first use; a wrong value is one
 * log line and the default. Constant afterwards, so any thread may read it.
 */
#ifndef GS_SETTINGS_H
#define GS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpushare/protocol.h"

#define MEMORY_UNSET (-1) /* the daemon says it for the GPU */

struct settings {
  const char *socket;        /* GPUSHARE_SOCKET: the daemon's socket */
  int memory;                /* GPUSHARE_MEMORY: enum gs_memory, or MEMORY_UNSET */
  bool required;             /* GPUSHARE_REQUIRED: wait for a daemon instead of running without one */
  uint32_t weight;           /* GPUSHARE_WEIGHT: share of GPU time; 0: not given */
  int32_t priority;          /* GPUSHARE_PRIORITY */
  uint64_t expected_ns;      /* GPUSHARE_EXPECTED_RUNTIME: GPU time, all in all; 0: not given */
  uint64_t limit_bytes;      /* GPUSHARE_MEMORY_LIMIT: of each GPU; 0: none */
  uint64_t soft_limit_bytes; /* GPUSHARE_MEMORY_SOFT_LIMIT: likewise, but it may be exceeded */
  uint64_t expected_bytes;   /* GPUSHARE_EXPECTED_MEMORY: at once, at most; 0: not given */
  enum gs_class class;       /* GPUSHARE_CLASS: standard, production or opportunistic */
  char name[GS_NAME_SIZE];   /* GPUSHARE_NAME: what people call the job; empty: as its program is called */
  char gang[GS_GANG_SIZE];   /* GPUSHARE_GANG, or what has started the process: gang_name.h; empty: none */
  bool preempt;              /* GPUSHARE_PREEMPT: auto or off: never stop work in the middle */
  bool carry;                /* GPUSHARE_CARRY: unified memory is moved by copies, not by prefetches only */
  bool empty_cache;          /* GPUSHARE_EMPTY_CACHE: of PyTorch's allocator, where a turn ends */
  bool single_oversubscribe; /* GPUSHARE_SINGLE_OVERSUBSCRIBE: one program may exceed the card */
};

const struct settings *settings(void);

/* Log the wrong values that were found, once. For the first use of the GPU. */
void settings_complain(void);

#endif
