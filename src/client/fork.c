/* fork.c - the child of a fork is a fresh process: no driver state, no connection and no thread has survived.
 */
#include "client/fork.h"

#include <pthread.h>
#include <stdbool.h>

#include "client/client.h"
#include "client/mps_choice.h"
#include "common/lock.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "memory/memory.h"
#include "preempt/preempt.h"

static void in_child(void) {
  lock_fork_child();
  client_fork_child();
  mps_choice_fork_child();
  gate_fork_child();
  contexts_fork_child();
  streams_fork_child();
  capture_fork_child();
  memory_fork_child();
  preempt_fork_child();
}

__attribute__((constructor)) void fork_watch(void) {
  static bool watched;
  if (!watched)
    watched = pthread_atfork(client_fork_prepare, client_fork_parent, in_child) == 0;
}
