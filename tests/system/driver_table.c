/* driver_table.c - a device on top of a table of driver functions; see driver_table.h. */
#include "driver_table.h"

#include <string.h>

#include "kernel_image.h"

static const struct driver_table *cu;
static CUmodule module;

int table_start(const struct driver_table *table) {
  CUdevice device;
  CUcontext context;
  CUresult result;
  cu = table;
  if ((result = cu->init(0)) || (result = cu->device_get(&device, 0)) ||
      (result = cu->primary_retain(&context, device)) || (result = cu->set_current(context)))
    return (int)result;
  return (int)cu->module_load_data(&module, kernel_image());
}

int table_alloc(uint64_t *address, size_t bytes) {
  CUdeviceptr allocated = 0;
  CUresult result = cu->mem_alloc(&allocated, bytes);
  *address = allocated;
  return (int)result;
}

int table_release(uint64_t address) { return (int)cu->mem_free(address); }

int table_to_device(uint64_t address, const void *host, size_t bytes) {
  return (int)cu->copy_to_device(address, host, bytes);
}

int table_to_host(void *host, uint64_t address, size_t bytes) {
  return (int)cu->copy_to_host(host, address, bytes);
}

int table_launch(const char *kernel, unsigned blocks, void **parameters) {
  CUfunction function;
  CUresult result = cu->module_function(&function, module, kernel);
  if (result != CUDA_SUCCESS)
    return (int)result;
  return (int)cu->launch_kernel(function, blocks, 1, 1, DEVICE_BLOCK_THREADS, 1, 1, 0, NULL, parameters,
                                NULL);
}

int table_finish(void) { return (int)cu->synchronize(); }
