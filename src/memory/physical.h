/*
 * physical.h - what others may ask about memory of cuMemCreate: its mappings, as a pointer shows them; and
 * that the driver must know a handle.
 *
 * Threading: any thread.
 */
#ifndef GS_PHYSICAL_H
#define GS_PHYSICAL_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* The rights of a location there. False: no such mapping, the driver knows. */
bool physical_access(CUdeviceptr address, const CUmemLocation *location, unsigned long long *flags,
                     CUresult *result);

struct physical_view {
  CUdeviceptr base; /* of the reserved addresses around it */
  uint64_t bytes;
  CUmemAllocationHandleType types; /* that it may be exported as */
  uint8_t rights;                  /* of the current device: CUmemAccess_flags */
};

/* False: nothing that we know is mapped there. */
bool physical_describe(CUdeviceptr address, struct physical_view *view);

/* The handle is about to be given to the driver, which must know it: memory of ours stays on the card from
 * now on, and *handle is the driver's. Waits for work that may use the memory, and for room on the card. */
CUresult physical_give(CUmemGenericAllocationHandle *handle);

/* The same of what is mapped at the address, or in a range from there on. */
CUresult physical_give_range(CUdeviceptr address, uint64_t bytes);

#endif
