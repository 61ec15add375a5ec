/*
 * attributes.c - what the driver tells a program about its memory: every pointer attribute of a plain and of
 * an asynchronous allocation, at its start and within, and what cuMemGetInfo says as memory comes and goes.
 * Prints one line per answer, without addresses, so that two runs can be compared.
 */
#include <stdio.h>

#include "program.h"

#define BYTES (4 * MIB)
#define INFO_BYTES (256 * MIB)

static const struct {
  const char *name;
  CUpointer_attribute attribute;
} attributes[] = {
    {"CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT},
    {"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
    {"DEVICE_POINTER", CU_POINTER_ATTRIBUTE_DEVICE_POINTER},
    {"HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER},
    {"SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS},
    {"BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID},
    {"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
    {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
    {"LEGACY_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
    {"RANGE_START", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
    {"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
    {"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED},
    {"ALLOWED_HANDLES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
    {"GPU_DIRECT_RDMA", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
    {"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
    {"MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE},
#if CUDA_VERSION >= 12000
    {"MAPPING_SIZE", CU_POINTER_ATTRIBUTE_MAPPING_SIZE},
    {"MAPPING_BASE", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR},
    {"MEMORY_BLOCK_ID", CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID},
#endif
#if CUDA_VERSION >= 12080
    {"HW_DECOMPRESS", CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE},
#endif
};
enum { ATTRIBUTES = sizeof attributes / sizeof *attributes };

static CUcontext context;
static CUmemoryPool pool;

static bool is_address(CUpointer_attribute attribute) {
  return attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER || attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
#if CUDA_VERSION >= 12000
         attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR ||
#endif
         attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
}

/* The value in words that don't differ between two runs: an address becomes its distance from `base`. */
static void print_value(CUpointer_attribute attribute, uint64_t value, CUdeviceptr base) {
  if (value == (uint64_t)(uintptr_t)context)
    printf("context\n");
  else if (value == (uint64_t)(uintptr_t)pool)
    printf("pool\n");
  else if (value - base < BYTES)
    printf("base+%llu\n", (unsigned long long)(value - base));
  else if (value && is_address(attribute))
    printf("elsewhere\n");
  else
    printf("%llu\n", (unsigned long long)value);
}

static void print_single(const char *kind, CUdeviceptr at, CUdeviceptr base) {
  for (int i = 0; i < ATTRIBUTES; i++) {
    uint64_t value[4] = {0};
    CUresult result = cuPointerGetAttribute(value, attributes[i].attribute, at);
    printf("%s %s ", kind, attributes[i].name);
    if (result == CUDA_SUCCESS)
      print_value(attributes[i].attribute, value[0], base);
    else
      printf("error %d\n", (int)result);
  }
}

/* The same asked all at once, which answers zero where the single question is an error. */
static void print_together(const char *kind, CUdeviceptr at, CUdeviceptr base) {
  CUpointer_attribute list[ATTRIBUTES];
  uint64_t values[ATTRIBUTES][4] = {{0}};
  void *data[ATTRIBUTES];
  for (int i = 0; i < ATTRIBUTES; i++) {
    list[i] = attributes[i].attribute;
    data[i] = values[i];
  }
  CUresult result = cuPointerGetAttributes(ATTRIBUTES, list, data, at);
  if (result != CUDA_SUCCESS)
    printf("%s-together ALL error %d\n", kind, (int)result);
  for (int i = 0; i < ATTRIBUTES && result == CUDA_SUCCESS; i++) {
    printf("%s-together %s ", kind, attributes[i].name);
    print_value(list[i], values[i][0], base);
  }
}

static void print_range(const char *kind, CUdeviceptr at, CUdeviceptr base) {
  CUdeviceptr start = 0;
  size_t size = 0;
  CUresult result = cuMemGetAddressRange(&start, &size, at);
  printf("%s address-range %d %s %zu\n", kind, (int)result, start == base ? "base" : "elsewhere", size);
}

static void print_pointer(const char *kind, const char *kind_within, CUdeviceptr base) {
  print_single(kind, base, base);
  print_together(kind, base, base);
  print_range(kind, base, base);
  print_single(kind_within, base + 4096, base);
  print_range(kind_within, base + 4096, base);
}

static void print_info(const char *when) {
  size_t available = 0, total = 0;
  MUST(cuMemGetInfo(&available, &total));
  printf("meminfo %s %zu %zu\n", when, available, total);
}

static void print_memory_info(CUdevice device) {
  CUdeviceptr at;
  size_t total = 0;
  MUST(cuDeviceTotalMem(&total, device));
  printf("meminfo device 0 %zu\n", total);
  print_info("before");
  MUST(cuMemAlloc(&at, INFO_BYTES));
  print_info("with");
  MUST(cuMemFree(at));
  print_info("after");
}

int main(void) {
  CUdeviceptr plain, asynchronous;
  CUstream stream;
  CUdevice device = program_start(&context);
  MUST(cuDeviceGetMemPool(&pool, device));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  program_say("ready");
  program_await_line();
  print_memory_info(device);
  MUST(cuMemAlloc(&plain, BYTES));
  MUST(cuMemAllocAsync(&asynchronous, BYTES, stream));
  MUST(cuStreamSynchronize(stream));
  print_pointer("plain", "plain-within", plain);
  print_pointer("async", "async-within", asynchronous);
  MUST(cuMemFreeAsync(asynchronous, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFree(plain));
  program_say("ok");
  return 0;
}
