/*
 * service.h - for how long the process has had something to be done on a GPU: from the first submission after
 * all before it had finished, to the call that has waited for the last one. That is the service time of
 * queueing theory: of a server of requests their answer times, of a training all of the time but for what it
 * waits for its input. Unlike the time of the wall it does not grow for lack of work.
 *
 * What was waited for within 0.2 ms is not looked at, nor what programs find out by polling, nor when
 * looks have taken too much of the time lately: that counts until the next look (watch.h) or wait. If that
 * look finds that nothing has been submitted since a wait, and a wait has ended what was before, then that
 * one has ended this.
 *
 * Of it, how much was spent in calls that wait for the GPU: the rest is the host's own. That is known of what
 * a wait has ended; anything else counts as waited for, as the program may have found out in another way:
 * what ended unseen, what it has polled for or is called back for, and what goes on for more than 100 ms, and
 * twice as long as what was seen to end before. Not known is who looks at a word in memory that the GPU
 * writes, and waits afterwards; and who waits in a launch because the driver's queue is full.
 *
 * Threading: any thread.
 */
#ifndef GS_SERVICE_H
#define GS_SERVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "interpose/cuda_abi.h"

/* Somebody wants to know, or nobody does. Something may be under way. */
void service_want(CUdevice device, bool wanted);

/* A call is about to submit, for the reason GATE_LOOK_RESTING. */
void service_begin(CUdevice device);

/* All of so many submissions have finished. That is not the end if there have been more since, or if what has
 * just begun is still on its way to the driver. */
void service_end(CUdevice device, uint64_t finished);

/* Somebody has asked, and not all has finished. */
void service_goes_on(CUdevice device);

/* So far, in all. Of what is accounted for: the submissions, and the time waited. */
struct service_sums {
  uint64_t ns, served, waited_ns;
};
struct service_sums service_sums(CUdevice device);

extern _Atomic uint64_t service_wanted __attribute__((visibility("hidden"))); /* mask of devices */
void service_waited_slow(uint64_t since_ns);
void service_copied_slow(uint64_t since_ns);
void service_polled_slow(void);

/* A call is about to wait for the GPU: when; 0: nobody wants to know. */
static inline uint64_t service_wait(void) {
  bool wanted = atomic_load_explicit(&service_wanted, memory_order_relaxed) != 0;
  return __builtin_expect(wanted, 0) ? clock_now_ns() : 0;
}

/* The calling thread has waited for work of its context, from then on. */
static inline void service_waited(uint64_t since_ns) {
  if (__builtin_expect(since_ns != 0, 0))
    service_waited_slow(since_ns);
}

/* It has made a copy that waits if it goes to pageable memory: if it took long. */
static inline void service_copied(uint64_t since_ns) {
  if (__builtin_expect(since_ns != 0, 0))
    service_copied_slow(since_ns);
}

/* The program has asked whether something has finished, and it has not; or it will be called back. */
static inline void service_polled(void) {
  if (__builtin_expect(atomic_load_explicit(&service_wanted, memory_order_relaxed) != 0, 0))
    service_polled_slow();
}

void service_fork_child(void);

#endif
