/*
 * driver.h - the real driver's functions, by exported name, typed by cuda.h.
 *
 * cuda.h is included with every ABI version visible (__CUDA_API_VERSION_INTERNAL), so a name here is
 * exactly the exported symbol: cuMemAlloc_v2 and cuMemAlloc are two functions. A field is NULL where the
 * driver lacks the function: test it before use unless every driver since CUDA 11.4 (470) has it.
 *
 * Threading: filled in once by driver_resolve(), which any thread may call at any time; constant afterwards.
 */
#ifndef GS_DRIVER_H
#define GS_DRIVER_H

#include <stdbool.h>

#include "interpose/cuda_abi.h"

struct driver {
#define GATED(group, name, params, args, stream) CUresult(*name) params;
#define CUSTOM(group, name, params, args) CUresult(*name) params;
#define CALL(name, params) CUresult(*name) params;
#include "hooks.def"
};

extern struct driver driver;

/* Find libcuda.so.1 among the loaded libraries and fill in `driver`. True once it is filled in.
 * Allocates nothing, takes no lock of ours. */
bool driver_resolve(void);

/* The same, loading libcuda.so.1 if the process has not done so. */
bool driver_load(void);

#endif
