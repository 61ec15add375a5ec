/* vmmpointers.c - what the driver takes and says of a range of several mapped pieces, and of one that is
 * unmapped. */
#include "pieces.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/kernels.h"

enum { PIECE_MIB = 4, COUNT = 3 };
static const size_t span = COUNT * PIECE_MIB * MIB, half = PIECE_MIB * MIB / 2;

struct bench {
  struct probe *p;
  struct pieces pieces;
  CUdeviceptr plain;
  uint32_t *pinned, *pageable;
};

static void say(const char *what, CUresult result) {
  printf("  %s: %s", what, result_name(result));
  CUresult after = cuCtxSynchronize();
  if (after)
    printf(", then cuCtxSynchronize: %s", result_name(after));
  putchar('\n');
}
#define SAY(call) say(#call, call)

static bool bench_open(struct bench *b, struct probe *p) {
  *b = (struct bench){.p = p, .pageable = malloc(span)};
  return b->pageable && !pieces_reserve(&b->pieces, p, PIECE_MIB * MIB, span) && !pieces_fill(&b->pieces) &&
         !TRY(cuMemAlloc(&b->plain, span)) && !TRY(cuMemHostAlloc((void **)&b->pinned, span, 0));
}

static void range_print(const char *what, CUdeviceptr at) {
  CUdeviceptr base = 0;
  size_t size = 0;
  CUresult result = cuMemGetAddressRange(&base, &size, at);
  printf("  cuMemGetAddressRange(%s, %#llx): %s base %#llx size %zu KiB\n", what, at, result_name(result),
         base, size >> 10);
}

static void table_print(struct bench *b, const char *title) {
  static const char *const names[] = {"plain", "plain+100", "piece 1", "piece 2", "piece 2+100", "piece 3"};
  CUdeviceptr at[] = {b->plain,
                      b->plain + 100,
                      b->pieces.at,
                      piece_at(&b->pieces, 1),
                      piece_at(&b->pieces, 1) + 100,
                      piece_at(&b->pieces, 2)};
  printf("  %s\n", title);
  attribute_table(b->p, names, at, 6);
  for (int i = 0; i < 6; i++)
    range_print(names[i], at[i]);
}

/* Are the words from the second half of the first piece on, as many as two pieces hold, what fill wrote? */
static void words_check(const char *what, const void *memory) {
  const uint64_t *words = memory;
  size_t wrong = 0;
  for (size_t i = 0; i < 4 * half / 8; i++)
    wrong += words[i] != gs_hash(0, half / 8 + i);
  printf("    %s: %s\n", what, wrong ? "bytes WRONG" : "bytes right");
}

static void range_fill(struct bench *b) {
  TRY(launch_fill(b->p, b->pieces.at, span, b->p->stream));
  TRY(cuCtxSynchronize());
}

static void print_copies(struct bench *b) {
  CUdeviceptr from = b->pieces.at + half;
  size_t bytes = 4 * half;
  CUstream stream = b->p->stream;
  range_fill(b);
  SAY(cuMemcpyDtoH(b->pageable, from, bytes));
  words_check("pageable", b->pageable);
  SAY(cuMemcpyDtoH(b->pinned, from, bytes));
  words_check("pinned", b->pinned);
  memset(b->pinned, 0, span);
  SAY(cuMemcpyDtoHAsync(b->pinned, from, bytes, stream));
  words_check("pinned", b->pinned);
  SAY(cuMemcpyDtoD(b->plain, from, bytes));
  TRY(cuMemcpyDtoH(b->pageable, b->plain, bytes));
  words_check("plain", b->pageable);
  SAY(cuMemsetD8(from, 0, bytes));
  SAY(cuMemcpyHtoD(from, b->pageable, bytes));
  memset(b->pageable, 0, span);
  TRY(cuMemcpyDtoH(b->pageable, from, bytes));
  words_check("back", b->pageable);
  SAY(cuMemcpyHtoDAsync(from, b->pinned, bytes, stream));
  SAY(cuMemcpyDtoDAsync(from, b->plain, bytes, stream));
  SAY(cuMemcpy(b->plain, from, bytes));
  SAY(cuMemcpyAsync(b->plain, from, bytes, stream));
  SAY(cuMemsetD8Async(from, 5, bytes, stream));
  SAY(cuMemsetD32(from, 7, bytes / 4));
  SAY(cuMemsetD2D32(from, 4096, 7, 1000, (size_t)(bytes / 4096)));
}

static void print_copies_2d(struct bench *b) {
  CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = b->pieces.at + half,
                       .srcPitch = 4096,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = b->pageable,
                       .dstPitch = 4096,
                       .WidthInBytes = 4096,
                       .Height = 4 * half / 4096};
  range_fill(b);
  memset(b->pageable, 0, span);
  SAY(cuMemcpy2D(&out));
  words_check("2D", b->pageable);
  out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = b->plain;
  SAY(cuMemcpy2D(&out));
  SAY(cuMemcpy2DUnaligned(&out));
  SAY(cuMemcpy2DAsync(&out, b->p->stream));
}

static void print_others(struct bench *b) {
  CUdeviceptr vmm = b->pieces.at, plain = b->plain;
  CUmemGenericAllocationHandle handle;
  CUipcMemHandle ipc;
  CUstream stream = b->p->stream;
  int one = 1;
  SAY(cuStreamWriteValue32(stream, vmm, 1, 0));
  SAY(cuStreamWaitValue32(stream, vmm, 0, CU_STREAM_WAIT_VALUE_GEQ));
  SAY(cuMemFree(vmm));
  SAY(cuMemFreeAsync(vmm, stream));
  SAY(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)plain));
  CUresult result = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(vmm + half));
  say("cuMemRetainAllocationHandle(inside the first piece)", result);
  if (result == CUDA_SUCCESS)
    TRY(cuMemRelease(handle));
  SAY(cuIpcGetMemHandle(&ipc, plain));
  SAY(cuIpcGetMemHandle(&ipc, vmm));
  SAY(cuMemPrefetchAsync(plain, MIB, location_device(b->p), 0, stream));
  SAY(cuMemPrefetchAsync(plain, MIB, location_host(), 0, stream));
  SAY(cuMemPrefetchAsync(vmm, MIB, location_device(b->p), 0, stream));
  SAY(cuMemAdvise(plain, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location_device(b->p)));
  SAY(cuMemAdvise(vmm, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location_device(b->p)));
  SAY(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
  SAY(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, vmm));
}

/* A piece's memory goes, its address stays. */
static void piece_evict(struct bench *b, size_t i) {
  piece_unmap(&b->pieces, i, 1);
  piece_release(&b->pieces, i);
}

static void piece_return(struct bench *b, size_t i) {
  piece_create(&b->pieces, i);
  piece_map(&b->pieces, i);
  piece_access(&b->pieces, i, 1);
}

static CUDA_MEMCPY3D copy_3d(CUdeviceptr from, void *to) {
  return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = from,
                         .srcPitch = MIB,
                         .srcHeight = 1,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = to,
                         .dstPitch = MIB,
                         .dstHeight = 1,
                         .WidthInBytes = MIB,
                         .Height = 1,
                         .Depth = 1};
}

static CUresult texture_make(CUdeviceptr at) {
  CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
  CUDA_TEXTURE_DESC texture = {.flags = CU_TRSF_READ_AS_INTEGER};
  CUtexObject object = 0;
  resource.res.linear.devPtr = at;
  resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = MIB;
  CUresult result = cuTexObjectCreate(&object, &resource, &texture, NULL);
  if (result == CUDA_SUCCESS)
    TRY(cuTexObjectDestroy(object));
  return result;
}

static void print_capture(struct bench *b, CUdeviceptr at) {
  CUgraph graph = NULL;
  CUstream stream = b->p->stream;
  TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUresult copy = cuMemcpyDtoHAsync(b->pinned, at, MIB, stream), set = cuMemsetD8Async(at, 1, MIB, stream);
  CUresult end = cuStreamEndCapture(stream, &graph);
  printf("  captured there: cuMemcpyDtoHAsync %s, cuMemsetD8Async %s, end %s\n", result_name(copy),
         result_name(set), result_name(end));
  if (graph)
    TRY(cuGraphDestroy(graph));
}

/* The same questions of a mapped and of an unmapped piece; exec's node copies from elsewhere so far. */
static void print_nodes(struct bench *b, const char *what, CUdeviceptr at, CUgraphExec exec,
                        CUgraphNode node) {
  CUDA_MEMCPY3D copy = copy_3d(at, b->pinned);
  CUDA_MEMSET_NODE_PARAMS set = {.dst = at, .value = 1, .elementSize = 1, .width = MIB, .height = 1};
  CUgraph graph = NULL;
  CUgraphNode made = NULL;
  CUcontext context = b->p->context;
  printf("  with the address of %s piece\n", what);
  TRY(cuGraphCreate(&graph, 0));
  SAY(cuGraphAddMemcpyNode(&made, graph, NULL, 0, &copy, context));
  SAY(cuGraphAddMemsetNode(&made, graph, NULL, 0, &set, context));
  SAY(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context));
  SAY(texture_make(at));
  TRY(cuGraphDestroy(graph));
  print_capture(b, at);
}

struct graph_case { /* a graph of one copy from a piece to pinned memory */
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
};

static struct graph_case case_make(struct bench *b, CUdeviceptr from) {
  struct graph_case c = {0};
  CUDA_MEMCPY3D copy = copy_3d(from, b->pinned);
  TRY(cuGraphCreate(&c.graph, 0));
  TRY(cuGraphAddMemcpyNode(&c.node, c.graph, NULL, 0, &copy, b->p->context));
  return c;
}

static void case_launch(struct bench *b, const char *what, struct graph_case *c, uint32_t value) {
  if (!c->exec)
    return;
  memset(b->pinned, 0, MIB);
  say(what, cuGraphLaunch(c->exec, b->p->stream));
  printf("    bytes %s\n", b->pinned[0] == value && b->pinned[MIB / 4 - 1] == value ? "right" : "WRONG");
}

/* Both a graph instantiated before the piece went and one instantiated while it is away. */
static void print_returns(struct bench *b, size_t i) {
  CUdeviceptr at = piece_at(&b->pieces, i);
  struct graph_case before = case_make(b, at), away = case_make(b, at);
  say("cuGraphInstantiate, mapped", cuGraphInstantiate(&before.exec, before.graph, 0));
  piece_evict(b, i);
  say("cuGraphInstantiate, unmapped since", cuGraphInstantiate(&away.exec, away.graph, 0));
  piece_return(b, i);
  TRY(cuMemsetD32(at, 77, b->pieces.size / 4));
  TRY(cuCtxSynchronize());
  case_launch(b, "launch after remapping, instantiated while mapped", &before, 77);
  case_launch(b, "launch after remapping, instantiated while unmapped", &away, 77);
  if (!away.exec) {
    say("cuGraphInstantiate after remapping", cuGraphInstantiate(&away.exec, away.graph, 0));
    case_launch(b, "launch of that", &away, 77);
  }
}

/* Calls on a piece that is away: each may spoil its context, so each has a process of its own. */
enum away {
  OTHER_PIECE,
  RETAIN,
  FREE,
  WRITE,
  OUT,
  OUT_ASYNC,
  IN_ASYNC,
  ACROSS,
  ACROSS_DEVICE,
  SET,
  SET_ASYNC,
  GRAPH,
  KERNEL,
  AWAYS
};

static void print_away_graph(struct bench *b, size_t i) {
  piece_return(b, i);
  struct graph_case c = case_make(b, piece_at(&b->pieces, i));
  TRY(cuGraphInstantiate(&c.exec, c.graph, 0));
  piece_evict(b, i);
  say("cuGraphLaunch, its copy's address unmapped since", cuGraphLaunch(c.exec, b->p->stream));
}

static void print_away(struct bench *b, enum away what) {
  CUdeviceptr away = piece_at(&b->pieces, 1);
  CUmemGenericAllocationHandle handle;
  CUstream stream = b->p->stream;
  switch (what) {
  case OTHER_PIECE:
    SAY(launch_fill(b->p, b->pieces.at, b->pieces.size, stream));
    break;
  case RETAIN:
    SAY(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)away));
    break;
  case FREE:
    SAY(cuMemFree(away));
    break;
  case WRITE:
    SAY(cuStreamWriteValue32(stream, away, 1, 0));
    break;
  case OUT:
    SAY(cuMemcpyDtoH(b->pageable, away, MIB));
    break;
  case OUT_ASYNC:
    SAY(cuMemcpyDtoHAsync(b->pinned, away, MIB, stream));
    break;
  case IN_ASYNC:
    SAY(cuMemcpyHtoDAsync(away, b->pinned, MIB, stream));
    break;
  case ACROSS:
    SAY(cuMemcpyDtoHAsync(b->pinned, away - half, 2 * half, stream));
    break;
  case ACROSS_DEVICE:
    SAY(cuMemcpyDtoDAsync(b->plain, away - half, 2 * half, stream));
    break;
  case SET:
    SAY(cuMemsetD8(away, 1, MIB));
    break;
  case SET_ASYNC:
    SAY(cuMemsetD8Async(away, 1, MIB, stream));
    break;
  case GRAPH:
    print_away_graph(b, 1);
    break;
  default:
    say("kernel that writes there", launch_fill(b->p, away, MIB, stream));
  }
}

static void print_all(struct probe *p) {
  struct bench b;
  if (!card_fits("vmmpointers", 4 * span) || !bench_open(&b, p))
    return;
  table_print(&b, "three mapped pieces of 4 MiB");
  print_copies(&b);
  print_copies_2d(&b);
  print_others(&b);
  struct graph_case set = case_make(&b, b.pieces.at);
  TRY(cuGraphInstantiate(&set.exec, set.graph, 0));
  print_nodes(&b, "a mapped", piece_at(&b.pieces, 1), set.exec, set.node);
  piece_evict(&b, 1);
  table_print(&b, "the second piece unmapped");
  print_nodes(&b, "an unmapped", piece_at(&b.pieces, 1), set.exec, set.node);
  piece_return(&b, 1);
  print_returns(&b, 1);
}

/* In a process of its own: everything (AWAYS), or one call on a piece that is away. */
static void part_run(enum away what) {
  struct probe p = {0};
  struct bench b;
  if (!probe_open(&p))
    return;
  if (what == AWAYS) {
    print_all(&p);
  } else if (card_fits("vmmpointers", 4 * span) && bench_open(&b, &p)) {
    piece_evict(&b, 1);
    print_away(&b, what);
  }
}

static void part_fork(enum away what) {
  int status = 0;
  pid_t pid = child_fork();
  if (pid == 0) {
    part_run(what);
    fflush(stdout);
    _exit(0);
  }
  if (pid > 0 && waitpid(pid, &status, 0) == pid && status != 0)
    printf("  call %d ended its process, status 0x%x\n", (int)what, (unsigned)status);
}

void probe_vmmpointers(struct probe *p) {
  (void)p;
  uint64_t start = clock_now_ns();
  part_fork(AWAYS);
  printf("  calls on an unmapped piece, each in a process of its own\n");
  for (enum away what = OTHER_PIECE; what < AWAYS && ms_since(start) < 30e3; what++)
    part_fork(what);
}
