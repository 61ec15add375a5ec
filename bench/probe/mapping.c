/* mapping.c - what keeps cuMemSetAccess waiting: one process copies out in some way while another one
 * restores pieces (create, map, set access, copy in). */
#include "pieces.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char copy_text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 units) {\n"
    "  .reg .u64 %p<9>; .reg .u32 %r<8>; .reg .pred %q;\n"
    "  ld.param.u64 %p0, [to]; ld.param.u64 %p1, [from]; ld.param.u64 %p2, [units];\n"
    "  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
    "  mul.wide.u32 %p3, %r0, %r1; cvt.u64.u32 %p4, %r2; add.u64 %p3, %p3, %p4;\n"
    "  mul.wide.u32 %p4, %r3, %r1;\n"
    "again:\n"
    "  setp.ge.u64 %q, %p3, %p2; @%q bra done;\n"
    "  shl.b64 %p5, %p3, 4; add.u64 %p6, %p1, %p5; add.u64 %p7, %p0, %p5;\n"
    "  ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%p6]; st.global.v4.u32 [%p7], {%r4, %r5, %r6, %r7};\n"
    "  add.u64 %p3, %p3, %p4; bra again;\n"
    "done: ret; }\n";

/* How the one process copies out. */
struct way {
  const char *name;
  enum { NOTHING, PARTS, COPY_2D, COPY_BATCH, KERNEL } kind;
  size_t part_mib; /* of PARTS: the pieces, each copied in so many */
  bool waits;      /* for each part's end */
  bool alternates; /* two streams in turn */
  bool high;       /* stream priority */
  unsigned blocks; /* of a kernel */
};
static const struct way ways[] = {
    {"nothing", .kind = NOTHING},
    {"DtoH 32 MiB", .kind = PARTS, .part_mib = 32},
    {"DtoH 2 MiB", .kind = PARTS, .part_mib = 2},
    {"DtoH, high priority", .kind = PARTS, .part_mib = 32, .high = true},
    {"2D DtoH", .kind = COPY_2D},
    {"batch", .kind = COPY_BATCH},
    {"kernel, 16 blocks", .kind = KERNEL, .blocks = 16},
    {"kernel, 64 blocks", .kind = KERNEL, .blocks = 64},
    {"kernel, 132 blocks", .kind = KERNEL, .blocks = 132},
    {"32 MiB, waits for each", .kind = PARTS, .part_mib = 32, .waits = true},
    {"16 MiB, waits for each", .kind = PARTS, .part_mib = 16, .waits = true},
    {"8 MiB, waits for each", .kind = PARTS, .part_mib = 8, .waits = true},
    {"32 MiB, two streams in turn", .kind = PARTS, .part_mib = 32, .alternates = true},
    {"16 MiB, two streams in turn", .kind = PARTS, .part_mib = 16, .alternates = true},
    {"8 MiB, two streams in turn", .kind = PARTS, .part_mib = 8, .alternates = true},
};
enum { PIECE_MIB = 32, WINDOW = 4 };

struct shared {
  _Atomic int go, stop, ready;
  double gb_per_s;
};

struct out {
  struct probe p;
  CUstream stream, other;
  CUevent turn;
  CUfunction copy;
  CUdeviceptr card;
  char *host;
  size_t bytes;
};

/* Between waiting or alternating parts the copy engine has nothing to do: for as long as it takes this thread
 * to see the end, or the card to go from one stream to another. */
static CUresult copy_parts(struct out *o, const struct way *way, size_t offset) {
  size_t part = way->part_mib * MIB;
  CUresult result = CUDA_SUCCESS;
  for (size_t at = offset; at < offset + PIECE_MIB * MIB && !result; at += part) {
    result = cuMemcpyDtoHAsync(o->host + at, o->card + at, part, o->stream);
    if (way->waits)
      cuStreamSynchronize(o->stream);
    if (way->alternates) {
      CUstream next = o->other;
      cuEventRecord(o->turn, o->stream);
      cuStreamWaitEvent(next, o->turn, 0);
      o->other = o->stream;
      o->stream = next;
    }
  }
  return result;
}

static CUresult copy_out(struct out *o, const struct way *way, size_t offset) {
  size_t size = PIECE_MIB * MIB, first = 0;
  CUdeviceptr from = o->card + offset, to = (CUdeviceptr)(uintptr_t)(o->host + offset);
  uint64_t units = size / 16;
  void *args[] = {&to, &from, &units};
  CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = from,
                       .srcPitch = 1 << 20,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = o->host + offset,
                       .dstPitch = 1 << 20,
                       .WidthInBytes = (1 << 20) - 64,
                       .Height = PIECE_MIB};
  CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                            .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE};
  switch (way->kind) {
  case COPY_2D:
    return cuMemcpy2DAsync(&box, o->stream);
  case COPY_BATCH:
    return cuMemcpyBatchAsync(&to, &from, &size, 1, &how, &first, 1, o->stream);
  case KERNEL:
    return cuLaunchKernel(o->copy, way->blocks, 1, 1, 512, 1, 1, 0, o->stream, args, NULL);
  default:
    return copy_parts(o, way, offset);
  }
}

static void out_run(struct shared *shared, const struct way *way) {
  struct out o = {.bytes = 1 * GIB};
  CUmodule module;
  int least = 0, greatest = 0;
  CUevent events[WINDOW];
  if (!probe_open(&o.p) || TRY(cuModuleLoadData(&module, copy_text)) ||
      TRY(cuModuleGetFunction(&o.copy, module, "copy")) || TRY(cuMemAlloc(&o.card, o.bytes)))
    return;
  cuCtxGetStreamPriorityRange(&least, &greatest);
  cuStreamCreateWithPriority(&o.stream, CU_STREAM_NON_BLOCKING, way->high ? greatest : least);
  cuStreamCreate(&o.other, CU_STREAM_NON_BLOCKING);
  cuEventCreate(&o.turn, CU_EVENT_DISABLE_TIMING);
  o.host = slab_map(o.bytes, 4);
  if (!o.host || TRY(cuMemHostRegister(o.host, o.bytes, CU_MEMHOSTREGISTER_PORTABLE)))
    return;
  for (int i = 0; i < WINDOW; i++)
    cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING);
  shared->ready = 1;
  while (!shared->go)
    usleep(100);
  uint64_t start = clock_now_ns();
  size_t count = 0;
  for (; !shared->stop && way->kind != NOTHING; count++) {
    if (count >= WINDOW)
      cuEventSynchronize(events[count % WINDOW]);
    if (copy_out(&o, way, count * PIECE_MIB * MIB % o.bytes))
      break;
    cuEventRecord(events[count % WINDOW], o.stream);
  }
  cuStreamSynchronize(o.stream);
  shared->gb_per_s = gb_per_s(count * PIECE_MIB * MIB, clock_now_ns() - start);
}

/* Setting access to a piece, in us. */
static double accesses(struct pieces *s) {
  uint64_t sum = 0;
  for (size_t i = 0; i < s->count; i++) {
    piece_create(s, i);
    piece_map(s, i);
    uint64_t start = clock_now_ns();
    piece_access(s, i, 1);
    sum += clock_now_ns() - start;
  }
  return (double)sum / 1e3 / (double)s->count;
}

/* How a restore goes: what of it has been done beforehand. */
enum how { AS_IS, RESTED, CREATED, MAPPED, READY, TWO_STREAMS, HOWS };
static const char *const how_names[HOWS] = {"as is",         "after a rest",      "created before",
                                            "mapped before", "accessible before", "two streams"};

static double restore(const struct probe *p, struct pieces *s, char *host, enum how how) {
  CUevent events[WINDOW];
  CUstream streams[2] = {p->stream, p->stream};
  for (int i = 0; i < WINDOW; i++)
    cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING);
  if (how == TWO_STREAMS)
    cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING);
  for (size_t i = 0; i < s->count && how >= CREATED && how <= READY; i++) {
    piece_create(s, i);
    if (how >= MAPPED)
      piece_map(s, i);
    if (how >= READY)
      piece_access(s, i, 1);
  }
  if (how >= RESTED && how <= READY)
    usleep(300000);
  uint64_t start = clock_now_ns();
  for (size_t i = 0; i < s->count; i++) {
    if (i >= WINDOW)
      cuEventSynchronize(events[i % WINDOW]);
    if (how < CREATED || how == TWO_STREAMS)
      piece_create(s, i);
    if (how < MAPPED || how == TWO_STREAMS)
      piece_map(s, i);
    if (how != READY)
      piece_access(s, i, 1);
    cuMemcpyHtoDAsync(piece_at(s, i), host + i * s->size % (1 * GIB), s->size, streams[i % 2]);
    cuEventRecord(events[i % WINDOW], streams[i % 2]);
  }
  cuStreamSynchronize(streams[0]);
  cuStreamSynchronize(streams[1]);
  return gb_per_s(s->count * s->size, clock_now_ns() - start);
}

static void ways_of_restoring(struct probe *p, size_t size, char *host) {
  for (int how = 0; how < HOWS; how++) {
    struct pieces s = {0};
    if (pieces_reserve(&s, p, size, 4 * GIB) == CUDA_SUCCESS)
      printf(" %s %.1f,", how_names[how], restore(p, &s, host, (enum how)how));
    pieces_drop(&s);
  }
}

static void way_print(const struct way *way) {
  struct shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  static const size_t sizes[] = {32 * MIB, 64 * MIB};
  pid_t pid = child_fork();
  if (pid == 0) {
    out_run(shared, way);
    shared->ready = 1;
    _exit(0);
  }
  struct probe p = {0};
  char *host = slab_map(1 * GIB, 4);
  if (!probe_open(&p) || TRY(cuMemHostRegister(host, 1 * GIB, CU_MEMHOSTREGISTER_PORTABLE)))
    return;
  while (!shared->ready)
    usleep(100);
  shared->go = 1;
  usleep(50000);
  struct pieces s = {0};
  if (pieces_reserve(&s, &p, sizes[0], 4 * GIB) == CUDA_SUCCESS)
    printf("  %s: access %.0f us; restore, GB/s:", way->name, accesses(&s));
  pieces_drop(&s);
  for (int i = 0; i < 2; i++) {
    printf(" | %zu MiB:", sizes[i] / MIB);
    ways_of_restoring(&p, sizes[i], host);
  }
  shared->stop = 1;
  waitpid(pid, NULL, 0);
  printf(" out %.1f\n", shared->gb_per_s);
}

void probe_mapping(struct probe *unused) {
  (void)unused;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    fflush(stdout);
    pid_t pid = child_fork();
    if (pid == 0) {
      way_print(&ways[i]);
      fflush(stdout);
      _exit(0);
    }
    waitpid(pid, NULL, 0);
  }
}
