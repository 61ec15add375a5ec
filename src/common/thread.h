/* thread.h - threads of ours in someone else's process: the program's signals are none of their business. */
#ifndef GS_THREAD_H
#define GS_THREAD_H

#include <pthread.h>
#include <signal.h>

/* As pthread_create, with all signals blocked. 0 or -errno. */
static inline int thread_start(pthread_t *thread, void *(*body)(void *), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int err = pthread_create(thread, NULL, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return -err;
}

#endif
