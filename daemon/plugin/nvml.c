/* nvml.c - libnvidia-ml.so.1 by dlopen: its functions are declared here, so that nothing of it is needed to
 * build.
 */
#include "plugin/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "common/log.h"

/* As the library lays them out. */
struct memory {
  unsigned long long total, free, used;
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
} nvml;

static const struct {
  const char *name;
  void *function;
} functions[] = {
    {"nvmlInit_v2", &nvml.init},
    {"nvmlDeviceGetCount_v2", &nvml.count},
    {"nvmlDeviceGetHandleByIndex_v2", &nvml.device},
    {"nvmlDeviceGetUUID", &nvml.uuid},
    {"nvmlDeviceGetMinorNumber", &nvml.minor},
    {"nvmlDeviceGetMemoryInfo", &nvml.memory},
    {"nvmlDeviceGetPciInfo_v3", &nvml.pci},
};

static int fail(const char *why) {
  log_error("no NVIDIA driver to be seen: %s", why);
  return -ENODEV;
}

int nvml_open(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(dlerror());
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function)
      return fail(dlerror());
    memcpy(functions[i].function, &function, sizeof function);
  }
  int result = nvml.init();
  if (result == 0)
    return 0;
  log_error("no NVIDIA driver to be seen: nvmlInit says %d", result);
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
  return nvml.uuid(device, text, NVML_TEXT_SIZE) == 0 ? 0 : -EIO;
}

int nvml_bus_id(void *device, char text[NVML_TEXT_SIZE]) {
  struct pci pci;
  if (nvml.pci(device, &pci) != 0)
    return -EIO;
  memcpy(text, pci.bus_id, sizeof pci.bus_id);
  text[sizeof pci.bus_id] = '\0';
  return 0;
}

int nvml_minor(void *device, unsigned *minor) { return nvml.minor(device, minor) == 0 ? 0 : -EIO; }

int nvml_memory(void *device, uint64_t *total_bytes) {
  struct memory memory;
  if (nvml.memory(device, &memory) != 0)
    return -EIO;
  *total_bytes = memory.total;
  return 0;
}
