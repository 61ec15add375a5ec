/* launch.c - every way to launch a kernel. */
#include <string.h>

#include "kernel.h"

static CUresult bind_buffer(struct work *work, unsigned args, void **extra) {
  const void *buffer = NULL;
  size_t size = 0;
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[1];
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = *(const size_t *)extra[1];
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (args > 0 && (buffer == NULL || size < args * 8))
    return CUDA_ERROR_INVALID_VALUE;
  if (args > 0)
    memcpy(work->kernel.args, buffer, args * 8);
  return CUDA_SUCCESS;
}

CUresult kernel_bind(struct work *work, CUfunction function, void **kernel_params, void **extra) {
  if (function == NULL || (kernel_params && extra))
    return CUDA_ERROR_INVALID_VALUE;
  *work = (struct work){.kind = WORK_KERNEL};
  work->kernel.kernel = function->kernel;
  if (kernel_params == NULL)
    return bind_buffer(work, function->kernel->args, extra);
  for (unsigned i = 0; i < function->kernel->args; i++)
    memcpy(&work->kernel.args[i], kernel_params[i], 8);
  return CUDA_SUCCESS;
}

static void (*_Atomic callback)(void);

void gs_sim_set_callback(void (*wanted)(void)) { callback = wanted; }

struct shape {
  unsigned grid[3], block[3];
};

static bool shape_fits(const struct shape *shape) {
  uint64_t threads = (uint64_t)shape->block[0] * shape->block[1] * shape->block[2];
  return shape->grid[0] && shape->grid[1] && shape->grid[2] && threads >= 1 && threads <= 1024;
}

static CUresult launch(CUstream handle, CUfunction function, const struct shape *shape, void **params,
                       void **extra) {
  struct work work;
  CUstream stream;
  void (*called)(void) = callback;
  if (called)
    called();
  CUresult result = stream_resolve(handle, &stream);
  if (result == CUDA_SUCCESS)
    result = kernel_bind(&work, function, params, extra);
  if (result == CUDA_SUCCESS && !shape_fits(shape))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  work.gpu = stream->context->gpu;
  memcpy(work.kernel.grid, shape->grid, sizeof work.kernel.grid);
  return stream_submit(stream, &work);
}

#define SHAPE (&(struct shape){{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}})
#define CONFIG_SHAPE                                                                                         \
  (&(struct shape){{config->gridDimX, config->gridDimY, config->gridDimZ},                                   \
                   {config->blockDimX, config->blockDimY, config->blockDimZ}})

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
  (void)sharedMemBytes;
  return launch(hStream, f, SHAPE, kernelParams, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void **kernelParams, void **extra) {
  (void)sharedMemBytes;
  return launch(PER_THREAD(hStream), f, SHAPE, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams) {
  (void)sharedMemBytes;
  return launch(hStream, f, SHAPE, kernelParams, NULL);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                        void **kernelParams) {
  (void)sharedMemBytes;
  return launch(PER_THREAD(hStream), f, SHAPE, kernelParams, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  return launch(config->hStream, f, CONFIG_SHAPE, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                               void **extra) {
  return launch(PER_THREAD(config->hStream), f, CONFIG_SHAPE, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices,
                                              unsigned int flags) {
  (void)flags;
  for (unsigned i = 0; i < numDevices; i++) {
    const CUDA_LAUNCH_PARAMS *p = &launchParamsList[i];
    CUresult result = launch(
        p->hStream, p->function,
        &(struct shape){{p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ}},
        p->kernelParams, NULL);
    if (result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

/* ---- the ways of CUDA 1: parameters are set one by one ---- */

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  (void)hfunc;
  return x > 0 && y > 0 && z > 0 ? process_check() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  (void)hfunc, (void)bytes;
  return process_check();
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  (void)hfunc;
  return numbytes <= LEGACY_PARAMETER_BYTES ? process_check() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes) {
  if (offset < 0 || (unsigned)offset + numbytes > LEGACY_PARAMETER_BYTES)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy((char *)hfunc->legacy_parameters + offset, ptr, numbytes);
  return process_check();
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

static CUresult launch_legacy(CUfunction function, int width, int height, CUstream stream) {
  void *params[KERNEL_ARGS];
  if (function == NULL || width <= 0 || height <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < KERNEL_ARGS; i++)
    params[i] = &function->legacy_parameters[i];
  return launch(stream, function, &(struct shape){{(unsigned)width, (unsigned)height, 1}, {1, 1, 1}}, params,
                NULL);
}

CUresult cuLaunch(CUfunction f) { return launch_legacy(f, 1, 1, NULL); }
CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch_legacy(f, grid_width, grid_height, NULL);
}
CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch_legacy(f, grid_width, grid_height, hStream);
}
