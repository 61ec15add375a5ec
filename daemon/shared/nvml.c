/* nvml.c - libnvidia-ml.so.1 by dlopen: its functions are declared here, so that nothing of it is needed to
 * build.
 */
#include "shared/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* As the library lays them out. */
struct memory {
  unsigned long long total, free, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
#define MEMORY_V2 ((unsigned)sizeof(struct memory_v2) | 2u << 24)
struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct utilization {
  unsigned gpu, memory;
};
struct pci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

static struct {
  int (*init)(void);
  int (*count)(unsigned *);
  int (*device)(unsigned, void **);
  int (*uuid)(void *, char *, unsigned);
  int (*minor)(void *, unsigned *);
  int (*memory)(void *, struct memory *);
  int (*pci)(void *, struct pci *);
  int (*name)(void *, char *, unsigned);
  /* Not every version has these: */
  int (*processes)(void *, unsigned *, struct process *);
  int (*memory_v2)(void *, struct memory_v2 *);
  int (*mig_mode)(void *, unsigned *, unsigned *);
  int (*part_limit)(void *, unsigned *);
  int (*part)(void *, unsigned, void **);
  int (*architecture)(void *, unsigned *);
  int (*driver_version)(char *, unsigned);
  int (*temperature)(void *, unsigned, unsigned *);
  int (*power)(void *, unsigned *);
  int (*utilization)(void *, struct utilization *);
  int (*energy)(void *, unsigned long long *);
} nvml;
#define SENSOR_OF_GPU 0u
#define NOT_AVAILABLE (~0ull)

static const struct {
  const char *name;
  void *function;
  bool optional;
} functions[] = {
    {"nvmlInit_v2", &nvml.init, false},
    {"nvmlDeviceGetCount_v2", &nvml.count, false},
    {"nvmlDeviceGetHandleByIndex_v2", &nvml.device, false},
    {"nvmlDeviceGetUUID", &nvml.uuid, false},
    {"nvmlDeviceGetMinorNumber", &nvml.minor, false},
    {"nvmlDeviceGetMemoryInfo", &nvml.memory, false},
    {"nvmlDeviceGetPciInfo_v3", &nvml.pci, false},
    {"nvmlDeviceGetName", &nvml.name, false},
    {"nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes, true},
    {"nvmlDeviceGetMemoryInfo_v2", &nvml.memory_v2, true},
    {"nvmlDeviceGetMigMode", &nvml.mig_mode, true},
    {"nvmlDeviceGetMaxMigDeviceCount", &nvml.part_limit, true},
    {"nvmlDeviceGetMigDeviceHandleByIndex", &nvml.part, true},
    {"nvmlDeviceGetArchitecture", &nvml.architecture, true},
    {"nvmlSystemGetDriverVersion", &nvml.driver_version, true},
    {"nvmlDeviceGetTemperature", &nvml.temperature, true},
    {"nvmlDeviceGetPowerUsage", &nvml.power, true},
    {"nvmlDeviceGetUtilizationRates", &nvml.utilization, true},
    {"nvmlDeviceGetTotalEnergyConsumption", &nvml.energy, true},
};

static int fail(char why[NVML_WHY_SIZE], const char *text) {
  snprintf(why, NVML_WHY_SIZE, "%s", text ? text : "unknown");
  return -ENODEV;
}

int nvml_open(const char *path, char why[NVML_WHY_SIZE]) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(why, dlerror());
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function && !functions[i].optional)
      return fail(why, dlerror());
    memcpy(functions[i].function, &function, sizeof function);
  }
  int result = nvml.init();
  if (result == 0)
    return 0;
  snprintf(why, NVML_WHY_SIZE, "nvmlInit says %d", result);
  return -ENODEV;
}

unsigned nvml_count(void) {
  unsigned count = 0;
  return nvml.count(&count) == 0 ? count : 0;
}

void *nvml_device(unsigned index) {
  void *device = NULL;
  return nvml.device(index, &device) == 0 ? device : NULL;
}

int nvml_uuid(void *device, char text[NVML_TEXT_SIZE]) {
  int result = nvml.uuid(device, text, NVML_TEXT_SIZE);
  text[NVML_TEXT_SIZE - 1] = '\0';
  return result == 0 ? 0 : -EIO;
}

int nvml_name(void *device, char text[NVML_TEXT_SIZE]) {
  int result = nvml.name(device, text, NVML_TEXT_SIZE);
  text[NVML_TEXT_SIZE - 1] = '\0';
  return result == 0 ? 0 : -EIO;
}

int nvml_bus_id(void *device, char text[NVML_TEXT_SIZE]) {
  struct pci pci;
  if (nvml.pci(device, &pci) != 0)
    return -EIO;
  memcpy(text, pci.bus_id, sizeof pci.bus_id);
  text[sizeof pci.bus_id] = '\0';
  return 0;
}

int nvml_architecture(void *device, char text[NVML_TEXT_SIZE]) {
  static const char *const names[] = {"",       "",       "Kepler", "Maxwell", "Pascal",   "Volta",
                                      "Turing", "Ampere", "Ada",    "Hopper",  "Blackwell"};
  unsigned number;
  if (!nvml.architecture || nvml.architecture(device, &number) != 0 ||
      number >= sizeof names / sizeof *names || !*names[number])
    return -EIO;
  strcpy(text, names[number]);
  return 0;
}

int nvml_driver_version(char text[NVML_TEXT_SIZE]) {
  return nvml.driver_version && nvml.driver_version(text, NVML_TEXT_SIZE) == 0 ? 0 : -EIO;
}

int nvml_processes(void *device, struct nvml_process processes[NVML_PROCESSES_MAX], unsigned *count) {
  struct process found[NVML_PROCESSES_MAX];
  unsigned filled = NVML_PROCESSES_MAX;
  if (!nvml.processes || nvml.processes(device, &filled, found) != 0)
    return -EIO;
  for (unsigned i = 0; i < filled; i++)
    processes[i] = (struct nvml_process){found[i].pid, found[i].used == NOT_AVAILABLE ? 0 : found[i].used};
  *count = filled;
  return 0;
}

struct nvml_reading nvml_read(void *device) {
  struct nvml_reading reading = {.known = 0};
  struct utilization utilization;
  unsigned value;
  unsigned long long energy_mj;
  if (nvml.temperature && nvml.temperature(device, SENSOR_OF_GPU, &value) == 0) {
    reading.known |= NVML_TEMPERATURE;
    reading.temperature_c = value;
  }
  if (nvml.power && nvml.power(device, &value) == 0) {
    reading.known |= NVML_POWER;
    reading.power_mw = value;
  }
  if (nvml.utilization && nvml.utilization(device, &utilization) == 0) {
    reading.known |= NVML_UTILIZATION;
    reading.gpu_percent = utilization.gpu;
    reading.memory_percent = utilization.memory;
  }
  if (nvml.energy && nvml.energy(device, &energy_mj) == 0) {
    reading.known |= NVML_ENERGY;
    reading.energy_mj = energy_mj;
  }
  return reading;
}

int nvml_minor(void *device, unsigned *minor) { return nvml.minor(device, minor) == 0 ? 0 : -EIO; }

int nvml_memory(void *device, uint64_t *total_bytes) {
  struct memory memory;
  if (nvml.memory(device, &memory) != 0)
    return -EIO;
  *total_bytes = memory.total;
  return 0;
}

/* False: this version has no such function, or its answer makes no sense. */
static bool get_memory_v2(void *device, struct memory_v2 *memory) {
  *memory = (struct memory_v2){.version = MEMORY_V2};
  return nvml.memory_v2 && nvml.memory_v2(device, memory) == 0 && memory->reserved <= memory->total;
}

int nvml_usable_memory(void *device, uint64_t *bytes) {
  struct memory_v2 memory;
  if (!get_memory_v2(device, &memory))
    return nvml_memory(device, bytes);
  *bytes = memory.total - memory.reserved;
  return 0;
}

/* In the older function's answer the part that the driver keeps counts as in use. */
int nvml_used_memory(void *device, uint64_t *bytes) {
  struct memory_v2 memory;
  struct memory older;
  if (get_memory_v2(device, &memory)) {
    *bytes = memory.used;
    return 0;
  }
  if (nvml.memory(device, &older) != 0)
    return -EIO;
  *bytes = older.used;
  return 0;
}

bool nvml_is_split(void *device) {
  unsigned current = 0, pending;
  return nvml.mig_mode && nvml.part_limit && nvml.part && nvml.mig_mode(device, &current, &pending) == 0 &&
         current == 1;
}

unsigned nvml_part_limit(void *device) {
  unsigned count = 0;
  return nvml.part_limit(device, &count) == 0 ? count : 0;
}

void *nvml_part(void *device, unsigned index) {
  void *part = NULL;
  return nvml.part(device, index, &part) == 0 ? part : NULL;
}
