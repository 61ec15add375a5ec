/*
 * sharer.c - memory between processes by CUDA IPC, as the lines of its input say: a command, the number of a
 * slot for memory, and what the command wants to know. usage: sharer [GPU]. Each line is answered by "done
 * ...", or "error CALL-RESULT".
 *
 * create: so many bytes of physical memory, filled likewise. export: all of what is exported of that is as
 * filled and added to so often.
 *
 * alloc, async: so many bytes, plain ones filled with SEED, or stream-ordered. fits: they are freed again.
 * take: they stay, and are not filled. share: its handle, in hexadecimal. open: memory of that handle;
 * answers its address, the base of that, and its bytes. verify: all of it is as filled and added to so often;
 * else the program ends. add: so much to each word. close, free, describe (IS_LEGACY_CUDA_IPC_CAPABLE).
 * closing: another thread closes it, and may still wait for work when this is answered.
 *
 * fork: a child, with copies of all descriptors, that lives as long as the process whose number is given;
 * answers its number. capture, uncapture: a stream capture is open meanwhile. closefrom: all descriptors are
 * closed but for input and output, and those of the simulated driver. reset: the primary context, and with it
 * all memory. crowd: of the few descriptors that the program may have, it has all that the library may keep.
 * spin: the GPU works for so many ns. copy: from what is opened, which is as filled and added to so often, to
 * memory of its own. use: another GPU, too. sandbox: from now on no thread may call pidfd_open.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu.h"

#define SLOTS 8
#define SEED 77
#define SIMULATED_LEAST 700 /* tests/sim/vmm.c */
#define CROWDED_FROM 512    /* src/common/descriptor.h */
#define CROWDED 950

static int device;
static struct gpu gpu;
static CUstream stream, captured;
static struct memory {
  CUdeviceptr at;
  uint64_t words;
  CUmemGenericAllocationHandle handle; /* of cuMemCreate */
} slots[SLOTS];

static void answer(CUresult result, const char *text) {
  char line[300];
  if (result == CUDA_SUCCESS)
    snprintf(line, sizeof line, "done %s", text);
  else
    snprintf(line, sizeof line, "error %d", (int)result);
  gpu_say(line);
}

static void start(void) {
  gpu_start(&gpu, device);
  stream = gpu_stream();
}

static void alloc(struct memory *memory, const char *bytes) {
  memory->words = strtoull(bytes, NULL, 0) / sizeof(uint64_t);
  memory->at = gpu_alloc(memory->words);
  gpu_fill(&gpu, stream, memory->at, memory->words, SEED);
  MUST(cuStreamSynchronize(stream));
  answer(CUDA_SUCCESS, "");
}

static void create(struct memory *memory, const char *bytes) {
  memory->words = strtoull(bytes, NULL, 0) / sizeof(uint64_t);
  MUST(gpu_create(&memory->handle, memory->words * sizeof(uint64_t)));
  memory->at = gpu_map(memory->handle, memory->words * sizeof(uint64_t));
  gpu_fill(&gpu, stream, memory->at, memory->words, SEED);
  MUST(cuStreamSynchronize(stream));
  answer(CUDA_SUCCESS, "");
}

static void share(const struct memory *memory) {
  CUipcMemHandle handle;
  char text[2 * sizeof handle + 1] = "";
  CUresult result = cuIpcGetMemHandle(&handle, memory->at);
  for (size_t i = 0; i < sizeof handle && result == CUDA_SUCCESS; i++)
    sprintf(text + 2 * i, "%02x", (unsigned char)handle.reserved[i]);
  answer(result, text);
}

static void open_shared(struct memory *memory, const char *text) {
  CUipcMemHandle handle;
  char line[64] = "";
  CUdeviceptr base;
  size_t bytes;
  for (size_t i = 0; i < sizeof handle; i++) {
    unsigned byte;
    sscanf(text + 2 * i, "%2x", &byte);
    handle.reserved[i] = (char)byte;
  }
  CUresult result = cuIpcOpenMemHandle(&memory->at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result == CUDA_SUCCESS) {
    MUST(cuMemGetAddressRange(&base, &bytes, memory->at + 8));
    memory->words = bytes / sizeof(uint64_t);
    snprintf(line, sizeof line, "%llx %llx %zu", memory->at, base, bytes);
  }
  answer(result, line);
}

static pid_t start_child(pid_t other) {
  int ended = (int)syscall(SYS_pidfd_open, other, 0);
  pid_t child = fork();
  if (child < 0 || ended < 0)
    exit(2);
  if (child)
    return child;
  for (int fd = 0; fd < 3; fd++)
    close(fd);
  poll(&(struct pollfd){.fd = ended, .events = POLLIN}, 1, -1);
  _exit(0);
}

static void crowd(int eighths) {
  const struct rlimit limit = {.rlim_cur = CROWDED, .rlim_max = CROWDED};
  setrlimit(RLIMIT_NOFILE, &limit);
  for (int fd = CROWDED_FROM; fd < CROWDED_FROM + CROWDED / 8 * eighths; fd++)
    if (fcntl(fd, F_GETFD) < 0)
      dup2(0, fd);
}

static void *close_opened(void *memory) {
  MUST(cuCtxSetCurrent(gpu.context));
  cuIpcCloseMemHandle(((struct memory *)memory)->at);
  return NULL;
}

/* Until the library knows no allocation there any more. To the driver it is a part of a mapping still. */
static void begin_closing(struct memory *memory) {
  pthread_t thread;
  CUdeviceptr base = memory->at;
  if (pthread_create(&thread, NULL, close_opened, memory) != 0)
    exit(2);
  pthread_detach(thread);
  while (base == memory->at && cuMemGetAddressRange(&base, NULL, memory->at) == CUDA_SUCCESS)
    sched_yield();
  answer(CUDA_SUCCESS, "");
}

static void use(int other) {
  CUcontext context;
  CUdeviceptr at;
  MUST(cuDevicePrimaryCtxRetain(&context, other));
  MUST(cuCtxPushCurrent(context));
  MUST(cuMemAlloc(&at, 4096));
  MUST(cuMemsetD8(at, 0, 4096));
  MUST(cuCtxPopCurrent(NULL));
}

/* As in many a sandbox: the call fails. */
static void forbid(int call) {
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
    exit(2);
}

static void obey(const char *command, struct memory *memory, const char *argument) {
  int capable = 0;
  char line[16] = "";
  if (!strcmp(command, "alloc")) {
    alloc(memory, argument);
  } else if (!strcmp(command, "async")) {
    answer(cuMemAllocAsync(&memory->at, strtoull(argument, NULL, 0), stream), "");
  } else if (!strcmp(command, "fits")) {
    CUresult result = cuMemAlloc(&memory->at, strtoull(argument, NULL, 0));
    answer(result == CUDA_SUCCESS ? cuMemFree(memory->at) : result, "");
  } else if (!strcmp(command, "create")) {
    create(memory, argument);
  } else if (!strcmp(command, "export")) {
    gpu_verify_exported(memory->handle, memory->words, SEED, strtoull(argument, NULL, 0));
    answer(CUDA_SUCCESS, "");
  } else if (!strcmp(command, "take")) {
    answer(cuMemAlloc(&memory->at, strtoull(argument, NULL, 0)), "");
  } else if (!strcmp(command, "share")) {
    share(memory);
  } else if (!strcmp(command, "open")) {
    open_shared(memory, argument);
  } else if (!strcmp(command, "verify")) {
    gpu_verify(memory->at, memory->words, SEED, strtoull(argument, NULL, 0));
    answer(CUDA_SUCCESS, "");
  } else if (!strcmp(command, "add")) {
    gpu_add(&gpu, stream, memory->at, memory->words, strtoull(argument, NULL, 0));
    answer(cuStreamSynchronize(stream), "");
  } else if (!strcmp(command, "close")) {
    answer(cuIpcCloseMemHandle(memory->at), "");
  } else if (!strcmp(command, "closing")) {
    begin_closing(memory);
  } else if (!strcmp(command, "free")) {
    answer(cuMemFree(memory->at), "");
  } else if (!strcmp(command, "describe")) {
    CUresult result =
        cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory->at);
    snprintf(line, sizeof line, "%d", capable);
    answer(result, line);
  } else if (!strcmp(command, "capture")) {
    captured = gpu_stream();
    answer(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED), "");
  } else if (!strcmp(command, "uncapture")) {
    CUgraph graph;
    answer(cuStreamEndCapture(captured, &graph), "");
  } else if (!strcmp(command, "fork")) {
    snprintf(line, sizeof line, "%d", (int)start_child(atoi(argument)));
    answer(CUDA_SUCCESS, line);
  } else if (!strcmp(command, "crowd")) {
    crowd(atoi(argument));
    answer(CUDA_SUCCESS, "");
  } else if (!strcmp(command, "closefrom")) {
    /* A sanitizer does not see the system call. What it would report is meant here. */
    long failed = syscall(SYS_close_range, 3, SIMULATED_LEAST - 1, 0);
    answer(failed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS, "");
  } else if (!strcmp(command, "spin")) {
    gpu_spin(&gpu, stream, strtoull(argument, NULL, 0));
    answer(CUDA_SUCCESS, "");
  } else if (!strcmp(command, "copy")) {
    CUdeviceptr to = gpu_alloc(memory->words);
    CUresult result = cuMemcpy(to, memory->at, memory->words * sizeof(uint64_t));
    gpu_verify(to, memory->words, SEED, strtoull(argument, NULL, 0));
    answer(result, "");
  } else if (!strcmp(command, "use")) {
    use(atoi(argument));
    answer(CUDA_SUCCESS, "");
  } else if (!strcmp(command, "sandbox")) {
    forbid(SYS_pidfd_open);
    answer(CUDA_SUCCESS, "");
  } else if (!strcmp(command, "reset")) {
    MUST(cuDevicePrimaryCtxReset(device));
    start();
    answer(CUDA_SUCCESS, "");
  } else {
    answer(CUDA_ERROR_INVALID_VALUE, "");
  }
}

int main(int argc, char **argv) {
  char line[512];
  device = argc > 1 ? atoi(argv[1]) : 0;
  start();
  gpu_say("ready");
  while (fgets(line, sizeof line, stdin)) {
    char command[16], argument[256] = "0";
    unsigned slot = 0;
    if (sscanf(line, "%15s %u %255s", command, &slot, argument) < 1 || slot >= SLOTS)
      return 2;
    obey(command, &slots[slot], argument);
  }
  gpu_say("ok");
  return 0;
}
