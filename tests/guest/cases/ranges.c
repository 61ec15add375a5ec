/* ranges.c - copies and sets up to the end of an allocation, and beyond it; and where there is none any more.
 */
#include "guest.h"

#include <stdlib.h>
#include <string.h>

static char *host;
static CUstream stream;
static CUdeviceptr other; /* large, so that only the one end is in question */

static void try(const char *what, size_t bytes, CUresult result) {
  CUresult after = cuStreamSynchronize(stream);
  say("  %s of %zu: %s, %s", what, bytes, result_name(result), result_name(after));
}

static void try_lines(CUdeviceptr at, size_t bytes) {
  try("HtoD", bytes, cuMemcpyHtoD(at, host, bytes));
  try("DtoH", bytes, cuMemcpyDtoH(host, at, bytes));
  try("DtoD to", bytes, cuMemcpyDtoD(at, other, bytes));
  try("DtoD from", bytes, cuMemcpyDtoD(other, at, bytes));
  try("cuMemcpy to", bytes, cuMemcpy(at, (CUdeviceptr)(uintptr_t)host, bytes));
  try("cuMemcpy from", bytes, cuMemcpy((CUdeviceptr)(uintptr_t)host, at, bytes));
  try("HtoD async", bytes, cuMemcpyHtoDAsync(at, host, bytes, stream));
  try("DtoH async", bytes, cuMemcpyDtoHAsync(host, at, bytes, stream));
  try("DtoD async", bytes, cuMemcpyDtoDAsync(at, other, bytes, stream));
  try("cuMemcpy async", bytes, cuMemcpyAsync(other, at, bytes, stream));
  try("D8", bytes, cuMemsetD8(at, 1, bytes));
  try("D8 async", bytes, cuMemsetD8Async(at, 1, bytes, stream));
  try("D32", bytes, cuMemsetD32(at, 1, (bytes + 3) / 4));
}

/* Four rows of 64 bytes, which end where the bytes do. */
static void try_planes(CUdeviceptr at, size_t bytes) {
  size_t pitch = (bytes - 64) / 3 / 4 * 4, ends = 3 * pitch + 64;
  CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = host,
                         .srcPitch = 64,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = at,
                         .dstPitch = pitch,
                         .WidthInBytes = 64,
                         .Height = 4};
  CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = at,
                       .srcPitch = pitch,
                       .srcHeight = 2,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = host,
                       .dstPitch = 64,
                       .dstHeight = 2,
                       .WidthInBytes = 64,
                       .Height = 2,
                       .Depth = 2};
  try("2D", ends, cuMemcpy2D(&plane));
  try("2D async", ends, cuMemcpy2DAsync(&plane, stream));
  try("3D", ends, cuMemcpy3D(&box));
  try("3D async", ends, cuMemcpy3DAsync(&box, stream));
  try("D2D32", ends, cuMemsetD2D32(at, pitch, 1, 16, 4));
  try("D2D8 async", ends, cuMemsetD2D8Async(at, pitch, 1, 64, 4, stream));
}

int main(void) {
  static const size_t sizes[] = {100, 4096, (1 << 20) + 100, (5 << 20) + 100};
  CUdeviceptr at[4], neighbour;
  struct gpu gpu;
  unsigned char kept[512];
  gpu_start(&gpu, 0);
  stream = gpu_stream();
  host = calloc(1, 16 << 20);
  MUST(cuMemAlloc(&other, 16 << 20));
  MUST(cuMemsetD8(other, 0, 16 << 20));
  for (int i = 0; i < 4; i++)
    MUST(cuMemAlloc(&at[i], sizes[i]));
  MUST(cuMemAlloc(&neighbour, sizeof kept));
  MUST(cuMemsetD8(neighbour, 7, sizeof kept));
  for (int i = 0; i < 4; i++) {
    say("allocation of %zu", sizes[i]);
    try_lines(at[i], sizes[i]);
    try_lines(at[i], sizes[i] + 1);
    try_lines(at[i], sizes[i] + 4096);
    try_lines(at[i] + sizes[i] / 2, sizes[i]);
    try_lines(at[i] + 4, sizes[i] - 4);
    try_lines(at[i], 0);
    if (sizes[i] > 1000) {
      try_planes(at[i], sizes[i]);
      try_planes(at[i], sizes[i] + 4096);
    }
  }
  MUST(cuMemcpyDtoH(kept, neighbour, sizeof kept));
  unsigned changed = 0;
  for (size_t i = 0; i < sizeof kept; i++)
    changed += kept[i] != 7;
  say("changed of the neighbour: %u", changed);
  CUdeviceptr base;
  size_t size;
  int ordinal;
  say("between two: %s", result_name(cuMemGetAddressRange(&base, &size, at[0] + 200)));
  MUST(cuMemFree(at[0]));
  say("freed: %s, %s", result_name(cuMemGetAddressRange(&base, &size, at[0])),
      result_name(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at[0])));
  try("HtoD", 100, cuMemcpyHtoD(at[0], host, 100));
  try("DtoH async", 100, cuMemcpyDtoHAsync(host, at[0], 100, stream));
  say("ok");
  return 0;
}
