/*
 * device.h - what a small test program needs of a GPU, whichever way it reaches the driver. One
 * implementation per linking mode (mode_*.c); one workload for all of them (workload.c).
 *
 * Functions return 0 or the driver's error code.
 */
#ifndef TEST_DEVICE_H
#define TEST_DEVICE_H

#include <stddef.h>
#include <stdint.h>

struct device {
  const char *mode;
  int (*start)(void); /* load, initialize, make the first GPU's context current, get the kernels */
  int (*alloc)(uint64_t *address, size_t bytes);
  int (*release)(uint64_t address);
  int (*to_device)(uint64_t address, const void *host, size_t bytes);
  int (*to_host)(void *host, uint64_t address, size_t bytes);
  int (*launch)(const char *kernel, unsigned blocks, void **parameters);
  int (*finish)(void); /* wait for all work */
};

/* The whole program: arguments BYTES ROUNDS. Says "ready", waits for a line, works, verifies, says "ok". */
int workload_main(const struct device *device, int argc, char **argv);

/* Threads per block of every launch. */
#define DEVICE_BLOCK_THREADS 256

#endif
