/*
 * state.h - what all processes that use the same simulated card share: who they are, what is on the card,
 * counters.
 *
 * One file, mapped by everybody. Counters and in-flight counts are atomics; everything else is protected by
 * `lock`, a robust mutex: whoever gets it after its owner has died rebuilds the derived parts (state_repair).
 * A process owns a slot from cuInit on; slots of dead processes are reaped, their memory on the card with
 * them, whenever somebody needs a slot or room, or looks.
 *
 * Lock order: objects_lock, memory's lock, `lock`. An engine's turn (engine.h) is taken with none of them
 * held.
 */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "card.h"
#include "sim.h"

#define PAGE_BYTES (UINT64_C(2) << 20)

enum {
  STATE_GPUS = 8,
  STATE_SLOTS = 256,
  STATE_SHARED = 512,
  SHARED_NOBODY = -1,
  FRAME_NONE = -1,
};

enum engine_kind { ENGINE_COMPUTE, ENGINE_IN, ENGINE_OUT, ENGINE_COUNT };

/* Two robust mutexes that make a fair turn: one waits for `turn` while holding `next`. */
struct turnstile {
  pthread_mutex_t next, turn;
  _Atomic pid_t owner, waiter; /* who has `turn` and `next`; meaningful while they are taken */
};

/* 2 MiB of the card that hold a managed page. The page is (slot, key); key never repeats within a process. */
struct frame {
  uint64_t key;
  uint64_t stamp; /* order of its last arrival or prefetch; the list below follows from it */
  int32_t slot;   /* FRAME_NONE: free */
  int32_t previous, next;
  uint32_t preferred; /* its preferred location is this card: leaves after the others */
};

struct frame_list {
  int32_t head, tail;
};

struct slot {
  _Atomic pid_t pid; /* 0: never used */
  _Atomic uint32_t alive;
  uint64_t start_time;  /* tells apart processes that had the same pid */
  uint64_t born;        /* order of their start */
  _Atomic uint32_t mps; /* its work goes through MPS: as in sim.h */
  _Atomic uint32_t mps_priority, mps_percent;
  _Atomic uint64_t in_flight[STATE_GPUS];
  _Atomic uint32_t
      standing[STATE_GPUS]; /* channels that are stopped: what is in flight there holds nobody up */
  _Atomic uint64_t pinned_bytes[STATE_GPUS];
  _Atomic uint64_t frames[STATE_GPUS];
  _Atomic uint64_t counters[STATE_GPUS][GS_SIM_COUNTER_COUNT];
};

struct gpu_state {
  struct turnstile engines[ENGINE_COUNT];
  uint64_t capacity_bytes;
  _Atomic uint64_t pinned_bytes, used_frames;
  uint64_t frame_count, first_frame; /* its part of state->frames */
  struct frame_list free, lru[2];    /* lru[1]: those that prefer to be here */
  uint64_t stamp;
  _Atomic uint64_t counters[GS_SIM_COUNTER_COUNT];
  _Atomic pid_t overlap_pid, overlap_other_pid;
};

/* See shared.h. */
struct shared_memory {
  uint64_t id; /* 0: none */
  uint64_t bytes;
  uint64_t holders[STATE_SLOTS / 64]; /* a bit for each slot whose process has it */
  unsigned gpu;
  int32_t payer; /* the slot of the one whose it counts as */
};

struct state {
  uint64_t magic, layout, bytes;
  pthread_mutex_t lock;
  uint64_t gpus, born;
  struct slot slots[STATE_SLOTS];
  struct gpu_state gpu[STATE_GPUS];
  struct shared_memory shared[STATE_SHARED];
  struct frame frames[];
};

/* Map the state at `path`, creating it for `card` where it is missing; card NULL: it must exist. 0 or -errno.
 */
int state_open(struct state **state, const char *path, const struct card *card);
void state_close(struct state *state);
/* The path in GPUSHARE_SIM_STATE, or one derived from the user and the card. */
void state_default_path(char *path, size_t size, const char *card_name);

/* A slot for this process: its index, or -errno. */
int state_claim(struct state *state);
void state_lock(struct state *state);
void state_unlock(struct state *state);
/* Free what dead processes left. Call with the lock held. */
void state_reap(struct state *state);
bool slot_alive(struct slot *slot);
/* Stopped by a signal or a debugger. */
bool process_stopped(pid_t pid);

/* 0, or EOWNERDEAD when the former owner died (the mutex is usable again either way). */
int robust_lock(pthread_mutex_t *mutex);

static inline void count(_Atomic uint64_t *counter, uint64_t by) {
  atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* Frame lists; the lock is held. */
void frame_unlink(struct state *state, struct gpu_state *gpu, int32_t index);
void frame_append(struct state *state, struct frame_list *list, int32_t index);
void frame_free(struct state *state, struct gpu_state *gpu, int32_t index);

#endif
