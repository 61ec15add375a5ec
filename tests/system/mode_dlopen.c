/* mode_dlopen.c - linking mode 2: libcuda by dlopen, its functions by dlsym. With -DMODE_PROC_ADDRESS mode 8,
 * as cuda-python does it: only cuGetProcAddress by dlsym, all else through it. With -DMODE_DLVSYM by dlvsym:
 * a library without versions has every function in any version. */
#include <dlfcn.h>
#include <stdio.h>

#include "driver_table.h"

#ifdef MODE_PROC_ADDRESS
/* cuda.h names the base function and the version that the caller was built for. */
static int find(void *library, const char *base, const char *exported, void **function) {
  CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
  CUdriverProcAddressQueryResult found;
  (void)exported;
  *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
  if (!get)
    return 1;
  return get(base, function, CUDA_VERSION < 12000 ? CUDA_VERSION : 12000, CU_GET_PROC_ADDRESS_DEFAULT,
             &found) ||
         !*function;
}
#else
static int find(void *library, const char *base, const char *exported, void **function) {
  (void)base;
#ifdef MODE_DLVSYM
  *function = dlvsym(library, exported, "SIM_1");
#else
  *function = dlsym(library, exported);
#endif
  return !*function;
}
#endif

static int start(void) {
  static struct driver_table table;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int missing = !library;
#define X(field, function)                                                                                   \
  missing = missing || find(library, #function, EXPORTED_NAME(function), (void **)&table.field);
  DRIVER_FUNCTIONS(X)
#undef X
  if (missing)
    fprintf(stderr, "a driver function is missing\n");
  return missing ? 1 : table_start(&table);
}

static const struct device dlopen_device = {.mode = "dlopen", .start = start, TABLE_DEVICE};

int main(int argc, char **argv) { return workload_main(&dlopen_device, argc, argv); }
