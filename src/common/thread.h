/*
 * thread.h - the one way to start a thread of ours in someone else's process. It has nothing of the thread
 * that happens to start it: all signals are blocked, it is scheduled as others are (SCHED_OTHER), and it may
 * run wherever the process might when it began.
 */
#ifndef GS_THREAD_H
#define GS_THREAD_H

#include <pthread.h>
#include <signal.h>

/* As pthread_create; thread NULL: detached. 0 or -errno. */
int thread_start(pthread_t *thread, void *(*body)(void *), void *argument);

/* The first thing that such a thread does: its name, of at most 15 characters, and its nice value. */
void thread_begin(const char *name);

/* From here on no signal handler runs in the calling thread; until they are as before again. */
void thread_block_signals(sigset_t *before);
void thread_restore_signals(const sigset_t *before);

/* Start a detached thread that the process can't share a GPU without. While there are as many threads as
 * there may be, the caller waits for up to a second. 0 or -errno. */
int thread_start_needed(void *(*body)(void *), void *argument);

#endif
