/*
 * cards.h - which cards this host has: what is true whatever programs say. A table; who fills it:
 * card_query.h (NVML) or host_gpus.h (the kernel module's files).
 */
#ifndef GS_CARDS_H
#define GS_CARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpushare/protocol.h"

#define CARDS_MAX 256u
#define CARD_BUS_SIZE 32
#define CARD_MINOR_UNKNOWN UINT32_MAX

struct card {
  uint8_t uuid[GS_UUID_SIZE];
  uint32_t number; /* GS_GPU_NUMBER: nvidia-smi's */
  uint32_t minor;  /* in /dev/nvidia0; of an instance: its card's */
  uint32_t split;  /* not 0: in MIG mode. Programs see its instances, which are entries of their own */
  uint32_t pad;
  uint64_t total_bytes; /* that programs can have; 0: unknown */
  char bus[CARD_BUS_SIZE];
  char name[GS_NAME_SIZE];
};

enum cards_source {
  CARDS_UNKNOWN, /* the host does not tell: programs' words count (claims.h) */
  CARDS_HOST,    /* /proc/driver/nvidia: without sizes */
  CARDS_NVML,
};

struct cards {
  enum cards_source source;
  bool partial; /* there are others, of which the host does not tell: programs' words count for these */
  uint32_t count;
  struct card list[CARDS_MAX]; /* by number */
};

/* Check all that a helper may have got wrong, and bring it in order; texts become printable. NULL, or what is
 * wrong: then nothing of it is of use. */
const char *cards_settle(struct cards *cards);

/* NULL: there is none. */
const struct card *cards_find(const struct cards *cards, const uint8_t uuid[GS_UUID_SIZE]);
const struct card *cards_at(const struct cards *cards, uint32_t number);

/* The host has no other cards than these. */
static inline bool cards_are_all(const struct cards *cards) {
  return cards->source != CARDS_UNKNOWN && !cards->partial;
}

bool cards_are_same(const struct cards *cards, const struct cards *other);

#endif
