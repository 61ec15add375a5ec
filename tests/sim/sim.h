/*
 * sim.h - what tests may ask the simulated driver beyond the CUDA API: its counters.
 *
 * Every counter exists per process and GPU and per GPU; those of a process stay readable after it has died,
 * until its slot in the state is taken by a later process (there are 256). All functions may be called from
 * any thread.
 *
 * `state` is the path of the state file, or NULL for the one that this process has opened by cuInit (or
 * would). Exported from the simulated libcuda.so.1, and in the static library gpushare_sim_reader for
 * programs that are not to load a driver.
 */
#ifndef GS_SIM_H
#define GS_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* name: what it counts */
#define GS_SIM_COUNTERS(X)                                                                                   \
  X(faults)              /* 2 MiB pages brought to the card because the GPU touched them */                  \
  X(fault_bytes)         /* the same in bytes, only those that had contents to bring */                      \
  X(first_touch_bytes)   /* populated on the card by the GPU's first touch */                                \
  X(evicted_bytes)       /* pages of this process (or on this card) that had to leave for others */          \
  X(remote_bytes)        /* accessed by the GPU where they were, in host memory */                           \
  X(prefetched_in_bytes) /* moved to the card by prefetches */                                               \
  X(prefetched_out_bytes)                                                                                    \
  X(discarded_bytes)                                                                                         \
  X(copied_in_bytes) /* host to card, by copies */                                                           \
  X(copied_out_bytes)                                                                                        \
  X(copied_within_bytes)                                                                                     \
  X(copied_pageable_bytes) /* of those in and out: host memory that was not registered */                    \
  X(kernels)               /* kernels run to their end, but for gpushare's */                                \
  X(copies)                /* copies and memory sets run to their end */                                     \
  X(processor_copies)      /* of these by the processor (card processor_copies) */                           \
  X(prefetches)                                                                                              \
  X(events)          /* recorded */                                                                          \
  X(event_queries)   /* cuEventQuery, whatever it said */                                                    \
  X(submitted)       /* pieces of work handed to streams */                                                  \
  X(context_queries) /* cuCtxGetCurrent with one current: what a gate that is not open has to ask */         \
  X(graph_queries)   /* what a graph consists of, asked by whomever; on the first card */                    \
  X(overlaps) /* kernels, copies, sets, prefetches of this process that started while another one had work   \
                 in flight; not those with which gpushare moves memory */                                    \
  X(created)  /* physical memory that was made, by cuMemCreate, and that */                                  \
  X(imported) /* came from another process */                                                                \
  X(gpu_busy_ns)

enum gs_sim_counter {
#define X(name) GS_SIM_##name,
  GS_SIM_COUNTERS(X)
#undef X
      GS_SIM_COUNTER_COUNT
};

struct gs_sim_process {
  pid_t pid;
  bool alive;
  bool mps; /* a client of MPS since its cuInit, with the values of CUDA_MPS_CLIENT_PRIORITY and
               CUDA_MPS_ACTIVE_THREAD_PERCENTAGE then; 0: not set */
  unsigned mps_priority, mps_percent;
  uint64_t pinned_bytes;   /* plain allocations on this card */
  uint64_t resident_bytes; /* managed pages on this card */
  uint64_t in_flight;      /* submitted and not finished */
  uint64_t counters[GS_SIM_COUNTER_COUNT];
};

struct gs_sim_card {
  uint64_t capacity_bytes, pinned_bytes, resident_bytes;
  uint64_t processes_in_flight; /* living processes with work submitted and not finished */
  uint64_t counters[GS_SIM_COUNTER_COUNT];
  pid_t overlap_pid, overlap_other_pid; /* of the last overlap: who started, and who was in flight */
};

#define GS_SIM_API __attribute__((visibility("default")))

/* 0, or -errno: -ENOENT for an unknown process or GPU or when there is no such state. */
GS_SIM_API int gs_sim_card_read(const char *state, unsigned gpu, struct gs_sim_card *card);
GS_SIM_API int gs_sim_process_read(const char *state, pid_t pid, unsigned gpu,
                                   struct gs_sim_process *process);

/* Fills at most `max` pids, in order of their start, dead ones included. Returns how many there are, or
 * -errno. */
GS_SIM_API int gs_sim_processes(const char *state, pid_t *pids, int max);

/* All counters (not residency) back to zero. */
GS_SIM_API int gs_sim_reset(const char *state);

GS_SIM_API const char *gs_sim_counter_name(enum gs_sim_counter counter);

/* As a profiler's: called in the thread that launches a kernel, within the driver's function, before the
 * kernel is submitted, also for launches that it makes itself. NULL: none. In the driver itself only. */
GS_SIM_API void gs_sim_set_callback(void (*callback)(void));

/* Bytes of the managed range that are on the card; of this process, so only in the driver itself. */
GS_SIM_API uint64_t gs_sim_resident_bytes(uint64_t device_pointer, uint64_t bytes);

/* Before a test writes all of a range by the processor: it takes fewer page faults then. In the driver itself
 * only. */
GS_SIM_API void gs_sim_touch(uint64_t device_pointer, uint64_t bytes);

#endif
