/*
 * cards.h - which cards this host has: what is true whatever programs say. A table; who fills it:
 * NVML (card_query), or the kernel module's files (host_gpus).
 */
#ifndef GS_CARDS_H
#define GS_CARDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpushare/protocol.h"
#include "shared/nvml.h"

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
  CARDS_UNKNOWN, /* the host does not tell: programs' words count (claims) */
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

/*
 * ---- claims ----
 *
 * What programs say of a GPU that the host tells nothing of: its size and its name. What most users say
 * counts. A user has one vote however many programs he runs: what the first of them has said, as long as any
 * is there: who says something else each time changes nothing. Between equals, what counts already goes on
 * to count.
 */

/* Users with a vote at a time: those who came first. It bounds what counting costs. */
#define CLAIMS_MAX 64

struct claim {
  uid_t uid;
  uint32_t jobs;
  uint64_t total_bytes;
  char name[GS_NAME_SIZE];
};

struct claims {
  uint32_t jobs; /* also of users without a vote */
  uint32_t count;
  struct claim list[CLAIMS_MAX];
  uint64_t total_bytes; /* what counts; 0 and "" once the last job has gone */
  char name[GS_NAME_SIZE];
};

/* A program of the user has come, and says this; one that has come has gone. */
void claims_enter(struct claims *claims, uid_t uid, uint64_t total_bytes, const char *name);
void claims_leave(struct claims *claims, uid_t uid);

/*
 * ---- asking NVML ----
 *
 * Asks NVML which cards the host has, in a process of its own: NVIDIA's library may hang or crash there, and
 * keeps nothing open in the daemon. The helper is a fork of the daemon. It closes all that the daemon has
 * open, writes its answer into memory that both share, and ends. The daemon looks at the answer when the
 * helper is no more (SIGCHLD), and never waits for it; a helper that takes too long is killed. There is at
 * most one, also while a killed one does not end.
 */

#define CARD_QUERY_NS (UINT64_C(60) * 1000000000)      /* cards without persistence mode take seconds each */
#define CARD_QUERY_PAUSE_NS (UINT64_C(5) * 1000000000) /* between two for UUIDs that are unknown */

/* While somebody wants readings, the cards are read so often, or more rarely: a helper's time is at most one
 * part in so many of all. */
#define CARD_READ_PAUSE_NS (UINT64_C(5) * 1000000000)
#define CARD_READ_PAUSE_MAX_NS (UINT64_C(300) * 1000000000)
#define CARD_READ_PARTS 50
#define CARD_READ_WANTED_NS (UINT64_C(150) * 1000000000) /* after somebody has asked */
#define CARD_READ_OLD_NS (UINT64_C(90) * 1000000000)     /* with a longer pause: three of these */

/* What a card does, as NVML has told. */
struct card_reading {
  uint8_t uuid[GS_UUID_SIZE];
  struct nvml_reading does;
  uint32_t processes_known; /* not 0: these count */
  uint32_t unshared;        /* processes with a compute context that are no jobs */
  uint64_t unshared_bytes;  /* of the card's memory, that they have */
};

/* Of the cards that answer. */
struct card_readings {
  uint64_t at_ns, until_ns; /* they are from then, and too old after that; 0: there are none */
  uint32_t count;
  struct card_reading list[CARDS_MAX];
};

struct card_answer {
  struct cards cards;
  struct card_readings readings;
  char why[NVML_WHY_SIZE]; /* there is none */
};

struct card_query {
  const char *library; /* to be loaded; NULL: nothing is ever asked */
  uint64_t patience_ns;
  struct card_answer *answer; /* shared with the helper; NULL: none yet */
  pid_t pid;                  /* 0: no helper */
  uint64_t begun_ns;          /* the last one */
  bool killed;
  bool only_reads;   /* it was started for readings: what cards it knows does not count */
  bool again;        /* ask once more when it has ended: what it says may be from before */
  bool asked;        /* which cards there are, at all */
  uint64_t asked_ns; /* the last time */
  /* Whether a process is a job's; of number 0: whether there is a job whose process can't be seen. Called in
   * the helper, with what the daemon knew when that began. NULL: it can't be told. */
  bool (*is_job)(void *of, pid_t pid);
  void *of;
  struct card_readings readings;
  uint64_t wanted_ns; /* they are, until then; */
  uint64_t rest_ns;   /* none are made before then; */
  uint64_t read_ns;   /* the next ones are made then; 0: nobody wants any */
};

/* Start a helper; if there is one, another comes after it (again). 0, or -errno: there will be no answer. */
int card_query_begin(struct card_query *query, uint64_t now_ns);

/* A child has ended. 0: not the helper, or it was for readings; 1: *cards are what it has told, checked;
 * -errno: it has told nothing, and why. */
int card_query_on_child(struct card_query *query, struct cards *cards, char why[NVML_WHY_SIZE]);

/* Somebody wants to know what the cards do: they are read once, and again and again for so long. */
void card_query_want_readings(struct card_query *query, uint64_t now_ns, uint64_t for_ns);

/* There are readings that are not too old. */
static inline bool card_query_has_readings(const struct card_query *query, uint64_t now_ns) {
  return query->readings.until_ns > now_ns;
}

/* NULL: there is none, or the card does not answer. */
const struct card_reading *card_query_find_reading(const struct card_query *query,
                                                   const uint8_t uuid[GS_UUID_SIZE], uint64_t now_ns);

uint64_t card_query_deadline_ns(const struct card_query *query);

/* Kill a helper that takes too long; start one for readings. */
void card_query_on_time(struct card_query *query, uint64_t now_ns);

/* There shall be no helper any more. Does not wait. */
void card_query_end(struct card_query *query);

/*
 * ---- watching what is in use ----
 *
 * A helper that stays: it looks how much of each card is in use, at each full SCHED_LOOK_NS of the clock. It
 * writes that into memory that the daemon reads half a look later, so the daemon never waits. A figure gets
 * old if no other one follows, and then counts no more (scheduler.h).
 *
 * Why: readings (above) come every 5 s at best, since each loads NVML anew. A card fills in less.
 */

#define CARD_WATCH_IDLE_NS (UINT64_C(10) * 1000000000) /* it stays for so long without being needed */

struct card_figure {
  _Atomic uint64_t used_bytes, at_ns; /* 0: there was none */
};

struct card_watch {
  const char *library;         /* as of card_query */
  struct card_figure *figures; /* of each card, in the order of `cards`; shared; NULL: none yet */
  pid_t pid;                   /* 0: there is no such process */
  uint64_t next_ns;            /* when the daemon reads them the next time */
  uint64_t begun_ns;           /* when the process was started last; 0: never */
  uint64_t needed_ns;          /* when it was needed last */
};

/* Start the process if it is needed and there is none; end one that is not needed, or hangs. Sets next_ns. */
void card_watch_go_on(struct card_watch *watch, const struct cards *cards, bool needed, uint64_t now_ns);

/* What is in use of the card with this place in `cards`, as of when. False: it is not known. */
bool card_watch_read(const struct card_watch *watch, uint32_t card, uint64_t *bytes, uint64_t *at_ns);

/* A child has ended: it may be this one. */
void card_watch_on_child(struct card_watch *watch);

/* The process shall end, and its figures count no more. Does not wait; the next one begins as if there had
 * been none. */
void card_watch_stop(struct card_watch *watch);
void card_watch_end(struct card_watch *watch);

/*
 * ---- the kernel module's word ----
 *
 * Which GPUs the host has, as the NVIDIA kernel module tells.
 */

#define HOST_GPUS_FOLDER "/proc/driver/nvidia/gpus"

/* The cards, in the order of their places on the bus, which is nvidia-smi's. 0, or -errno: of none it can be
 * told. They are partial if the kernel module does not tell the UUID of one, as before its first use, or of
 * MIG instances, which it never tells: the card is left out, or stands there as one that is split. */
int host_gpus_cards(const char *folder, struct cards *cards);

/* Their UUIDs, in no order. How many there are, or -errno: they can't be told, all of them. */
int host_gpus_read(const char *folder, uint8_t (*uuids)[GS_UUID_SIZE], int most);

#endif
