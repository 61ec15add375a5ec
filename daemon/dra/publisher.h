/* publisher.h - keeps this node's ResourceSlice as it should be, from a thread of its own: the API server may
 * take long. */
#ifndef GS_DRA_PUBLISHER_H
#define GS_DRA_PUBLISHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "dra/api.h"

struct publisher {
  const struct api_access *access;
  const char *node;
  bool removes; /* what is published, in the end */
  /* The rest is its own. */
  pthread_t thread;
  int wake_fd;
  atomic_bool stops;
  _Atomic(json_t *) next; /* devices that are to be published; NULL: as before */
};

/* access, node and removes are set. 0 or -errno. */
int publisher_open(struct publisher *publisher);

/* These, which are the publisher's from now on; none: there is to be no slice. */
void publisher_publish(struct publisher *publisher, json_t *devices);

/* Somebody may have removed the slice: it is looked whether it is there. */
void publisher_look(struct publisher *publisher);

/* Waits for the thread. */
void publisher_close(struct publisher *publisher);

#endif
