/* attributes.c - what the driver says about a pointer of each kind, and what odd allocations give. */
#include "probe.h"

#include <string.h>

enum { KINDS = 8, ATTRIBUTES = 21 };

static const char *const attribute_names[ATTRIBUTES + 1] = {"",
                                                            "CONTEXT",
                                                            "MEMORY_TYPE",
                                                            "DEVICE_POINTER",
                                                            "HOST_POINTER",
                                                            "P2P_TOKENS",
                                                            "SYNC_MEMOPS",
                                                            "BUFFER_ID",
                                                            "IS_MANAGED",
                                                            "DEVICE_ORDINAL",
                                                            "LEGACY_IPC_CAPABLE",
                                                            "RANGE_START",
                                                            "RANGE_SIZE",
                                                            "MAPPED",
                                                            "ALLOWED_HANDLES",
                                                            "GPU_DIRECT_RDMA",
                                                            "ACCESS_FLAGS",
                                                            "MEMPOOL_HANDLE",
                                                            "MAPPING_SIZE",
                                                            "MAPPING_BASE",
                                                            "MEMORY_BLOCK_ID",
                                                            "HW_DECOMPRESS"};

static void attribute_text(const struct probe *p, CUdeviceptr at, int attribute, char *text, size_t size) {
  uint64_t value[4] = {0};
  CUresult result = cuPointerGetAttribute(value, (CUpointer_attribute)attribute, at);
  if (result != CUDA_SUCCESS)
    snprintf(text, size, "err%d", (int)result);
  else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
    snprintf(text, size, value[0] == (uint64_t)(uintptr_t)p->context ? "ctx" : "%#lx", (long)value[0]);
  else if (value[0] == at)
    snprintf(text, size, "=ptr");
  else if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
    snprintf(text, size, value[0] ? "pool" : "NULL");
  else
    snprintf(text, size, "%#lx", (long)value[0]);
}

void attribute_table(const struct probe *p, const char *const *names, const CUdeviceptr *at, int count) {
  char text[32];
  printf("  %-20s", "attribute");
  for (int k = 0; k < count; k++)
    printf(" %-14s", names[k]);
  putchar('\n');
  for (int a = 1; a <= ATTRIBUTES; a++) {
    printf("  %2d %-17s", a, attribute_names[a]);
    for (int k = 0; k < count; k++) {
      attribute_text(p, at[k], a, text, sizeof(text));
      printf(" %-14s", text);
    }
    putchar('\n');
  }
}

void probe_attributes(struct probe *p) {
  static const char *const names[KINDS] = {"cuMemAlloc", "managed-new",  "managed-gpu", "managed-host",
                                           "async",      "managed-pool", "host",        "plain-malloc"};
  static char plain[64];
  CUdeviceptr at[KINDS] = {0};
  CUmemoryPool pool;
  void *host = NULL;
  TRY(cuMemAlloc(&at[0], 4 * MIB));
  for (int k = 1; k <= 3; k++)
    TRY(cuMemAllocManaged(&at[k], 4 * MIB, CU_MEM_ATTACH_GLOBAL));
  TRY(launch_fill(p, at[2], 4 * MIB, p->stream));
  memset((void *)(uintptr_t)at[3], 1, 4 * MIB);
  TRY(cuMemAllocAsync(&at[4], 4 * MIB, p->stream));
  if (TRY(managed_pool(p, &pool)) == CUDA_SUCCESS)
    TRY(cuMemAllocFromPoolAsync(&at[5], 4 * MIB, pool, p->stream));
  TRY(cuMemHostAlloc(&host, 4 * MIB, 0));
  at[6] = (CUdeviceptr)(uintptr_t)host;
  at[7] = (CUdeviceptr)(uintptr_t)plain;
  TRY(cuStreamSynchronize(p->stream));
  attribute_table(p, names, at, KINDS);
  printf("  RANGE_SIZE of 4 MiB requests above; inside pointer (+100):\n");
  for (int k = 0; k < 6; k++)
    at[k] += 100;
  attribute_table(p, names, at, 6);
}

static void print_range(const char *what, CUdeviceptr at) {
  CUdeviceptr base = 0;
  size_t size = 0;
  CUresult result = cuMemGetAddressRange(&base, &size, at);
  printf("  cuMemGetAddressRange(%s +100): %s base%s size %zu\n", what, result_name(result),
         base + 100 == at ? "=ptr" : "!=ptr", size);
}

static void print_ipc(const char *what, CUdeviceptr at) {
  CUipcMemHandle handle;
  printf("  cuIpcGetMemHandle(%s): %s\n", what, result_name(cuIpcGetMemHandle(&handle, at)));
}

static void print_flags(const char *what, CUdeviceptr at, struct probe *p) {
  int one = 1;
  printf("  %s: cuPointerSetAttribute(SYNC_MEMOPS) %s;", what,
         result_name(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at)));
  printf(" cuMemsetD8 %s;", result_name(cuMemsetD8(at, 3, MIB)));
  printf(" cuMemFreeAsync after cuMemAlloc/Managed: %s;", result_name(cuMemFreeAsync(at, p->stream)));
  printf(" sync %s\n", result_name(cuStreamSynchronize(p->stream)));
}

static void print_pitches(void) {
  static const size_t widths[] = {1, 100, 512, 513, 5000};
  for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
    for (unsigned element = 4; element <= 16; element *= 4) {
      CUdeviceptr at = 0;
      size_t pitch = 0;
      CUresult result = cuMemAllocPitch(&at, &pitch, widths[i], 16, element);
      printf("  cuMemAllocPitch width %zu element %u: %s pitch %zu align %#lx\n", widths[i], element,
             result_name(result), pitch, (long)(at & -at));
      if (result == CUDA_SUCCESS)
        cuMemFree(at);
    }
}

static void print_alignments(void) {
  static const size_t sizes[] = {1, 100, 4096, 65536, MIB, 2 * MIB, 3 * MIB};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    CUdeviceptr plain[2] = {0}, managed[2] = {0};
    for (int k = 0; k < 2; k++) {
      cuMemAlloc(&plain[k], sizes[i]);
      cuMemAllocManaged(&managed[k], sizes[i], CU_MEM_ATTACH_GLOBAL);
    }
    printf("  size %zu: plain align %#lx step %ld, managed align %#lx step %ld\n", sizes[i],
           (long)(plain[0] & -plain[0]), (long)(plain[1] - plain[0]), (long)(managed[0] & -managed[0]),
           (long)(managed[1] - managed[0]));
    for (int k = 0; k < 2; k++) {
      cuMemFree(plain[k]);
      cuMemFree(managed[k]);
    }
  }
}

static void print_free_seen(void) {
  size_t before, after, total;
  CUdeviceptr at = 0;
  cuMemGetInfo(&before, &total);
  cuMemAllocManaged(&at, 512 * MIB, CU_MEM_ATTACH_GLOBAL);
  cuMemGetInfo(&after, &total);
  printf("  cuMemGetInfo: 512 MiB managed untouched takes %zd MiB;", (ssize_t)(before - after) >> 20);
  cuMemsetD8(at, 0, 512 * MIB);
  cuCtxSynchronize();
  cuMemGetInfo(&after, &total);
  printf(" touched %zd MiB; total %zu\n", (ssize_t)(before - after) >> 20, total);
  cuMemFree(at);
}

void probe_edges(struct probe *p) {
  CUdeviceptr zero = 1, plain = 0, managed = 0, huge = 0, async = 0;
  printf("  cuMemAlloc(0): %s\n", result_name(cuMemAlloc(&zero, 0)));
  printf("  cuMemAllocManaged(0): %s\n", result_name(cuMemAllocManaged(&zero, 0, CU_MEM_ATTACH_GLOBAL)));
  printf("  cuMemAllocAsync(0): %s ptr %#lx\n", result_name(cuMemAllocAsync(&async, 0, p->stream)),
         (long)async);
  printf("  cuMemAlloc(NULL): %s\n", result_name(cuMemAlloc(NULL, MIB)));
  printf("  cuMemAlloc(1 TiB): %s\n", result_name(cuMemAlloc(&huge, GIB << 10)));
  printf("  cuMemFree(0): %s; cuMemFree(bad): %s\n", result_name(cuMemFree(0)),
         result_name(cuMemFree(0x1000)));
  TRY(cuMemAlloc(&plain, 4 * MIB));
  TRY(cuMemAllocManaged(&managed, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
  printf("  cuMemFree(inside plain): %s; (inside managed): %s\n", result_name(cuMemFree(plain + 256)),
         result_name(cuMemFree(managed + 256)));
  print_range("plain", plain + 100);
  print_range("managed", managed + 100);
  print_ipc("plain", plain);
  print_ipc("managed", managed);
  print_flags("plain", plain, p);
  print_flags("managed", managed, p);
  print_pitches();
  print_alignments();
  print_free_seen();
}
