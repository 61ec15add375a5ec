/* nvml.c - a stand-in for libnvidia-ml.so.1: GS_NVML_GPUS GPUs of 80 GiB, of which those are lost whose
 * number is a file in the folder GS_NVML_LOST. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOST 15
#define NOT_FOUND 6

struct memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *text, unsigned size);
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetPciInfo_v3(void *device, void *pci);

/* A handle is the index and one. */
static unsigned index_of(void *device) { return (unsigned)(uintptr_t)device - 1; }

static int is_lost(void *device) {
  char path[256];
  const char *folder = getenv("GS_NVML_LOST");
  snprintf(path, sizeof path, "%s/%u", folder ? folder : "", index_of(device));
  return access(path, F_OK) == 0;
}

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  const char *gpus = getenv("GS_NVML_GPUS");
  *count = gpus ? (unsigned)atoi(gpus) : 0;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = (void *)(uintptr_t)(index + 1);
  return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  snprintf(text, size, "GPU-%08x-0000-4000-8000-000000000000", index_of(device));
  return 0;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
  *minor = 100 + index_of(device); /* no such device file */
  return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
  if (is_lost(device))
    return LOST;
  *memory = (struct memory){.total = 80ull << 30};
  return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, void *pci) {
  (void)device;
  (void)pci;
  return NOT_FOUND;
}
