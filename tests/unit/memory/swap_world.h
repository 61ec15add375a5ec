/*
 * swap_world.h - swap memory on the simulated driver, whose memory is at the addresses that it says: touching
 * what is not mapped crashes the test. The rest of the library is a few variables here.
 */
#ifndef SWAP_WORLD_H
#define SWAP_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/cuda_abi.h"
#include "memory/account.h"
#include "memory/memory.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define CONTEXTS 2

struct world {
  CUcontext context[CONTEXTS]; /* of device 0; the first is current, and the primary one */
  _Atomic uint64_t room_bytes; /* what client_room_bytes says */
  bool (*room_wait)(uint64_t bytes);
  _Atomic unsigned room_waits;
  _Atomic uint64_t short_bytes; /* what the daemon has been told that the card lacks */
  void (*on_short)(void);
  bool capturing;
  _Atomic unsigned captures_forbidden;
  uint64_t host_bytes; /* what host_available_bytes says */
  bool plentiful;      /* what host_is_plentiful says */
  bool stopped;        /* the program's work stands still */
  bool gate_open;
  bool in_flight; /* a call that came in before the gate was shut */
  bool leaving;   /* every context is being destroyed */
  int held;       /* contexts that nobody may destroy now */
  unsigned timer_wakes;
};

extern struct world world;

/* A card of its own for this test, `card` in the words of GPUSHARE_SIM_CARD. */
void world_start(const char *card);

/* Whose card world_start uses; 0: its own. */
extern pid_t world_owner;

void world_end(void);

/* New memory, as cuMemAlloc would be answered; NULL where it fails. */
void *world_get(size_t bytes);
CUresult world_try(CUcontext context, size_t bytes, void **memory);
void world_free(void *memory);

/* As the GPU's worker does: step until nothing more is to be done. */
enum memory_progress world_settle(uint64_t room_bytes, struct memory_moved *moved);
void world_open(void);

/* What the simulated card says that this process has on it. */
uint64_t world_card_bytes(CUdevice device);

/* Books and card agree. */
void world_check_books(void);

void world_fill(void *memory, size_t bytes, uint64_t seed);
bool world_intact(const void *memory, size_t bytes, uint64_t seed);

#endif
