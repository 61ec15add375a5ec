/* mode_linked.c - linking mode 1: the program is linked to libcuda. Also built for the per-thread default
 * stream (mode 9), and as a plugin that is opened with RTLD_DEEPBIND (mode 10). */
#include "driver_table.h"

static int start(void) {
  static struct driver_table table;
#define X(field, function) table.field = function;
  DRIVER_FUNCTIONS(X)
#undef X
  return table_start(&table);
}

#ifdef MODE_PLUGIN
/* Calls of the driver before it is initialized: one that we hook, one that we don't. */
int plugin_ask(void);
int plugin_ask(void) {
  CUdeviceptr memory;
  int version;
  return cuDriverGetVersion(&version) || cuMemAlloc(&memory, 8) != CUDA_ERROR_NOT_INITIALIZED;
}

extern const struct device plugin_device;
const struct device plugin_device = {.mode = "plugin", .start = start, TABLE_DEVICE};
#else
static const struct device linked_device = {.mode = "linked", .start = start, TABLE_DEVICE};

int main(int argc, char **argv) { return workload_main(&linked_device, argc, argv); }
#endif
