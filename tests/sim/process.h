/*
 * process.h - this process as a user of the simulated card: its card, the shared state, its slot, and the
 * state of being initialised.
 */
#ifndef SIM_PROCESS_H
#define SIM_PROCESS_H

#include "cuda_all.h"
#include "state.h"

struct sim {
  struct card card;
  struct state *state;
  struct slot *slot;
  int32_t slot_index;
  _Atomic int ready; /* cuInit succeeded */
  _Atomic int *here; /* 0 in a child of an initialised process: nothing works there any more */
  _Atomic int had_fault;
  _Atomic int fault; /* CUresult of a kernel that has faulted */
  int device_count;
  unsigned gpu_of[STATE_GPUS]; /* device ordinal -> card, by CUDA_VISIBLE_DEVICES */
};

extern struct sim sim;

CUresult process_init(void);
/* CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED or what else every call must return first. */
CUresult process_check(void);

/* Add to the counters of this process and of the card. */
void process_count(unsigned gpu, enum gs_sim_counter counter, uint64_t by);

/* Work of this process on a GPU: from its submission to its end. */
void process_submit(unsigned gpu);
void process_finish(unsigned gpu);
/* Call when a piece of work starts: is another living process's work in flight on the same GPU? */
void process_note_start(unsigned gpu);
/* For the calling thread: what it starts may overlap. */
void process_ignore_overlaps(bool ignore);

/* A kernel has faulted: say so. From now on every call returns the error (doors.c). */
void process_set_fault(CUresult result, uint64_t address, const char *who);
/* CUDA_SUCCESS: none has. */
CUresult process_fault(void);
void process_end_fault(void);
/* Whether any has, ever. */
bool process_had_fault(void);

/* A wild access by a copy: say so and crash. A real driver has a sticky error then. */
_Noreturn void process_illegal_address(uint64_t address, const char *who);

#endif
