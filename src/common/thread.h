/* thread.h - threads of ours in someone else's process: the program's signals are none of their business. */
#ifndef GS_THREAD_H
#define GS_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

/* As pthread_create, with all signals blocked. 0 or -errno. */
static inline int thread_start(pthread_t *thread, void *(*body)(void *), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int err = pthread_create(thread, NULL, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return -err;
}

#define THREAD_TRIES 20
#define THREAD_PAUSE_NS 50000000

/* The same for a thread that the process can't share a GPU without. While there are as many threads as there
 * may be, the caller waits for up to a second. */
static inline int thread_start_needed(pthread_t *thread, void *(*body)(void *), void *argument) {
  int err = thread_start(thread, body, argument);
  for (int tries = 1; err == -EAGAIN && tries < THREAD_TRIES; tries++) {
    nanosleep(&(struct timespec){.tv_nsec = THREAD_PAUSE_NS}, NULL);
    err = thread_start(thread, body, argument);
  }
  return err;
}

#endif
