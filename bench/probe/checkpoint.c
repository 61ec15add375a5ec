/* checkpoint.c - the driver's own way to take a process off the card, cuCheckpointProcess* (CUDA 12.8): is it
 * there, how fast is it? */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pieces.h"
#include "sim/kernels.h"

enum { ROUNDS = 3, LOCK_MS = 5000, STEPS = 4 };
static const size_t bytes = 4 * GIB;

/* All of the driver's argument blocks are 64 bytes, zero but for this: no newer header is needed. */
struct args {
  unsigned timeout_ms; /* of the lock, which is the first step */
  unsigned zero[15];
};

/* Looked up, as a driver may lack them. */
static struct {
  const char *name;
  CUresult (*call)(int pid, struct args *args);
} steps[STEPS] = {{"cuCheckpointProcessLock", NULL},
                  {"cuCheckpointProcessCheckpoint", NULL},
                  {"cuCheckpointProcessRestore", NULL},
                  {"cuCheckpointProcessUnlock", NULL}};

static bool steps_find(void) {
  for (int step = 0; step < STEPS; step++) {
    CUdriverProcAddressQueryResult found = 0;
    CUresult result = cuGetProcAddress(steps[step].name, (void **)&steps[step].call, 12080,
                                       CU_GET_PROC_ADDRESS_DEFAULT, &found);
    if (result != CUDA_SUCCESS || !steps[step].call) {
      printf("  the driver has no %s\n", steps[step].name);
      return false;
    }
  }
  return true;
}

/* One of the calls on the process, with its time and what is free on the card after it. */
static bool step_print(pid_t pid, int step) {
  struct args args = {.timeout_ms = step == 0 ? LOCK_MS : 0};
  size_t unused = 0, total = 0;
  uint64_t start = clock_now_ns();
  CUresult result = steps[step].call(pid, &args);
  double ms = ms_since(start);
  cuMemGetInfo(&unused, &total);
  printf("  %s: %s, %.3f s (%.1f GB/s of its memory), card free %.2f GiB\n", steps[step].name,
         result_name(result), ms / 1e3, (double)bytes / ms / 1e6, (double)unused / (double)GIB);
  return result == CUDA_SUCCESS;
}

/* Fills its memory, says so, and at each byte says whether the last word still is what it was. */
static void subject_run(int fd) {
  struct probe p = {0};
  CUdeviceptr at = 0;
  char word = 0;
  bool ok = probe_open(&p) && card_fits("checkpoint", bytes) && !TRY(cuMemAlloc(&at, bytes)) &&
            !TRY(launch_fill(&p, at, bytes, p.stream)) && !TRY(cuCtxSynchronize());
  while (ok && write(fd, &word, 1) == 1 && read(fd, &word, 1) == 1) {
    uint64_t last = 0;
    ok = !TRY(cuMemcpyDtoH(&last, at + bytes - 8, 8));
    word = last == gs_hash(0, bytes / 8 - 1);
  }
}

static void rounds_print(pid_t pid, int fd) {
  struct probe p = {0};
  if (!probe_open(&p) || !steps_find())
    return;
  for (int round = 1; round <= ROUNDS; round++) {
    char word = 0;
    printf("  round %d, 4 GiB\n", round);
    for (int step = 0; step < STEPS; step++)
      if (!step_print(pid, step))
        return;
    bool right = send(fd, &word, 1, MSG_NOSIGNAL) == 1 && read(fd, &word, 1) == 1 && word;
    printf("  its memory is %s\n", right ? "right" : "WRONG");
  }
}

void probe_checkpoint(struct probe *unused) {
  int ends[2];
  char word;
  (void)unused;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return;
  pid_t pid = child_fork(); /* the driver is not open here yet */
  if (pid == 0) {
    close(ends[0]);
    subject_run(ends[1]);
    fflush(stdout);
    _exit(0);
  }
  close(ends[1]);
  if (pid > 0 && read(ends[0], &word, 1) == 1)
    rounds_print(pid, ends[0]);
  if (pid > 0 && kill(pid, SIGKILL) == 0)
    waitpid(pid, NULL, 0);
}
