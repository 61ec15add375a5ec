/*
 * watch.h - what the daemon knows of the process by its meter pages: brings the threads' counts there, while
 * somebody looks. One thread per page ("gpushare-meter"); it sleeps while nobody looks, and while the process
 * is idle.
 *
 * Threading: watch_attach, watch_detach and watch_fork_child from one thread at a time; watch_wake from any.
 */
#ifndef GS_WATCH_H
#define GS_WATCH_H

#include "gpushare/meter.h"
#include "interpose/cuda_abi.h"

/* The daemon's page for this device has come, and becomes ours; or NULL: it can't be used, as err says. What
 * was counted before is not in it. */
void watch_attach(CUdevice device, struct gs_meter *page, int err);

/* The daemon is gone. */
void watch_detach(CUdevice device);

/* The process, which was idle, is about to submit to this device (-1: to none). */
void watch_wake(CUdevice device);

void watch_fork_child(void);

#endif
