/*
 * fakert.h - a stand-in for the CUDA runtime, for tests without one: like it, it opens libcuda.so.1 itself
 * and gets all of the driver through cuGetProcAddress. Built as a static and as a shared library. Returns 0
 * or the driver's error code.
 */
#ifndef TEST_FAKERT_H
#define TEST_FAKERT_H

#include <stddef.h>

enum frt_copy { FRT_TO_DEVICE, FRT_TO_HOST };

int frt_malloc(void **address, size_t bytes);
int frt_free(void *address);
int frt_memcpy(void *to, const void *from, size_t bytes, enum frt_copy kind);
int frt_launch(const char *kernel, unsigned blocks, unsigned threads, void **parameters);
int frt_synchronize(void);

#endif
