/*
 * ranker.c - one of the two ranks of a distributed program. Its GPU is the one of its rank's number.
 *
 * usage: ranker RANK MEETING BYTES ROUNDS STREAMS SEED [visiting | growing | freeing]
 *
 * Each iteration has, in each stream, some kernels and then a collective, which ends once the other rank has
 * come to the same one. Its two sides are one call, as the launch of a collective's kernel is. Of two streams
 * the ranks use another one first. Iterations are queued ahead of the GPU, and the host tarries here and
 * there, by SEED, so one rank may have launched what the other has not. MEETING is the file through which
 * they meet.
 *
 * Says "filled" and waits for a line; with "visiting" it then makes a context on the other GPU, which it does
 * not use; with "growing" it has a quarter of BYTES at first, and allocates the rest while it works; with
 * "freeing" it allocates and frees some memory in each iteration, while a collective is under way. Each word
 * is added to once in each of the ROUNDS; in the end all are checked. Then "ok".
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/splitmix.h"
#include "gpu.h"

#define STREAMS_MAX 2
#define SLICES 16 /* iterations of a round: each adds to one slice of the memory */
#define AHEAD 3   /* iterations in the queue */
#define SPINS 3
#define SPIN_NS NS_PER_MS
#define MEETING_BYTES 4096
#define PIECES 3 /* of what is allocated later: one in each of so many iterations, from one on */
#define FIRST_PIECE 8
#define FREED_BYTES (UINT64_C(3) << 20) /* the driver frees it, once all work is done */

/* One stream, and what it works on. */
struct lane {
  CUstream stream;
  CUevent done[AHEAD];
  CUdeviceptr at;
  CUdeviceptr mine, other; /* how far the ranks have come: 32 bits each */
};

static struct gpu gpu;
static struct lane lanes[STREAMS_MAX];
static int rank, lane_count;
static uint64_t lane_words, random_state;
static CUdeviceptr pieces[PIECES]; /* 0: not yet */
static uint64_t piece_words;       /* 0: it does not grow */

static uint64_t seed_of(int lane) { return (uint64_t)(10 * rank + lane); }

/* Of each lane the progress of both ranks. */
static CUdeviceptr open_meeting(const char *path) {
  CUdeviceptr device;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, MEETING_BYTES) != 0)
    exit(4);
  void *shared = mmap(NULL, MEETING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == MAP_FAILED)
    exit(4);
  close(fd);
  MUST(cuMemHostRegister(shared, MEETING_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
  MUST(cuMemHostGetDevicePointer(&device, shared, 0));
  return device;
}

static void make_lane(int i, CUdeviceptr meeting) {
  struct lane *lane = &lanes[i];
  lane->stream = gpu_stream();
  lane->at = gpu_alloc(lane_words);
  lane->mine = meeting + sizeof(uint32_t) * (unsigned)(2 * i + rank);
  lane->other = meeting + sizeof(uint32_t) * (unsigned)(2 * i + 1 - rank);
  for (int j = 0; j < AHEAD; j++)
    MUST(cuEventCreate(&lane->done[j], CU_EVENT_DISABLE_TIMING));
  gpu_fill(&gpu, lane->stream, lane->at, lane_words, seed_of(i));
  MUST(cuStreamSynchronize(lane->stream));
}

static void visit_other(void) {
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, 1 - rank));
}

/* ---- iterations ---- */

static void tarry(void) {
  uint64_t number = splitmix_next(&random_state);
  if (number % 4 == 0)
    nanosleep(&(struct timespec){.tv_nsec = (long)(number / 4 % (5 * NS_PER_MS))}, NULL);
}

static void submit_work(const struct lane *lane, uint32_t iteration) {
  uint64_t words = lane_words / SLICES;
  for (int i = 0; i < SPINS; i++)
    gpu_spin(&gpu, lane->stream, SPIN_NS);
  gpu_add(&gpu, lane->stream, lane->at + iteration % SLICES * words * sizeof(uint64_t), words, 1);
}

static void submit_collective(const struct lane *lane, uint32_t iteration) {
  CUstreamBatchMemOpParams sides[2] = {0};
  sides[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  sides[0].writeValue.address = lane->mine;
  sides[0].writeValue.value = iteration;
  sides[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  sides[1].waitValue.address = lane->other;
  sides[1].waitValue.value = iteration;
  sides[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  MUST(cuStreamBatchMemOp(lane->stream, 2, sides, 0));
}

static void submit(const struct lane *lane, uint32_t iteration) {
  CUevent done = lane->done[iteration % AHEAD];
  MUST(cuEventSynchronize(done));
  submit_work(lane, iteration);
  tarry();
  submit_collective(lane, iteration);
  MUST(cuEventRecord(done, lane->stream));
}

static void grow(uint32_t iteration) {
  uint32_t piece = iteration - FIRST_PIECE;
  if (!piece_words || iteration < FIRST_PIECE || piece >= PIECES)
    return;
  pieces[piece] = gpu_alloc(piece_words);
  gpu_fill(&gpu, lanes[0].stream, pieces[piece], piece_words, seed_of(STREAMS_MAX + (int)piece));
}

static void check_pieces(void) {
  for (int i = 0; i < PIECES && piece_words; i++)
    gpu_verify(pieces[i], piece_words, seed_of(STREAMS_MAX + i), 0);
}

static bool frees;

static void iterate(uint32_t iteration) {
  grow(iteration);
  if (frees)
    MUST(cuMemFree(gpu_alloc(FREED_BYTES / sizeof(uint64_t))));
  for (int i = 0; i < lane_count; i++)
    submit(&lanes[rank == 0 ? i : lane_count - 1 - i], iteration);
}

int main(int argc, char **argv) {
  bool visits = argc == 8 && strcmp(argv[7], "visiting") == 0;
  bool grows = argc == 8 && strcmp(argv[7], "growing") == 0;
  frees = argc == 8 && strcmp(argv[7], "freeing") == 0;
  if (argc != 7 && !visits && !grows && !frees)
    return 2;
  rank = atoi(argv[1]);
  lane_count = atoi(argv[5]);
  if ((rank != 0 && rank != 1) || lane_count < 1 || lane_count > STREAMS_MAX)
    return 2;
  uint64_t rounds = strtoull(argv[4], NULL, 0);
  uint64_t words = strtoull(argv[3], NULL, 0) / sizeof(uint64_t);
  piece_words = grows ? words / (PIECES + 1) : 0;
  lane_words = (words - PIECES * piece_words) / (unsigned)lane_count;
  random_state = strtoull(argv[6], NULL, 0) + (unsigned)rank;
  gpu_start(&gpu, rank);
  CUdeviceptr meeting = open_meeting(argv[2]);
  for (int i = 0; i < lane_count; i++)
    make_lane(i, meeting);
  gpu_say("filled");
  gpu_await_line();
  if (visits)
    visit_other();
  for (uint32_t i = 1; i <= rounds * SLICES; i++)
    iterate(i);
  MUST(cuCtxSynchronize());
  for (int i = 0; i < lane_count; i++)
    gpu_verify(lanes[i].at, lane_words, seed_of(i), rounds);
  check_pieces();
  gpu_say("ok");
  return 0;
}
