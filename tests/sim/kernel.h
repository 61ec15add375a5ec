/* kernel.h - the table of built-in kernels, and the handles that programs have for them. */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include "objects.h"

struct walk;

struct kernel {
  const char *name;
  unsigned args; /* all of 64 bits */
  void (*run)(struct walk *walk);
};

extern const struct kernel kernels[];
extern const size_t kernel_count;

enum { LEGACY_PARAMETER_BYTES = KERNEL_ARGS * 8 };

/* CUfunction; a CUkernel is the same, so that one may be cast to the other as with the real driver. */
struct CUfunc_st {
  const struct kernel *kernel;
  CUmodule module;
  CUlibrary library;
  uint64_t legacy_parameters[KERNEL_ARGS]; /* cuParamSet* */
};

/* Parameters in either form into work. CUDA_ERROR_INVALID_VALUE if there are too few. */
CUresult kernel_bind(struct work *work, CUfunction function, void **kernel_params, void **extra);

#endif
