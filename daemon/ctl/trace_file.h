/*
 * trace_file.h - a file in the Trace Event Format (JSON), which Perfetto and chrome://tracing show: processes
 * (here: GPUs) with threads, slices, instants and counters in them.
 *
 * Times are on the clock of the daemon's events, and microseconds since the origin in the file. Every slice
 * is whole ("X"): its end is known when it is written.
 */
#ifndef GS_CTL_TRACE_FILE_H
#define GS_CTL_TRACE_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct trace_file {
  FILE *out;
  uint64_t origin_ns; /* nothing is before that; UINT64_MAX: not known yet */
  uint64_t entries;
  bool failed; /* no memory: it is worth nothing */
};

/* A thread's slices: each begins where the one before has ended, or later. */
struct trace_lane {
  uint32_t gpu;
  uint64_t thread, end_ns;
};

void trace_file_begin(struct trace_file *file, FILE *out);

/* begin: the origin, as a date. */
void trace_file_end(struct trace_file *file, const char *begin);

/* what: "process_name". A thread, which stands in the order of the threads' numbers. */
void trace_file_name(struct trace_file *file, uint32_t gpu, uint64_t thread, const char *what,
                     const char *name);
void trace_file_thread(struct trace_file *file, uint32_t gpu, uint64_t thread, const char *name);

/* Takes over args; NULL: there are none. What overlaps with the slice before is cut. */
void trace_file_slice(struct trace_file *file, struct trace_lane *lane, const char *name, uint64_t from_ns,
                      uint64_t to_ns, json_t *args);
void trace_file_instant(struct trace_file *file, uint32_t gpu, uint64_t thread, const char *name,
                        uint64_t at_ns, json_t *args);

void trace_file_counter(struct trace_file *file, uint32_t gpu, const char *name, uint64_t at_ns,
                        const char *key, double value);

#endif
