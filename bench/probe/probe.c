/* probe.c - runs one section of the driver probe, or all of them, each in a child process. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char module_text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry fill(.param .u64 base, .param .u64 words) {\n"
    "  .reg .u64 %p<6>; .reg .u32 %r<6>; .reg .pred %q;\n"
    "  ld.param.u64 %p0, [base]; ld.param.u64 %p1, [words];\n"
    "  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
    "  mad.wide.u32 %p2, %r0, %r1, 0; cvt.u64.u32 %p3, %r2; add.u64 %p2, %p2, %p3;\n"
    "  mul.wide.u32 %p3, %r3, %r1;\n"
    "again:\n"
    "  setp.ge.u64 %q, %p2, %p1; @%q bra done;\n"
    "  shl.b64 %p4, %p2, 2; add.u64 %p4, %p4, %p0; cvt.u32.u64 %r4, %p2; st.global.u32 [%p4], %r4;\n"
    "  add.u64 %p2, %p2, %p3; bra again;\n"
    "done: ret; }\n"
    ".visible .entry spin(.param .u64 ns) {\n"
    "  .reg .u64 %p<4>; .reg .pred %q;\n"
    "  ld.param.u64 %p0, [ns]; mov.u64 %p1, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %p2, %globaltimer; sub.u64 %p3, %p2, %p1; setp.lt.u64 %q, %p3, %p0; @%q bra again;\n"
    "  ret; }\n";

static const struct {
  const char *name;
  void (*run)(struct probe *p);
  enum { OPEN, BARE } start; /* BARE: makes its own processes, so nothing may be open in this one */
} sections[] = {
    {"driver", probe_driver, OPEN},         {"attributes", probe_attributes, OPEN},
    {"pools", probe_pools, OPEN},           {"captures", probe_captures, OPEN},
    {"syncs", probe_syncs, OPEN},           {"calls", probe_calls, OPEN},
    {"edges", probe_edges, OPEN},           {"moves", probe_moves, OPEN},
    {"placement", probe_placement, OPEN},   {"green", probe_green, OPEN},
    {"physical", probe_physical, OPEN},     {"pinning", probe_pinning, OPEN},
    {"handover", probe_handover, BARE},     {"vmmpointers", probe_vmmpointers, BARE},
    {"checkpoint", probe_checkpoint, BARE}, {"mapping", probe_mapping, BARE},
};
enum { SECTIONS = sizeof(sections) / sizeof(sections[0]), SECTION_SECONDS = 60 };

const char *result_name(CUresult result) {
  static _Thread_local char number[16];
  const char *name = NULL;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
    return strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
  snprintf(number, sizeof(number), "%d", (int)result);
  return number;
}

CUresult probe_try(const char *what, CUresult result) {
  if (result != CUDA_SUCCESS)
    printf("  FAILED %.90s: %s\n", what, result_name(result));
  return result;
}

CUmemLocation location_device(const struct probe *p) {
  return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = p->device};
}

CUmemLocation location_host(void) { return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}; }

CUresult managed_pool(const struct probe *p, CUmemoryPool *pool) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = location_device(p)};
  return cuMemPoolCreate(pool, &props);
}

void launch_empty(const struct probe *p, CUstream stream) {
  cuLaunchKernel((CUfunction)p->empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

CUresult launch_fill(const struct probe *p, CUdeviceptr at, size_t bytes, CUstream stream) {
  uint64_t words = bytes / 4;
  void *args[] = {&at, &words};
  return cuLaunchKernel((CUfunction)p->fill, 1024, 1, 1, 256, 1, 1, 0, stream, args, NULL);
}

CUresult launch_spin(const struct probe *p, uint64_t ns, CUstream stream) {
  void *args[] = {&ns};
  return cuLaunchKernel((CUfunction)p->spin, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

bool probe_open(struct probe *p) {
  CUlibrary library;
  if (TRY(cuInit(0)) || TRY(cuDeviceGet(&p->device, 0)) ||
      TRY(cuDevicePrimaryCtxRetain(&p->context, p->device)) || TRY(cuCtxSetCurrent(p->context)) ||
      TRY(cuLibraryLoadData(&library, module_text, NULL, NULL, 0, NULL, NULL, 0)) ||
      TRY(cuLibraryGetKernel(&p->empty, library, "empty")) ||
      TRY(cuLibraryGetKernel(&p->fill, library, "fill")) ||
      TRY(cuLibraryGetKernel(&p->spin, library, "spin")) ||
      TRY(cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING)))
    return false;
  launch_empty(p, p->stream);
  launch_spin(p, 1000, p->stream);
  return TRY(cuStreamSynchronize(p->stream)) == CUDA_SUCCESS;
}

static int section_run(size_t index) {
  struct probe p = {0};
  alarm(SECTION_SECONDS);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (sections[index].start == OPEN && !probe_open(&p))
    return 1;
  sections[index].run(&p);
  return 0;
}

static int section_fork(size_t index) {
  int status = 0;
  printf("== %s\n", sections[index].name);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    int rc = section_run(index);
    fflush(stdout);
    _exit(rc);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    return 1;
  if (status != 0)
    printf("  section %s ended with status 0x%x\n", sections[index].name, (unsigned)status);
  return status != 0;
}

static bool section_wanted(size_t index, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], sections[index].name) == 0)
      return true;
  return argc < 2;
}

/* usage: probe [SECTION...] */
int main(int argc, char **argv) {
  int failed = 0;
  for (size_t i = 0; i < SECTIONS; i++)
    if (section_wanted(i, argc, argv))
      failed |= section_fork(i);
  return failed;
}
