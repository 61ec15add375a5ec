/* checkpoint.c - the driver's own way to take a process off the card (CUDA 12.8): is it there, how fast is
 * it. */
#include "pieces.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 3, LOCK_MS = 5000 };
static const size_t bytes = 4 * GIB;

/* Looked up, as a driver may lack them. */
static struct {
  CUresult (*state)(int pid, CUprocessState *state);
  CUresult (*lock)(int pid, CUcheckpointLockArgs *args);
  CUresult (*checkpoint)(int pid, CUcheckpointCheckpointArgs *args);
  CUresult (*restore)(int pid, CUcheckpointRestoreArgs *args);
  CUresult (*unlock)(int pid, CUcheckpointUnlockArgs *args);
} calls;

static bool call_find(const char *name, void *call) {
  CUdriverProcAddressQueryResult found = 0;
  CUresult result = cuGetProcAddress(name, call, 12080, CU_GET_PROC_ADDRESS_DEFAULT, &found);
  printf("  %s: %s\n", name, result == CUDA_SUCCESS && *(void **)call ? "there" : "missing");
  return result == CUDA_SUCCESS && *(void **)call;
}

static bool calls_find(void) {
  bool all = call_find("cuCheckpointProcessGetState", &calls.state);
  all &= call_find("cuCheckpointProcessLock", &calls.lock);
  all &= call_find("cuCheckpointProcessCheckpoint", &calls.checkpoint);
  all &= call_find("cuCheckpointProcessRestore", &calls.restore);
  all &= call_find("cuCheckpointProcessUnlock", &calls.unlock);
  return all;
}

/* The one that is taken off: fills its memory, says so, and at each byte says whether it still is what it
 * was. */
static void subject_run(int fd) {
  struct probe p = {0};
  CUdeviceptr at = 0;
  char word = 0;
  bool ok = probe_open(&p) && card_fits("checkpoint", bytes) && !TRY(cuMemAlloc(&at, bytes)) &&
            !TRY(launch_fill(&p, at, bytes, p.stream)) && !TRY(cuCtxSynchronize());
  while (ok && write(fd, &word, 1) == 1 && read(fd, &word, 1) == 1) {
    uint32_t last = 0;
    ok = !TRY(cuMemcpyDtoH(&last, at + bytes - 4, 4));
    word = last == (uint32_t)(bytes / 4 - 1);
  }
}

/* One of the calls on the subject, with its time and what is free on the card after it. */
static bool step_print(const char *name, CUresult result, uint64_t start, int pid) {
  CUprocessState state = CU_PROCESS_STATE_RUNNING;
  size_t unused = 0, total = 0;
  double ms = ms_since(start);
  calls.state(pid, &state);
  cuMemGetInfo(&unused, &total);
  printf("  %s: %s, %.3f s (%.1f GB/s of its memory), state %d, card free %.2f GiB\n", name,
         result_name(result), ms / 1e3, (double)bytes / ms / 1e6, (int)state, (double)unused / (double)GIB);
  return result == CUDA_SUCCESS;
}

static bool round_print(int pid) {
  CUcheckpointLockArgs lock = {.timeoutMs = LOCK_MS};
  CUcheckpointCheckpointArgs out = {0};
  CUcheckpointRestoreArgs in = {0};
  CUcheckpointUnlockArgs unlock = {0};
  uint64_t start = clock_now_ns();
  bool ok = step_print("lock", calls.lock(pid, &lock), start, pid);
  start = clock_now_ns();
  ok = ok && step_print("checkpoint", calls.checkpoint(pid, &out), start, pid);
  start = clock_now_ns();
  ok = ok && step_print("restore", calls.restore(pid, &in), start, pid);
  start = clock_now_ns();
  return ok && step_print("unlock", calls.unlock(pid, &unlock), start, pid);
}

static bool subject_ask(int fd) {
  char word = 0;
  return send(fd, &word, 1, MSG_NOSIGNAL) == 1 && read(fd, &word, 1) == 1 && word;
}

static void rounds_print(int fd, int pid) {
  struct probe p = {0};
  char word;
  if (!probe_open(&p) || !calls_find() || read(fd, &word, 1) != 1)
    return;
  for (int i = 1; i <= ROUNDS; i++) {
    printf("  round %d, 4 GiB\n", i);
    if (!round_print(pid))
      return;
    uint64_t start = clock_now_ns();
    bool right = subject_ask(fd);
    printf("  its memory is %s; asking took %.3f s\n", right ? "right" : "WRONG", ms_since(start) / 1e3);
  }
}

void probe_checkpoint(struct probe *p) {
  int ends[2];
  (void)p;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return;
  pid_t pid = child_fork();
  if (pid == 0) {
    close(ends[0]);
    subject_run(ends[1]);
    fflush(stdout);
    _exit(0);
  }
  close(ends[1]);
  if (pid < 0)
    return;
  rounds_print(ends[0], pid);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}
