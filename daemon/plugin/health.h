/* health.h - what the devices' health follows: whether the daemon answers, and whether the GPUs do. GPUs are
 * looked at in a thread of its own, as a driver may take long to answer. */
#ifndef GS_PLUGIN_HEALTH_H
#define GS_PLUGIN_HEALTH_H

#include <pthread.h>

#include "plugin/loop.h"
#include "plugin/node_gpus.h"

struct health {
  struct loop *loop;
  struct gpus *gpus;
  const char *socket;                       /* the daemon's */
  uint64_t interval_ns;                     /* between looks, and between questions */
  void (*on_change)(struct health *health); /* of a GPU's `healthy`, or daemon_answers; in the loop */
  bool daemon_answers;
  struct source daemon;   /* a connection, as gpusharectl's; fd -1: none */
  struct timer timer;     /* of the next question, or of giving up the answer to the last one */
  bool asked;             /* and not answered */
  bool refused;           /* by a daemon of another version, which has been said */
  uint64_t full_since_ns; /* wire_connect_again_ns */
  struct source changed;  /* by which the thread tells the loop of changes */
  pthread_t thread;
  int stop_fd; /* readable once the thread is to end */
};

/* All down to on_change is set. Looks at the GPUs once before it returns; a daemon that is not there comes
 * later. 0 or -errno. */
int health_open(struct health *health);

/* Waits for the thread. */
void health_close(struct health *health);

#endif
