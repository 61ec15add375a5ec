/* watch.h - looks at the GPUs' health from time to time, in a thread of its own: a driver may take long to
 * answer. */
#ifndef GS_PLUGIN_WATCH_H
#define GS_PLUGIN_WATCH_H

#include <pthread.h>

#include "plugin/loop.h"
#include "plugin/node_gpus.h"

struct watch {
  struct source source; /* by which the thread tells the loop of changes */
  struct loop *loop;
  struct gpus *gpus;
  uint64_t interval_ns;
  pthread_t thread;
  int stop_fd;                            /* readable once the thread is to end */
  void (*on_change)(struct watch *watch); /* some GPU's `healthy` has changed; in the loop */
};

/* gpus, interval_ns and on_change are set. Looks once before it returns. 0 or -errno. */
int watch_open(struct watch *watch, struct loop *loop);

/* Waits for the thread. */
void watch_close(struct watch *watch);

#endif
