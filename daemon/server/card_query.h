/*
 * card_query.h - asks NVML which cards the host has, in a process of its own: NVIDIA's library may hang or
 * crash there, and keeps nothing open in the daemon.
 *
 * The helper is a fork of the daemon. It closes all that the daemon has open, writes its answer into memory
 * that both share, and ends. The daemon looks at the answer when the helper is no more (SIGCHLD), and never
 * waits for it; a helper that takes too long is killed. There is at most one, also while a killed one does
 * not end.
 */
#ifndef GS_CARD_QUERY_H
#define GS_CARD_QUERY_H

#include <sys/types.h>

#include "server/cards.h"
#include "shared/nvml.h"

#define CARD_QUERY_NS (UINT64_C(60) * 1000000000)      /* cards without persistence mode take seconds each */
#define CARD_QUERY_PAUSE_NS (UINT64_C(5) * 1000000000) /* between two for UUIDs that are unknown */

struct card_answer {
  struct cards cards;
  char why[NVML_WHY_SIZE]; /* there is none */
};

struct card_query {
  const char *library; /* to be loaded; NULL: nothing is ever asked */
  uint64_t patience_ns;
  struct card_answer *answer; /* shared with the helper; NULL: none yet */
  pid_t pid;                  /* 0: no helper */
  bool killed;
  bool again;        /* ask once more when it has ended: what it says may be from before */
  bool asked;        /* at all */
  uint64_t asked_ns; /* the last time */
};

/* Start a helper; if there is one, another comes after it (again). 0, or -errno: there will be no answer. */
int card_query_begin(struct card_query *query, uint64_t now_ns);

/* A child has ended. 0: not the helper; 1: *cards are what it has told, checked; -errno: it has told nothing,
 * and why. */
int card_query_on_child(struct card_query *query, struct cards *cards, char why[NVML_WHY_SIZE]);

uint64_t card_query_deadline_ns(const struct card_query *query);

/* Kill a helper that takes too long. */
void card_query_on_time(struct card_query *query, uint64_t now_ns);

/* There shall be no helper any more. Does not wait. */
void card_query_end(struct card_query *query);

#endif
