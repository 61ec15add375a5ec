/*
 * tap.h - libcuda's calls of the resource manager pass us: the slot through which it reaches libc's ioctl
 * holds our function, which notes what is allocated and freed (channels.h) and tells a listener of controls.
 * Nothing is exported for that, and nobody else's ioctl is touched.
 *
 * Each call goes on to whatever the slot held: libc's function, or that of another preloaded library. Its
 * result and errno are passed on as they are.
 */
#ifndef GS_TAP_H
#define GS_TAP_H

#include <stdbool.h>

#include "driver/elf.h"
#include "preempt/rm.h"

/* A control of libcuda's has succeeded. Called in the thread that has made it. */
typedef void (*tap_listener)(const struct rm_control *control);

/* Watch this library. False: it has no such slot, or it can't be written; then nothing is changed. */
bool tap_library(const struct elf_object *library, tap_listener listener);

/* Whether any is watched, by this process: a child that shares the descriptors with the process that was
 * watched may not steer that one's channels. */
bool tap_is_on(void);

/* A call of our own, past our function: as ioctl. Safe in a signal handler. */
int tap_call(int fd, unsigned long request, void *argument);

void tap_fork_child(void);

#endif
