/*
 * nvml.c - a stand-in for libnvidia-ml.so.1: GPUs of 80 GiB, of which the driver keeps 1 GiB.
 *
 * Environment: GS_NVML_GPUS: how many; GS_NVML_LOST: a folder, those are lost whose number is a file in it;
 * GS_NVML_SCRIPT: a file that is read when it begins, with words of these (any may be missing):
 *   gpus=N        how many
 *   base=N        the number of the first one, in its UUID
 *   mig=G:N       GPU G has N MIG instances
 *   uuid=TEXT     of GPU 0
 *   pid=N         a process on GPU 0, with 512 MiB
 *   energy=N      mJ that each GPU has used
 *   quiet=N       GPU N tells nothing of what it does
 *   bytes=N       that programs can have of a card
 *   state=PATH    of a simulated driver: in use is what is on its card of the same index; else all is in use
 *   do=WHAT       hang, crash, fail, babble (nonsense) or hide (the processes of the last GPU)
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/sim.h"

#define LOST 15
#define NOT_FOUND 6
#define UNKNOWN_ERROR 999

struct memory {
  unsigned long long total, free, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *text, unsigned size);
int nvmlDeviceGetName(void *device, char *text, unsigned size);
int nvmlDeviceGetArchitecture(void *device, unsigned *number);
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);
int nvmlDeviceGetPciInfo_v3(void *device, void *pci);
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count);
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part);
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);

static struct {
  unsigned gpus, base, mig_gpu, mig_count, pid, quiet_gpu;
  unsigned long long bytes, energy;
  char uuid[64], what[16], state[256];
} script;

/* A handle is the index and one; of an instance, its number and one are above that. */
static unsigned index_of(void *device) { return ((unsigned)(uintptr_t)device & 0xffff) - 1; }
static unsigned part_of(void *device) { return (unsigned)(uintptr_t)device >> 16; }

static int is_lost(void *device) {
  char path[256];
  const char *folder = getenv("GS_NVML_LOST");
  snprintf(path, sizeof path, "%s/%u", folder ? folder : "", index_of(device));
  return access(path, F_OK) == 0;
}

static int babbles(void) { return strcmp(script.what, "babble") == 0; }

static void read_script(void) {
  char text[512] = "";
  const char *gpus = getenv("GS_NVML_GPUS"), *path = getenv("GS_NVML_SCRIPT"), *word;
  FILE *file = path ? fopen(path, "re") : NULL;
  if (file && !fgets(text, sizeof text, file))
    *text = '\0';
  if (file)
    fclose(file);
  script.gpus = gpus ? (unsigned)atoi(gpus) : 0;
  if ((word = strstr(text, "gpus=")))
    script.gpus = (unsigned)atoi(word + 5);
  if ((word = strstr(text, "base=")))
    script.base = (unsigned)atoi(word + 5);
  if ((word = strstr(text, "mig=")))
    sscanf(word, "mig=%u:%u", &script.mig_gpu, &script.mig_count);
  if ((word = strstr(text, "uuid=")))
    sscanf(word, "uuid=%63s", script.uuid);
  if ((word = strstr(text, "pid=")))
    script.pid = (unsigned)atoi(word + 4);
  script.energy = 1234567;
  if ((word = strstr(text, "energy=")))
    script.energy = strtoull(word + 7, NULL, 10);
  script.quiet_gpu = ~0u;
  if ((word = strstr(text, "quiet=")))
    script.quiet_gpu = (unsigned)atoi(word + 6);
  script.bytes = 79ull << 30;
  if ((word = strstr(text, "bytes=")))
    script.bytes = strtoull(word + 6, NULL, 10);
  if ((word = strstr(text, "state=")))
    sscanf(word, "state=%255s", script.state);
  if ((word = strstr(text, "do=")))
    sscanf(word, "do=%15s", script.what);
}

int nvmlInit_v2(void) {
  read_script();
  if (strcmp(script.what, "crash") == 0) {
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would make it an exit */
    raise(SIGSEGV);
  }
  while (strcmp(script.what, "hang") == 0)
    pause();
  return strcmp(script.what, "fail") == 0 ? UNKNOWN_ERROR : 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = babbles() ? ~0u : script.gpus;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = (void *)(uintptr_t)(index % 0xfff0 + 1);
  return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  unsigned number = script.base + index_of(device);
  if (babbles())
    snprintf(text, size, "GPU-0a000000-0000-4000-8000-000000000000");
  else if (part_of(device))
    snprintf(text, size, "MIG-%08x-0000-4000-8000-%012x", number, part_of(device));
  else if (*script.uuid && index_of(device) == 0)
    snprintf(text, size, "%s", script.uuid);
  else
    snprintf(text, size, "GPU-%08x-0000-4000-8000-000000000000", number);
  return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
  if (babbles())
    memset(text, '\x1b', size);
  else
    snprintf(text, size, part_of(device) ? "Played 80GB MIG 1g.10gb" : "Played 80GB");
  return 0;
}

int nvmlDeviceGetArchitecture(void *device, unsigned *number) {
  (void)device;
  *number = 9;
  return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  snprintf(text, size, "580.95.05");
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
  if (strcmp(script.what, "hide") == 0 && index_of(device) == script.gpus - 1)
    return UNKNOWN_ERROR;
  *count = script.pid && index_of(device) == 0;
  if (*count)
    *processes = (struct process){.pid = script.pid, .used = 512ull << 20};
  return 0;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
  *minor = 100 + index_of(device); /* no such device file */
  return 0;
}

static unsigned long long used_of(void *device) {
  struct gs_sim_card card;
  if (*script.state && gs_sim_card_read(script.state, index_of(device), &card) == 0)
    return card.pinned_bytes + card.resident_bytes;
  return script.bytes;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
  if (is_lost(device))
    return LOST;
  *memory = (struct memory){.total = babbles()         ? ~0ull
                                     : part_of(device) ? 10ull << 30
                                                       : script.bytes + (1ull << 30),
                            .used = used_of(device)};
  return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
  struct memory plain;
  int result =
      memory->version == (sizeof *memory | 2u << 24) ? nvmlDeviceGetMemoryInfo(device, &plain) : NOT_FOUND;
  if (result == 0) {
    memory->total = plain.total;
    memory->used = plain.used;
    memory->reserved = part_of(device) ? 0 : 1ull << 30;
  }
  return result;
}

int nvmlDeviceGetPciInfo_v3(void *device, void *pci) {
  (void)device;
  (void)pci;
  return NOT_FOUND;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  *current = *pending = script.mig_count > 0 && index_of(device) == script.mig_gpu;
  return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
  (void)device;
  *count = 7;
  return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part) {
  if (index >= script.mig_count)
    return NOT_FOUND;
  *part = (void *)((uintptr_t)device | (uintptr_t)(index + 1) << 16);
  return 0;
}

/* ---- what a GPU does: the whole one only, and each something else ---- */

static int is_quiet(void *device) { return part_of(device) || index_of(device) == script.quiet_gpu; }

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
  if (is_quiet(device) || sensor != 0)
    return NOT_FOUND;
  *celsius = babbles() ? ~0u : 61 + index_of(device);
  return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  if (is_quiet(device))
    return NOT_FOUND;
  *milliwatts = 250500 + index_of(device);
  return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
  if (is_quiet(device))
    return NOT_FOUND;
  rates[0] = 97;
  rates[1] = 40;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  if (is_quiet(device))
    return NOT_FOUND;
  *millijoules = script.energy;
  return 0;
}
