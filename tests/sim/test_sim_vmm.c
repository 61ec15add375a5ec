/*
 * test_sim_vmm.c - memory mapped by hand: runs of pieces, what spans them, its protection, what it takes of
 * the card and of the host, and host memory registered for copies to and from it.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "test_sim.h"

enum { PIECES = 6 };
#define PIECE_BYTES (4 * MIB)
#define RUN_BYTES (PIECES * PIECE_BYTES)

static struct gpu gpu;

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc open_to_card = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                             .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

/* ---- pieces ---- */

/* Nobody keeps the handle: the mapping keeps the memory. */
static void piece_map(CUdeviceptr at, uint64_t bytes) {
  CUmemGenericAllocationHandle handle;
  OK(cuMemCreate(&handle, bytes, &on_card, 0));
  OK(cuMemMap(at, bytes, 0, handle, 0));
  OK(cuMemRelease(handle));
}

static CUdeviceptr piece_at(CUdeviceptr run, int piece) { return run + (uint64_t)piece * PIECE_BYTES; }

/* A reservation full of pieces, opened by one call. */
static CUdeviceptr run_open(void) {
  CUdeviceptr run;
  OK(cuMemAddressReserve(&run, RUN_BYTES, 0, 0, 0));
  for (int i = 0; i < PIECES; i++)
    piece_map(piece_at(run, i), PIECE_BYTES);
  OK(cuMemSetAccess(run, RUN_BYTES, &open_to_card, 1));
  return run;
}

static void run_close(CUdeviceptr run) {
  OK(cuMemUnmap(run, RUN_BYTES));
  OK(cuMemAddressFree(run, RUN_BYTES));
}

static uint64_t free_bytes(void) {
  size_t available, total;
  OK(cuMemGetInfo(&available, &total));
  return available;
}

/* Done, not only queued: what is unmapped next must not be in use. */
static void fill_now(CUdeviceptr at, uint64_t bytes, uint64_t seed) {
  OK(fill(&gpu, NULL, at, bytes, seed));
  OK(cuCtxSynchronize());
}

/* ---- what spans pieces ---- */

static void test_mapping_keeps_memory(void) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  uint64_t before = free_bytes();
  OK(cuMemAddressReserve(&at, PIECE_BYTES, 0, 0, 0));
  OK(cuMemCreate(&handle, PIECE_BYTES, &on_card, 0));
  OK(cuMemMap(at, PIECE_BYTES, 0, handle, 0));
  OK(cuMemSetAccess(at, PIECE_BYTES, &open_to_card, 1));
  CHECK_EQ(before - free_bytes(), PIECE_BYTES);
  fill_now(at, PIECE_BYTES, 3);
  OK(cuMemUnmap(at, PIECE_BYTES));
  OK(cuMemMap(at, PIECE_BYTES, 0, handle, 0)); /* the bytes are the handle's */
  OK(cuMemSetAccess(at, PIECE_BYTES, &open_to_card, 1));
  OK(cuMemRelease(handle));
  CHECK_EQ(mismatches(&gpu, at, PIECE_BYTES, 3), 0);
  OK(cuMemUnmap(at, PIECE_BYTES));
  CHECK_EQ(free_bytes(), before);
  OK(cuMemAddressFree(at, PIECE_BYTES));
}

static void test_kernels_and_copies_span_pieces(void) {
  CUdeviceptr run = run_open(), plain, middle = piece_at(run, 1) + 100;
  uint64_t bytes = 2 * PIECE_BYTES + 1000;
  char *host = malloc(bytes), *back = malloc(bytes);
  OK(fill(&gpu, NULL, run, RUN_BYTES, 5));
  CHECK_EQ(mismatches(&gpu, run, RUN_BYTES, 5), 0);
  for (uint64_t i = 0; i < bytes; i++)
    host[i] = (char)(i * 31);
  OK(cuMemcpyHtoD(middle, host, bytes));
  OK(cuMemAlloc(&plain, bytes));
  OK(cuMemcpyDtoDAsync(plain, middle, bytes, NULL));
  OK(cuMemcpyDtoH(back, plain, bytes));
  CHECK(memcmp(host, back, bytes) == 0);
  OK(cuMemsetD8(middle, 7, bytes));
  OK(cuMemcpyDtoH(back, middle, bytes));
  for (uint64_t i = 0; i < bytes; i++)
    CHECK_EQ(back[i], 7);
  OK(cuMemFree(plain));
  run_close(run);
  free(host);
  free(back);
}

static void test_planes_span_pieces(void) {
  enum { ROWS = 3000, PITCH = 4096, WIDTH = 1000 };
  CUdeviceptr run = run_open();
  unsigned char *back = malloc((size_t)ROWS * WIDTH);
  CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = run,
                       .srcPitch = PITCH,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = back,
                       .dstPitch = WIDTH,
                       .WidthInBytes = WIDTH,
                       .Height = ROWS};
  OK(cuMemsetD2D8(run, PITCH, 9, WIDTH, ROWS));
  OK(cuMemcpy2D(&out));
  for (size_t i = 0; i < (size_t)ROWS * WIDTH; i++)
    CHECK_EQ(back[i], 9);
  run_close(run);
  free(back);
}

/* The middle of a run leaves in one call; what is around it stays, and it comes back in one call. */
static void test_run_leaves_and_comes_back(void) {
  CUdeviceptr run = run_open(), leaving = piece_at(run, 2);
  uint64_t bytes = 3 * PIECE_BYTES, before = free_bytes();
  char *away = malloc(bytes);
  OK(fill(&gpu, NULL, run, RUN_BYTES, 6));
  OK(cuMemcpyDtoH(away, leaving, bytes));
  OK(cuMemUnmap(leaving, bytes));
  CHECK_EQ(free_bytes() - before, bytes);
  OK(add(&gpu, NULL, run, 2 * PIECE_BYTES, 0));
  for (int i = 2; i < 5; i++)
    piece_map(piece_at(run, i), PIECE_BYTES);
  OK(cuMemSetAccess(leaving, bytes, &open_to_card, 1));
  CHECK(mismatches(&gpu, run, RUN_BYTES, 6) >= bytes / 8 - 3); /* fresh memory */
  OK(cuMemcpyHtoD(leaving, away, bytes));
  CHECK_EQ(mismatches(&gpu, run, RUN_BYTES, 6), 0);
  run_close(run);
  free(away);
}

static void test_refusals(void) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr run = run_open(), hole = piece_at(run, 3);
  OK(cuMemCreate(&handle, PIECE_BYTES, &on_card, 0));
  CHECK_EQ(cuMemMap(run, PIECE_BYTES, 0, handle, 0), CUDA_ERROR_INVALID_VALUE); /* mapped already */
  CHECK_EQ(cuMemUnmap(run, PIECE_BYTES / 2), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemUnmap(run + PIECE_BYTES / 2, PIECE_BYTES), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemAddressFree(run, RUN_BYTES), CUDA_ERROR_INVALID_VALUE); /* mapped still */
  OK(cuMemUnmap(hole, PIECE_BYTES));
  OK(cuMemUnmap(hole, PIECE_BYTES)); /* nothing is there any more: as the real driver has it */
  CHECK_EQ(cuMemSetAccess(run, RUN_BYTES, &open_to_card, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemMap(hole, PIECE_BYTES + 2 * MIB, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(cuMemMap(hole, PIECE_BYTES - 2 * MIB, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(cuMemMap(hole, 2 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemMap(hole, PIECE_BYTES, 0, handle, 0));
  OK(cuMemRelease(handle));
  CHECK_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  run_close(run);
}

/* ---- protection: what touches memory that is unmapped, closed, or freed must not survive it ---- */

enum wild {
  WILD_UNMAPPED,
  WILD_NO_ACCESS,
  WILD_FREED,
  WILD_ACROSS_HOLE,
  WILD_COPY_IN,
  WILD_COPY_OUT,
  WILD_COPY_ACROSS_HOLE,
  WILD_SET,
  WILD_FROM_PEER,
  WILD_COUNT
};

static CUdeviceptr wild_memory(int which) {
  CUdeviceptr at;
  if (which == WILD_FREED) {
    OK(cuMemAlloc(&at, PIECE_BYTES));
    OK(cuMemFree(at));
    return at;
  }
  at = run_open();
  if (which == WILD_FROM_PEER)
    return at;
  OK(cuMemUnmap(piece_at(at, 1), PIECE_BYTES));
  if (which == WILD_NO_ACCESS)
    piece_map(piece_at(at, 1), PIECE_BYTES);
  return which == WILD_ACROSS_HOLE || which == WILD_COPY_ACROSS_HOLE ? at : piece_at(at, 1);
}

enum { WILD_FAULT = 7 };

static void wild_access(int which) {
  static char bytes[2 * PIECE_BYTES];
  struct gpu peer;
  gpu_open(&gpu);
  CUdeviceptr at = wild_memory(which);
  signal(SIGSEGV, SIG_DFL); /* sanitizers have their own idea of it */
  if (which == WILD_COPY_IN) {
    cuMemcpyHtoD(at, bytes, 1);
  } else if (which == WILD_COPY_OUT) {
    cuMemcpyDtoH(bytes, at, 1);
  } else if (which == WILD_COPY_ACROSS_HOLE) {
    cuMemcpyDtoH(bytes, at, sizeof(bytes));
  } else if (which == WILD_SET) {
    cuMemsetD8(at, 1, 100);
  } else if (which == WILD_FROM_PEER) {
    gpu_open_on(&peer, 1);
    fill(&peer, NULL, at, 8, 1);
  } else {
    fill(&gpu, NULL, at, 2 * PIECE_BYTES, 1);
  }
  if (cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS)
    exit(WILD_FAULT);
}

/* A kernel has a fault; a copy crashes. */
static void test_wild_access(void) {
  for (int which = 0; which < WILD_COUNT; which++) {
    bool copies = which == WILD_COPY_IN || which == WILD_COPY_OUT || which == WILD_COPY_ACROSS_HOLE ||
                  which == WILD_SET;
    int status = child_status(child_start(wild_access, which));
    if (copies)
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    else
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == WILD_FAULT);
  }
}

/* As seen on driver 580. */
static void faulted(int ends) {
  static char card[64];
  snprintf(card, sizeof card, "small,fault_ends=%d", ends);
  use_card(card);
  gpu_open(&gpu);
  CUcontext context;
  CUdeviceptr memory;
  OK(cuMemAlloc(&memory, 4096));
  fill(&gpu, NULL, 4096, 8, 1);
  CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_EQ(cuMemFree(memory), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuCtxGetCurrent(&context));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuDevicePrimaryCtxReset(0));
  CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), ends ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_faults(void) {
  for (int ends = 0; ends < 2; ends++)
    CHECK_EQ(child_status(child_start(faulted, ends)), 0);
}

static void test_peers(void) {
  struct gpu peer;
  unsigned long long flags = 1;
  const CUmemLocation other = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
  const CUmemAccessDesc to_peer = {.location = other, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr run = run_open();
  fill_now(run, RUN_BYTES, 7);
  OK(cuMemGetAccess(&flags, &other, run));
  CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  OK(cuMemSetAccess(run, RUN_BYTES, &to_peer, 1));
  OK(cuMemGetAccess(&flags, &other, run));
  CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  gpu_open_on(&peer, 1);
  CHECK_EQ(mismatches(&peer, run, RUN_BYTES, 7), 0);
  OK(cuModuleUnload(peer.module));
  OK(cuDevicePrimaryCtxRelease(1));
  OK(cuCtxSetCurrent(gpu.context));
  run_close(run);
}

/* ---- room ---- */

static void take_most(int fd) {
  token_receive(fd);
  gpu_open(&gpu);
  CUdeviceptr at;
  OK(cuMemAddressReserve(&at, 160 * MIB, 0, 0, 0));
  for (int i = 0; i < 5; i++)
    piece_map(at + (uint64_t)i * 32 * MIB, 32 * MIB);
  token_send(fd);
  pause();
}

/* The card is one for all processes; who dies, however, leaves nothing behind. */
static void test_card_is_full(pid_t other, int fd) {
  CUmemGenericAllocationHandle handle;
  uint64_t before = free_bytes();
  token_send(fd);
  token_receive(fd);
  CHECK_EQ(before - free_bytes(), 160 * MIB);
  CHECK_EQ(cuMemCreate(&handle, 128 * MIB, &on_card, 0), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(before - free_bytes(), 160 * MIB);
  kill(other, SIGKILL);
  child_status(other);
  OK(cuMemCreate(&handle, 128 * MIB, &on_card, 0));
  OK(cuMemRelease(handle));
  CHECK_EQ(free_bytes(), before);
}

/* Of shared memory without a name, however often it is mapped. */
static uint64_t shared_bytes(void) {
  char line[512];
  unsigned long inodes[256], inode, from, to;
  unsigned count = 0;
  uint64_t bytes = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof(line), maps)) {
    if (!strstr(line, "/dev/zero (deleted)"))
      continue;
    CHECK_EQ(sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode), 3);
    unsigned i = 0;
    while (i < count && inodes[i] != inode)
      i++;
    if (i < count)
      continue;
    CHECK(count < sizeof(inodes) / sizeof(*inodes));
    inodes[count++] = inode;
    bytes += to - from;
  }
  fclose(maps);
  return bytes;
}

/* Memory of the host that physical memory had serves the next one of its size. There is not much of it. */
static void test_released_bytes_are_used_again(void) {
  CUdeviceptr run = run_open();
  CUmemGenericAllocationHandle handle;
  uint64_t bytes = shared_bytes();
  CHECK(bytes >= RUN_BYTES);
  OK(cuMemUnmap(piece_at(run, 1), PIECE_BYTES));
  CHECK_EQ(shared_bytes(), bytes);
  piece_map(piece_at(run, 1), PIECE_BYTES);
  CHECK_EQ(shared_bytes(), bytes);
  run_close(run);
  for (size_t mib = 2; mib <= 40; mib += 2) {
    OK(cuMemCreate(&handle, mib * MIB, &on_card, 0));
    OK(cuMemRelease(handle));
  }
  CHECK(shared_bytes() <= 256 * MIB);
}

/* ---- registered host memory ---- */

static uint64_t copy_ns(void *host, CUdeviceptr at, uint64_t bytes) {
  uint64_t started = clock_now_ns();
  OK(cuMemcpyDtoH(host, at, bytes));
  return clock_now_ns() - started;
}

/* 8 MiB take 400 ms where the host's memory is not pinned. */
static void test_registered_memory(void) {
  CUdeviceptr run = run_open();
  char *slab = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned flags = 0;
  CHECK(slab != MAP_FAILED);
  CHECK(copy_ns(slab, run, 8 * MIB) > 300 * NS_PER_MS);
  OK(cuMemHostRegister(slab, 16 * MIB, CU_MEMHOSTREGISTER_PORTABLE));
  CHECK_EQ(cuMemHostRegister(slab + MIB, MIB, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK(copy_ns(slab + 5 * MIB, run, 8 * MIB) < 300 * NS_PER_MS);
  OK(cuMemHostGetFlags(&flags, slab + MIB));
  CHECK_EQ(flags, CU_MEMHOSTREGISTER_PORTABLE);
  CHECK_EQ(cuMemHostUnregister(slab + MIB), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuMemHostUnregister(slab));
  CHECK_EQ(cuMemHostUnregister(slab), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(copy_ns(slab, run, 8 * MIB) > 300 * NS_PER_MS);
  munmap(slab, 16 * MIB);
  run_close(run);
}

/* ---- what the driver says of addresses ---- */

static uint64_t asked(CUdeviceptr at, CUpointer_attribute attribute) {
  uint64_t value = 0;
  OK(cuPointerGetAttribute(&value, attribute, at));
  return value;
}

/* As measured on driver 580: the range is the reservation, the mapping and the rest are the piece's. */
static void test_pointers(void) {
  CUdeviceptr run = run_open(), base, second = piece_at(run, 1);
  size_t bytes;
  const unsigned one = 1;
  CHECK_EQ(asked(second + 100, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
  CHECK_EQ(asked(second + 100, CU_POINTER_ATTRIBUTE_CONTEXT), 0);
  CHECK_EQ(asked(second + 100, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), run);
  CHECK_EQ(asked(second + 100, CU_POINTER_ATTRIBUTE_RANGE_SIZE), RUN_BYTES);
  CHECK_EQ(asked(second + 100, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR), second);
  CHECK_EQ(asked(second + 100, CU_POINTER_ATTRIBUTE_MAPPING_SIZE), PIECE_BYTES);
  CHECK(asked(second, CU_POINTER_ATTRIBUTE_BUFFER_ID) != asked(run, CU_POINTER_ATTRIBUTE_BUFFER_ID));
  CHECK_EQ(asked(run, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 0);
  CHECK_EQ(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, run), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemGetAddressRange(&base, &bytes, second + 100));
  CHECK_EQ(base, second);
  CHECK_EQ(bytes, PIECE_BYTES);
  run_close(run);
}

static void test_pointers_to_nothing(void) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr run = run_open(), base;
  size_t bytes;
  uint64_t value = 0;
  OK(cuMemUnmap(run, PIECE_BYTES));
  for (int attribute = 1; attribute <= CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE; attribute++)
    CHECK_EQ(cuPointerGetAttribute(&value, (CUpointer_attribute)attribute, run + 100),
             CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemGetAddressRange(&base, &bytes, run + 100), CUDA_ERROR_NOT_FOUND);
  CHECK_EQ(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)run), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemFree(run), CUDA_ERROR_INVALID_VALUE);
  piece_map(run, PIECE_BYTES);
  run_close(run);
}

/* ---- graphs ---- */

static CUDA_MEMCPY3D line(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = from,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = to,
                         .WidthInBytes = bytes,
                         .Height = 1,
                         .Depth = 1};
}

/* Nodes are made of what is there; once made, they keep their addresses whatever happens behind them. */
static void test_graphs(void) {
  CUdeviceptr run = run_open(), target = piece_at(run, 3);
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node, refused;
  CUDA_MEMCPY3D copy = line(target, run, PIECE_BYTES);
  CUDA_MEMSET_NODE_PARAMS set = {.dst = run, .value = 1, .elementSize = 1, .width = 100, .height = 1};
  fill_now(run, RUN_BYTES, 9);
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, gpu.context));
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuMemUnmap(run, PIECE_BYTES));
  CHECK_EQ(cuGraphAddMemcpyNode(&refused, graph, NULL, 0, &copy, gpu.context), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuGraphAddMemsetNode(&refused, graph, NULL, 0, &set, gpu.context), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, gpu.context), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuGraphMemcpyNodeSetParams(node, &copy), CUDA_ERROR_INVALID_VALUE);
  piece_map(run, PIECE_BYTES);
  OK(cuMemSetAccess(run, PIECE_BYTES, &open_to_card, 1));
  OK(fill(&gpu, NULL, run, PIECE_BYTES, 10));
  OK(cuGraphLaunch(exec, NULL));
  CHECK_EQ(mismatches(&gpu, target, PIECE_BYTES, 10), 0);
  copy = line(target, piece_at(run, 1), PIECE_BYTES);
  OK(fill(&gpu, NULL, piece_at(run, 1), PIECE_BYTES, 11));
  OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, gpu.context));
  OK(cuGraphLaunch(exec, NULL));
  CHECK_EQ(mismatches(&gpu, target, PIECE_BYTES, 11), 0);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  run_close(run);
}

static void test_captures(void) {
  CUdeviceptr run = run_open();
  CUstream stream;
  CUgraph graph;
  size_t nodes = 0;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemUnmap(run, PIECE_BYTES));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_EQ(cuMemcpyDtoDAsync(piece_at(run, 1), run, 100, stream), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemsetD8Async(run, 1, 100, stream));
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphGetNodes(graph, NULL, &nodes));
  CHECK_EQ(nodes, 1);
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy(stream));
  piece_map(run, PIECE_BYTES);
  run_close(run);
}

int main(void) {
  int ends[2];
  use_card("small,gpus=2,copy_out_pageable_gbps=0.02");
  test_wild_access();
  test_faults();
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  pid_t other = child_start(take_most, ends[1]);
  close(ends[1]);
  gpu_open(&gpu);
  test_mapping_keeps_memory();
  test_kernels_and_copies_span_pieces();
  test_planes_span_pieces();
  test_run_leaves_and_comes_back();
  test_refusals();
  test_peers();
  test_card_is_full(other, ends[0]);
  test_released_bytes_are_used_again();
  test_registered_memory();
  test_pointers();
  test_pointers_to_nothing();
  test_graphs();
  test_captures();
  gpu_close(&gpu);
  return 0;
}
