/*
 * guest.h - what the programs of the guest campaign share. A case says on stdout what it sees; the campaign
 * compares that with what it says without the library. So a line must be the same in every native run: no
 * addresses, no times, no descriptor numbers above GUEST_OWN.
 */
#ifndef TEST_GUEST_H
#define TEST_GUEST_H

#include "system/gpu.h"

/* Descriptors from here on are nobody's business but the library's (and the driver's). */
#define GUEST_OWN 512

/* One line on stdout, at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The name of a driver's result. */
const char *result_name(CUresult result);

/* Says which descriptors below GUEST_OWN are open, and what they are: type, access mode, close-on-exec. */
void say_descriptors(void);

/* Says what the calling thread is: signal mask, dispositions, scheduling policy, affinity, cancellation. */
void say_thread(void);

/* Wait until an event that the case knows to come has come: polls `holds` for at most 20 s, then says so. */
void await(int (*holds)(void *argument), void *argument, const char *what);

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* The GPU is this program's: a kernel of 8 words has run, and its result is right. */
void use_gpu(const struct gpu *gpu);

#endif
