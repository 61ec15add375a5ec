/* test_forked.c - every room that knows something of its process hears of a fork. */
#include <check.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "client/client.h"
#include "client/fork.h"
#include "client/mps_choice.h"
#include "common/lock.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "memory/memory.h"
#include "preempt/preempt.h"

static int prepared, let_go, told, with_ranks;

void client_fork_prepare(void) { prepared++; }
void client_fork_parent(void) { let_go++; }

#define ROOMS(X) X(client) X(mps_choice) X(gate) X(contexts) X(streams) X(capture) X(memory) X(preempt)
#define PLAYED(room)                                                                                         \
  void room##_fork_child(void) {                                                                             \
    told++;                                                                                                  \
    with_ranks += lock_held.ranks != 0;                                                                      \
  }
ROOMS(PLAYED)
#define ONE(room) +1

static void set_up(void) { prepared = let_go = told = with_ranks = 0; }

START_TEST(a_child_is_told_to_every_room) {
  static struct lock lock = LOCK(LOCK_CHANNELS);
  int status;
  lock_take(&lock); /* a signal handler forks over it */
  pid_t child = fork();
  if (child == 0)
    _exit(prepared == 1 && let_go == 0 && told == 0 ROOMS(ONE) && with_ranks == 0 ? 0 : 1);
  lock_release(&lock);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  ck_assert(prepared == 1 && let_go == 1 && told == 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_child_is_told_to_every_room, NULL};
  return suite_main("forked", tests, set_up, NULL);
}
