/* test_sim_managed.c - faults, eviction over two processes, prefetch, advice, capacity, contents, deaths. */
#include <sys/socket.h>

#include "test_sim.h"

static uint64_t process_counter(pid_t pid, enum gs_sim_counter counter) {
  struct gs_sim_process process;
  CHECK_EQ(gs_sim_process_read(NULL, pid, 0, &process), 0);
  return process.counters[counter];
}

static uint64_t resident(pid_t pid) {
  struct gs_sim_process process;
  CHECK_EQ(gs_sim_process_read(NULL, pid, 0, &process), 0);
  return process.resident_bytes;
}

static CUdeviceptr managed(uint64_t bytes) {
  CUdeviceptr at;
  OK(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL));
  return at;
}

static void card_location(CUdeviceptr at, uint64_t bytes, CUmem_advise advice) {
#if CUDA_VERSION >= 13000
  OK(cuMemAdvise(at, bytes, advice, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}));
#else
  OK(cuMemAdvise(at, bytes, advice, 0));
#endif
}

static void prefetch(CUdeviceptr at, uint64_t bytes, bool to_card) {
#if CUDA_VERSION >= 13000
  CUmemLocation to = {.type = to_card ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST};
  OK(cuMemPrefetchAsync(at, bytes, to, 0, NULL));
#else
  OK(cuMemPrefetchAsync(at, bytes, to_card ? 0 : CU_DEVICE_CPU, NULL));
#endif
  OK(cuStreamSynchronize(NULL));
}

static void test_faults(struct gpu *gpu) {
  CUdeviceptr at = managed(64 * MIB);
  size_t free_before, free_after, total;
  OK(cuMemGetInfo(&free_before, &total));
  CHECK_EQ(total, 256 * MIB);
  CHECK_EQ(resident(getpid()), 0);
  OK(fill(gpu, NULL, at, 64 * MIB, 1));
  OK(cuCtxSynchronize());
  CHECK_EQ(process_counter(getpid(), GS_SIM_faults), 32);
  CHECK_EQ(process_counter(getpid(), GS_SIM_first_touch_bytes), 64 * MIB);
  CHECK_EQ(resident(getpid()), 64 * MIB);
  CHECK_EQ(gs_sim_resident_bytes(at, 64 * MIB), 64 * MIB);
  OK(cuMemGetInfo(&free_after, &total));
  CHECK_EQ(free_before - free_after, 64 * MIB);
  prefetch(at, 32 * MIB, false);
  CHECK_EQ(resident(getpid()), 32 * MIB);
  CHECK_EQ(process_counter(getpid(), GS_SIM_prefetched_out_bytes), 32 * MIB);
  prefetch(at, 32 * MIB, true);
  CHECK_EQ(process_counter(getpid(), GS_SIM_prefetched_in_bytes), 32 * MIB);
  CHECK_EQ(mismatches(gpu, at, 64 * MIB, 1), 0);
  CHECK_EQ(process_counter(getpid(), GS_SIM_faults), 32);
  prefetch(at, 64 * MIB, false);
  CHECK_EQ(mismatches(gpu, at, 64 * MIB, 1), 0);
  CHECK_EQ(process_counter(getpid(), GS_SIM_fault_bytes), 64 * MIB);
  OK(cuMemFree(at));
  CHECK_EQ(resident(getpid()), 0);
}

/* More than the card holds: the oldest pages leave, and everything stays right. */
static void test_oversubscription(struct gpu *gpu) {
  CUdeviceptr at = managed(384 * MIB);
  OK(fill(gpu, NULL, at, 384 * MIB, 2));
  OK(cuCtxSynchronize());
  CHECK_EQ(resident(getpid()), 256 * MIB);
  CHECK_EQ(process_counter(getpid(), GS_SIM_evicted_bytes), 128 * MIB);
  CHECK_EQ(gs_sim_resident_bytes(at, 128 * MIB), 0);
  CHECK_EQ(mismatches(gpu, at, 384 * MIB, 2), 0);
  OK(cuMemFree(at));
}

static void test_plain_pins(struct gpu *gpu) {
  CUdeviceptr at = managed(200 * MIB), plain, more;
  OK(fill(gpu, NULL, at, 200 * MIB, 3));
  OK(cuCtxSynchronize());
  OK(cuMemAlloc(&plain, 200 * MIB));
  CHECK_EQ(resident(getpid()), 56 * MIB);
  CHECK_EQ(cuMemAlloc(&more, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(mismatches(gpu, at, 200 * MIB, 3), 0);
  OK(cuMemFree(plain));
  OK(cuMemFree(at));
}

static void test_advice(struct gpu *gpu) {
  CUdeviceptr here = managed(64 * MIB), other = managed(250 * MIB), far = managed(16 * MIB);
  card_location(here, 64 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION);
  OK(fill(gpu, NULL, here, 64 * MIB, 4));
  OK(fill(gpu, NULL, other, 250 * MIB, 5));
  OK(cuCtxSynchronize());
  CHECK_EQ(gs_sim_resident_bytes(here, 64 * MIB), 64 * MIB);
  card_location(far, 16 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY);
  prefetch(far, 16 * MIB, false);
  uint64_t before = process_counter(getpid(), GS_SIM_remote_bytes);
  OK(fill(gpu, NULL, far, 16 * MIB, 6));
  OK(cuCtxSynchronize());
  CHECK_EQ(process_counter(getpid(), GS_SIM_remote_bytes) - before, 16 * MIB);
  CHECK_EQ(gs_sim_resident_bytes(far, 16 * MIB), 0);
  OK(cuMemFree(here));
  OK(cuMemFree(other));
  OK(cuMemFree(far));
}

static void alone(int fd) {
  struct gpu gpu;
  (void)fd;
  gpu_open(&gpu);
  test_faults(&gpu);
  test_oversubscription(&gpu);
  test_plain_pins(&gpu);
  test_advice(&gpu);
  gpu_close(&gpu);
}

/* ---- two processes in turns ---- */

static void partner(int fd) {
  struct gpu gpu;
  gpu_open(&gpu);
  CUdeviceptr at = managed(200 * MIB);
  token_receive(fd);
  OK(fill(&gpu, NULL, at, 200 * MIB, 8));
  OK(cuCtxSynchronize());
  token_send(fd);
  token_receive(fd);
  CHECK_EQ(mismatches(&gpu, at, 200 * MIB, 8), 0);
  token_send(fd);
  token_receive(fd); /* and here it is killed */
}

static void turn(int fd) {
  token_send(fd);
  token_receive(fd);
}

static void with_partner(int fd) {
  struct gpu gpu;
  int ends[2];
  (void)fd;
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  pid_t other = child_start(partner, ends[1]);
  gpu_open(&gpu);
  CUdeviceptr at = managed(200 * MIB);
  OK(fill(&gpu, NULL, at, 200 * MIB, 9));
  OK(cuCtxSynchronize());
  turn(ends[0]);
  CHECK_EQ(resident(getpid()), 56 * MIB);
  CHECK_EQ(resident(other), 200 * MIB);
  CHECK_EQ(process_counter(getpid(), GS_SIM_evicted_bytes), 144 * MIB);
  CHECK_EQ(mismatches(&gpu, at, 200 * MIB, 9), 0);
  turn(ends[0]);
  CHECK_EQ(card_counter(GS_SIM_overlaps), 0);
  CHECK_EQ(resident(getpid()) + resident(other),
           254 * MIB); /* the counter of mismatches needed a plain page */
  CHECK_EQ(kill(other, SIGKILL), 0);
  CHECK(WIFSIGNALED(child_status(other)));
  size_t free_bytes, total;
  OK(cuMemGetInfo(&free_bytes, &total));
  CHECK_EQ(free_bytes + resident(getpid()), total);
  CHECK_EQ(resident(other), 0);
  CHECK_EQ(mismatches(&gpu, at, 200 * MIB, 9), 0);
  gpu_close(&gpu);
}

/* ---- two processes at once ---- */

static void thrash(int fd) {
  struct gpu gpu;
  gpu_open(&gpu);
  CUdeviceptr at = managed(200 * MIB);
  token_receive(fd);
  for (uint64_t round = 0; round < 3; round++) {
    OK(fill(&gpu, NULL, at, 200 * MIB, round));
    CHECK_EQ(mismatches(&gpu, at, 200 * MIB, round), 0);
  }
  gpu_close(&gpu);
}

static void test_at_once(void) {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  pid_t first = child_start(thrash, ends[1]), second = child_start(thrash, ends[1]);
  token_send(ends[0]);
  token_send(ends[0]);
  CHECK_EQ(child_status(first), 0);
  CHECK_EQ(child_status(second), 0);
  CHECK(card_counter(GS_SIM_overlaps) > 0);
  CHECK(card_counter(GS_SIM_evicted_bytes) > 300 * MIB);
  CHECK(process_counter(first, GS_SIM_evicted_bytes) > 0);
}

/* Killed in the middle of its work, holding an engine or the state's lock as it may. */
static void endless(int fd) {
  struct gpu gpu;
  gpu_open(&gpu);
  CUdeviceptr at = managed(300 * MIB);
  for (uint64_t round = 0;; round++) {
    OK(fill(&gpu, NULL, at, 300 * MIB, round));
    OK(cuCtxSynchronize());
    if (round == 0)
      token_send(fd);
  }
}

static void test_killed_at_work(void) {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  for (int i = 0; i < 5; i++) {
    pid_t worker = child_start(endless, ends[1]);
    token_receive(ends[0]);
    CHECK_EQ(kill(worker, SIGKILL), 0);
    child_status(worker);
    CHECK_EQ(resident(worker), 0);
  }
  CHECK_EQ(child_status(child_start(alone, -1)), 0);
}

static void run(void (*test)(int fd)) { CHECK_EQ(child_status(child_start(test, -1)), 0); }

/* The parent never initialises the driver, so that its children may. */
int main(void) {
  use_card("small");
  run(alone);
  run(with_partner);
  test_at_once();
  test_killed_at_work();
  return 0;
}
