/*
 * driver.h - the real driver's functions, by exported name, typed by cuda.h.
 *
 * cuda.h is included with every ABI version visible (__CUDA_API_VERSION_INTERNAL), so a name here is
 * exactly the exported symbol: cuMemAlloc_v2 and cuMemAlloc are two functions. A field is NULL where the
 * driver lacks the function: test it before use unless every driver since CUDA 11.4 (470) has it.
 *
 * Which libcuda.so is the driver is open until one has been initialized (driver_settle): until then a program
 * may close it and open another. So the fields are NULL, but for those of FIRST rows, which driver_prepare
 * fills in anew for each call. From then on the table is constant, and the library stays loaded.
 *
 * Threading: any thread.
 */
#ifndef GS_DRIVER_H
#define GS_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver/cuda_abi.h"

struct driver {
#define GATED(group, name, params, args, stream) CUresult(*name) params;
#define CUSTOM(group, name, params, args) CUresult(*name) params;
#define CALL(name, params) CUresult(*name) params;
#include "driver/hooks.def"
};

extern struct driver driver;

extern _Atomic bool driver_settled;

static inline bool driver_is_settled(void) {
  return atomic_load_explicit(&driver_settled, memory_order_acquire);
}

/* Fill in the fields of FIRST rows from the libcuda.so that is in use now, loading it if there is none.
 * False, and logged, if there is none to load. */
bool driver_prepare(void);

/* The library that driver_prepare has filled in from has been initialized: it is the driver, for good. */
void driver_settle(void);

/* For a call of a function that the table doesn't have: settles if a driver has been initialized past us. The
 * function in the library that is in use, NULL: it lacks it. */
void *driver_find(const char *name);

/* What a kernel's fault makes of a context, or of the process (on driver 580: all of its contexts): nothing
 * works there any more, and nothing runs. */
static inline bool driver_is_fatal(CUresult result) {
  switch (result) {
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_LAUNCH_FAILED:
    return true;
  default:
    return false;
  }
}

struct library;
struct libraries;

/* What the driver needs of a room below it, which defines this. `settling`: the library is the driver from
 * now on. Called as a visitor of the libraries, before the driver counts as settled. */
struct driver_port {
  void (*settling)(const struct library *library);
};
extern const struct driver_port driver_port __attribute__((visibility("hidden")));

/* The program has looked one of our functions up in this library: it is in use. Call as a visitor. */
void driver_prefer(const struct library *library);

/* The one in use, or NULL. Call as a visitor. */
const struct library *driver_in_use(const struct libraries *libraries);

#endif
