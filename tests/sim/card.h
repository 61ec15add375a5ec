/*
 * card.h - the description of the simulated card(s): sizes, speeds, what the driver claims to be.
 *
 * GPUSHARE_SIM_CARD is the name of a preset or the path of a file, optionally followed by overrides:
 * "small,gpus=2,scale=0". A file holds `key = value` lines and # comments. Keys are the fields below; sizes
 * take KiB, MiB, GiB; speeds are in GB/s.
 */
#ifndef SIM_CARD_H
#define SIM_CARD_H

#include <stdint.h>

enum { CARD_NAME_SIZE = 96 };

struct card {
  char name[CARD_NAME_SIZE];
  uint64_t gpus;
  uint64_t capacity_bytes;
  uint64_t driver_version;     /* 1000 * major + 10 * minor */
  uint64_t compute_capability; /* 10 * major + minor */
  uint64_t multiprocessors;
  uint64_t concurrent_managed_access;
  /* The call that ends a context returns the fault, too, and ends it all the same. */
  uint64_t fault_told;
  uint64_t
      fault_ends; /* a kernel's fault is over when a context ends; else it lasts as long as the process */
  /* Stops of channels: all refused with this status, 0: none; accepted, and ignored; of another size of
   * parameters; what each call takes. */
  uint64_t stop_status, stop_ignored, stop_older, stop_ns;
  /* Discards of unified memory answer this CUresult, 0: they are done; what comes back behind one is wrong.
   */
  uint64_t discard_status, discard_loses;
  /* A synchronous copy of unified memory, of one dimension, is made by the calling thread, once that memory
   * has left the card. */
  uint64_t processor_copies;
  uint64_t contexts_most; /* that there is room for, of a process; 0: any number */
  double scale;           /* every cost is multiplied by it; 0: no delays */
  double copy_in_pinned_gbps, copy_out_pinned_gbps;
  double copy_in_pageable_gbps, copy_out_pageable_gbps;
  double prefetch_in_gbps, prefetch_out_gbps;
  double fault_gbps, first_touch_gbps, evict_gbps, remote_gbps;
  double memory_gbps;        /* the card's own memory, as kernels and copies on the card see it */
  uint64_t kernel_launch_ns; /* what an empty kernel takes on the GPU */
  uint64_t slice_ns;         /* how long one stream keeps an engine while others wait */
};

/* Read what `spec` (NULL: the default preset) describes. 0, or -errno after a line on stderr. */
int card_load(struct card *card, const char *spec);

/* What moving `bytes` at `gbps` takes, scaled. */
uint64_t card_cost_ns(const struct card *card, uint64_t bytes, double gbps);
uint64_t card_scaled_ns(const struct card *card, uint64_t ns);

#endif
