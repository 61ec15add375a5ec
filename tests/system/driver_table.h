/*
 * driver_table.h - the driver functions that the test programs use, as a table that each linking mode fills
 * in its own way. Names are cuda.h's, so that a build for the per-thread default stream gets those variants.
 */
#ifndef TEST_DRIVER_TABLE_H
#define TEST_DRIVER_TABLE_H

#include <cuda.h>

#include "device.h"

/* X(field, function) */
#define DRIVER_FUNCTIONS(X)                                                                                  \
  X(init, cuInit)                                                                                            \
  X(device_get, cuDeviceGet)                                                                                 \
  X(primary_retain, cuDevicePrimaryCtxRetain)                                                                \
  X(set_current, cuCtxSetCurrent)                                                                            \
  X(module_load_data, cuModuleLoadData)                                                                      \
  X(module_function, cuModuleGetFunction)                                                                    \
  X(mem_alloc, cuMemAlloc)                                                                                   \
  X(mem_free, cuMemFree)                                                                                     \
  X(copy_to_host, cuMemcpyDtoH)                                                                              \
  X(copy_to_device, cuMemcpyHtoD)                                                                            \
  X(launch_kernel, cuLaunchKernel)                                                                           \
  X(synchronize, cuCtxSynchronize)

struct driver_table {
#define X(field, function) __typeof__(&function) field;
  DRIVER_FUNCTIONS(X)
#undef X
};

/* "cuMemAlloc_v2" for cuMemAlloc: the name under which it is exported. */
#define EXPORTED_NAME(function) EXPORTED_NAME_(function)
#define EXPORTED_NAME_(function) #function

/* Initialize the first GPU and get the kernels through `table`, which must outlive the device. */
int table_start(const struct driver_table *table);

/* The rest of a struct device on top of the table given to table_start. */
int table_alloc(uint64_t *address, size_t bytes);
int table_release(uint64_t address);
int table_to_device(uint64_t address, const void *host, size_t bytes);
int table_to_host(void *host, uint64_t address, size_t bytes);
int table_launch(const char *kernel, unsigned blocks, void **parameters);
int table_finish(void);

#define TABLE_DEVICE                                                                                         \
  .alloc = table_alloc, .release = table_release, .to_device = table_to_device, .to_host = table_to_host,    \
  .launch = table_launch, .finish = table_finish

#endif
