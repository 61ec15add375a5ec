/*
 * exits.c - a program that ends in the middle of its work: with calls in flight, work queued, and perhaps
 * while it is being told to hand the GPU over.
 * Arguments: exit|_exit|kill|fork, NS until then, of work. With `fork`, a child that never uses the GPU is
 * made and ends first, as PyTorch's loaders are; the program itself then ends by exit.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "program.h"

enum { WORKERS = 3 };
#define WORDS (16 * MIB / sizeof(uint64_t))

static CUcontext context;
static struct kernels kernels;
static uint64_t end_ns;

static void work_until_end(void) {
  CUstream stream;
  CUdeviceptr at;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc(&at, WORDS * sizeof(uint64_t)));
  launch_fill(&kernels, stream, at, WORDS, 1);
  for (uint64_t round = 0; clock_now_ns() < end_ns; round++) {
    launch_add(&kernels, stream, at, WORDS, 1);
    launch_spin(&kernels, stream, 100000);
    if (round % 8 == 7)
      MUST(cuStreamSynchronize(stream));
  }
}

/* Never ends: the process is to end around it, wherever it is in the driver. */
static void *work_for_ever(void *unused) {
  CUstream stream;
  (void)unused;
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (;;) {
    launch_spin(&kernels, stream, 50000);
    MUST(cuStreamSynchronize(stream));
  }
  return NULL;
}

/* The end comes from a thread that never calls the driver: it must not wait for its turn first. */
static void *leave(void *way) {
  struct timespec when = {.tv_sec = (time_t)(end_ns / NS_PER_S), .tv_nsec = (long)(end_ns % NS_PER_S)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) != 0)
    ;
  if (strcmp(way, "_exit") == 0)
    _exit(0);
  raise(SIGKILL);
  return NULL;
}

/* At exit(3) the driver tears itself down, and what other threads then do in it is undefined with or without
 * libunified: so they exist only where the process ends at once. */
static void work_until_gone(char *way) {
  pthread_t thread;
  pthread_create(&thread, NULL, leave, way);
  for (int i = 1; i < WORKERS; i++)
    pthread_create(&thread, NULL, work_for_ever, NULL);
  work_for_ever(NULL);
}

static void fork_child(void) {
  int status;
  pid_t child = fork();
  if (child == 0)
    _exit(0);
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    fail("the child did not end well");
}

int main(int argc, char **argv) {
  char *way = argc > 1 ? argv[1] : "exit";
  program_start(&context);
  kernels = kernels_load();
  program_say("ready");
  program_await_line();
  end_ns = clock_now_ns() + argument(argc, argv, 2, 100000000);
  if (strcmp(way, "fork") == 0)
    fork_child();
  if (strcmp(way, "_exit") == 0 || strcmp(way, "kill") == 0)
    work_until_gone(way);
  work_until_end();
  program_say("ok");
  return 0;
}
