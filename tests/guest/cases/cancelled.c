/* cancelled.c - threads are cancelled where they mean to be, not inside a call that allocates or launches;
 * and after that the program can fork, and use the GPU. */
#include "guest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 20
#define WORDS (UINT64_C(3) << 20) /* 24 MiB: more than a job is granted without being asked for */

static struct gpu gpu;
static _Atomic int rounds;
static int in_call, cancelled_in_call; /* of one thread at a time */

static void note_cancelled(void *unused) {
  (void)unused;
  cancelled_in_call += in_call;
}

static void *allocate_for_ever(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  pthread_cleanup_push(note_cancelled, NULL);
  for (;;) {
    in_call = 1;
    CUdeviceptr at = gpu_alloc(WORDS);
    gpu_fill(&gpu, NULL, at, 8, 1);
    MUST(cuMemFree(at)); /* waits for the kernel */
    in_call = 0;
    atomic_fetch_add(&rounds, 1);
    pthread_testcancel();
  }
  pthread_cleanup_pop(0);
  return unused;
}

static int has_begun(void *before) { return atomic_load(&rounds) > *(int *)before; }

static void cancel_one(void) {
  pthread_t thread;
  void *result;
  int before = atomic_load(&rounds);
  pthread_create(&thread, NULL, allocate_for_ever, NULL);
  await(has_begun, &before, "the thread's first round");
  pthread_cancel(thread);
  pthread_join(thread, &result);
  if (result != PTHREAD_CANCELED)
    say("not cancelled");
}

static void fork_once(void) {
  int status;
  pid_t child = fork();
  if (child == 0)
    _exit(3);
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) != 3)
    say("the child ends with %x", (unsigned)status);
}

int main(void) {
  gpu_start(&gpu, 0);
  for (int i = 0; i < THREADS; i++) {
    cancel_one();
    fork_once();
    use_gpu(&gpu);
  }
  say("cancelled inside a call: %d", cancelled_in_call);
  say("ok");
  return 0;
}
