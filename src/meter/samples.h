/*
 * samples.h - what submissions take on the GPU, measured for some of them: by an event before and one after
 * it in its stream. At most one per stream at a time, none while anything captures.
 *
 * Threading: any thread; sample_begin and sample_end in pairs by the thread that submits, between gate_enter
 * and gate_leave.
 */
#ifndef GS_SAMPLES_H
#define GS_SAMPLES_H

#include "meter/meter.h"

/* Sums over what has been measured of kernels and graphs of which it is known what they take undisturbed. */
struct samples_sums {
  uint64_t count, sampled_ns, expected_ns;
};

/* Whether little is known of this kind of work. */
bool samples_lack(CUdevice device, const struct meter_work *work);

/* The submission that follows is measured. NULL: it can't be. Where what is submitted is limited, what it
 * took more than was believed is charged once that is known. */
struct sample *sample_begin(CUdevice device, CUstream stream, const struct meter_work *work);
void sample_end(struct sample *sample, bool submitted);

/* What this one is believed to cost, and the next one of this thread, by what came after such before. */
struct samples_charge {
  uint64_t ns, next_ns; /* 0: not known */
};
struct samples_charge samples_charge(CUdevice device, const struct meter_work *work);

/* What such a submission is believed to cost; and what all that were measured have taken on average. */
uint64_t samples_cost_ns(CUdevice device, const struct meter_work *work);
uint64_t samples_mean_ns(void);

/* Learn from those that have finished; returns how long ago the oldest one was submitted that has not, 0 if
 * all have. Call it while no capture is open and none can begin. */
uint64_t samples_collect(CUdevice device);

struct samples_sums samples_sums(CUdevice device);

/* What is running on the device has been stopped in its middle: what it takes now says nothing. */
void samples_interrupted(CUdevice device);

/* The context is gone, its events with it. */
void samples_context_gone(CUcontext context);

void samples_fork_child(void);

#endif
