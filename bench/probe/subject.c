/* subject.c - the process that is taken off the card, and the driver's calls that do it. */
#include "subject.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/kernels.h"

enum { LOCK_MS = 5000 };

/* All of the driver's argument blocks are 64 bytes, zero but for this: no newer header is needed. */
struct args {
  unsigned timeout_ms; /* of the lock */
  unsigned zero[15];
};

/* Looked up, as a driver may lack them. */
static struct {
  const char *name;
  CUresult (*call)(int pid, struct args *args);
} steps[SUBJECT_STEPS] = {[SUBJECT_LOCK] = {"cuCheckpointProcessLock", NULL},
                          [SUBJECT_CHECKPOINT] = {"cuCheckpointProcessCheckpoint", NULL},
                          [SUBJECT_RESTORE] = {"cuCheckpointProcessRestore", NULL},
                          [SUBJECT_UNLOCK] = {"cuCheckpointProcessUnlock", NULL}};
static CUresult (*get_state)(int pid, int *state);

static bool call_find(const char *name, void *call) {
  CUdriverProcAddressQueryResult found = 0;
  CUresult result = cuGetProcAddress(name, call, 12080, CU_GET_PROC_ADDRESS_DEFAULT, &found);
  bool there = result == CUDA_SUCCESS && *(void **)call;
  if (!there)
    printf("  the driver has no %s\n", name);
  return there;
}

bool subject_calls_find(void) {
  bool all = call_find("cuCheckpointProcessGetState", &get_state);
  for (int step = 0; step < SUBJECT_STEPS; step++)
    all &= call_find(steps[step].name, &steps[step].call);
  return all;
}

const char *subject_step_name(enum subject_step step) { return steps[step].name; }

CUresult subject_do(const struct subject *s, enum subject_step step) {
  struct args args = {.timeout_ms = step == SUBJECT_LOCK ? LOCK_MS : 0};
  return steps[step].call(s->pid, &args);
}

int subject_state(const struct subject *s) {
  int state = -1;
  get_state(s->pid, &state);
  return state;
}

/* Fills its memory, says so, and at each byte says whether the last word still is what it was. */
static void subject_run(int fd, size_t bytes) {
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

bool subject_start(struct subject *s, size_t bytes) {
  int ends[2];
  char word;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return false;
  s->fd = ends[0];
  s->pid = child_fork();
  if (s->pid == 0) {
    close(ends[0]);
    subject_run(ends[1], bytes);
    fflush(stdout);
    _exit(0);
  }
  close(ends[1]);
  return s->pid > 0 && read(s->fd, &word, 1) == 1;
}

bool subject_is_right(const struct subject *s) {
  char word = 0;
  return send(s->fd, &word, 1, MSG_NOSIGNAL) == 1 && read(s->fd, &word, 1) == 1 && word;
}

void subject_end(struct subject *s) {
  close(s->fd);
  if (s->pid <= 0)
    return;
  kill(s->pid, SIGKILL);
  waitpid(s->pid, NULL, 0);
}
