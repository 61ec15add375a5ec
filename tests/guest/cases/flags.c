/* flags.c - stream memory operations on small allocations, and what else there is to know about those. */
#include "guest.h"

#include <string.h>

/* One stream writes a flag, the other waits for it, then copies it out. */
static void exchange(CUdeviceptr flag, unsigned value) {
  CUstream writer = gpu_stream(), waiter = gpu_stream();
  unsigned seen = 0;
  CUresult wait = cuStreamWaitValue32(waiter, flag, value, CU_STREAM_WAIT_VALUE_EQ);
  CUresult write = cuStreamWriteValue32(writer, flag, value, 0);
  MUST(cuMemcpyDtoHAsync(&seen, flag, sizeof seen, waiter));
  MUST(cuStreamSynchronize(writer));
  MUST(cuStreamSynchronize(waiter));
  say("wait %s, write %s, seen %u", result_name(wait), result_name(write), seen);
  MUST(cuStreamDestroy(writer));
  MUST(cuStreamDestroy(waiter));
}

static void exchange_wide(CUdeviceptr flag, uint64_t value) {
  CUstream stream = gpu_stream();
  uint64_t seen[2] = {0};
  CUstreamBatchMemOpParams both[3] = {0};
  both[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  both[0].writeValue.address = flag;
  both[0].writeValue.value64 = value;
  both[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  both[1].waitValue.address = flag;
  both[1].waitValue.value64 = value;
  both[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  both[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  both[2].writeValue.address = flag + 8;
  both[2].writeValue.value = 7;
  CUresult batch = cuStreamBatchMemOp(stream, 3, both, 0);
  CUresult write = cuStreamWriteValue64(stream, flag, value + 1, 0);
  MUST(cuMemcpyDtoHAsync(seen, flag, sizeof seen, stream));
  MUST(cuStreamSynchronize(stream));
  say("batch %s, write %s, seen %d %u", result_name(batch), result_name(write), seen[0] == value + 1,
      (unsigned)seen[1]);
  MUST(cuStreamDestroy(stream));
}

/* As plain memory is, wherever it comes from. */
static void describe(CUdeviceptr at, size_t bytes) {
  CUdeviceptr base = 0;
  size_t size = 0;
  unsigned type = 0, managed = 1;
  int device = -1;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *answers[] = {&type, &managed, &device};
  MUST(cuMemGetAddressRange(&base, &size, at + bytes / 2));
  MUST(cuPointerGetAttributes(3, asked, answers, at + bytes - 1));
  say("%zu bytes: from its start %d, size %zu, type %u, managed %u, device %d, beyond it %s", bytes,
      base == at, size, type, managed & 0xff, device,
      result_name(cuMemGetAddressRange(&base, &size, at + 4096 + bytes)));
}

int main(void) {
  static const size_t sizes[] = {4096, 16, 100000, 1 << 20, (1 << 20) + 4096, 2 << 20};
  CUdeviceptr at[6], pitched;
  size_t pitch;
  struct gpu gpu;
  gpu_start(&gpu, 0);
  for (int i = 0; i < 6; i++)
    MUST(cuMemAlloc(&at[i], sizes[i]));
  MUST(cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
  for (int i = 0; i < 6; i++) {
    MUST(cuMemsetD8(at[i], 0, sizes[i]));
    exchange(at[i], 5 + (unsigned)i);
    exchange_wide(at[i], UINT64_C(1) << 40);
  }
  describe(at[0], sizes[0]);
  describe(at[5], sizes[5]);
  exchange(pitched + 9 * pitch, 3);
  exchange(at[0] + 4092, 3);
  say("odd %s", result_name(cuStreamWriteValue32(NULL, at[0] + 2, 1, 0)));
  for (int i = 0; i < 6; i++)
    MUST(cuMemFree(at[i]));
  say("freed again %s", result_name(cuMemFree(at[1])));
  MUST(cuMemFree(pitched));
  for (int i = 0; i < 20; i++)
    use_gpu(&gpu);
  say("ok");
  return 0;
}
