/* array.h - arrays: linear memory of the card with a shape. */
#ifndef SIM_ARRAY_H
#define SIM_ARRAY_H

#include "memory.h"

struct CUarray_st {
  CUDA_ARRAY3D_DESCRIPTOR shape;
  size_t element_bytes;
  size_t pitch, slice; /* bytes per row, per layer */
  size_t bytes;
  CUdeviceptr at;
};

#endif
