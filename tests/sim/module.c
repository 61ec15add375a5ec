/* module.c - modules and libraries: any image will do; their functions are the built-in kernels, found by
 * name. */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

struct CUmod_st {
  struct CUfunc_st *functions;
};

struct CUlib_st {
  struct CUfunc_st *functions;
  struct CUmod_st module; /* cuLibraryGetModule */
};

static struct CUfunc_st *functions_create(CUmodule module, CUlibrary library) {
  struct CUfunc_st *functions = calloc(kernel_count, sizeof(*functions));
  for (size_t i = 0; functions && i < kernel_count; i++)
    functions[i] = (struct CUfunc_st){.kernel = &kernels[i], .module = module, .library = library};
  return functions;
}

static struct CUfunc_st *function_find(struct CUfunc_st *functions, const char *name) {
  for (size_t i = 0; i < kernel_count; i++)
    if (strcmp(functions[i].kernel->name, name) == 0)
      return &functions[i];
  return NULL;
}

static CUresult module_create(CUmodule *module) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS)
    return result;
  CUmodule made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->functions = functions_create(made, NULL);
  *module = made;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
  (void)fname;
  return module_create(module);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return image ? module_create(module) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues) {
  (void)numOptions, (void)options, (void)optionValues;
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
  return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleUnload(CUmodule hmod) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  free(hmod->functions);
  free(hmod);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  CUfunction found = function_find(hmod->functions, name);
  if (found)
    *hfunc = found;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
  (void)dptr, (void)bytes, (void)hmod, (void)name;
  return process_check() == CUDA_SUCCESS ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return process_check();
}

/* ---- libraries ---- */

static CUresult library_create(CUlibrary *library) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  CUlibrary made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->functions = functions_create(&made->module, made);
  made->module.functions = made->functions;
  *library = made;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions) {
  (void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
  (void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
  return code ? library_create(library) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
  (void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
  (void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
  return fileName ? library_create(library) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryUnload(CUlibrary library) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  free(library->functions);
  free(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  CUfunction found = function_find(library->functions, name);
  if (found)
    *pKernel = (CUkernel)found;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
  *pMod = &library->module;
  return process_check();
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
  *pFunc = (CUfunction)kernel;
  return process_check();
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  CUresult result = device_check(dev);
  return result == CUDA_SUCCESS ? cuFuncGetAttribute(pi, attrib, (CUfunction)kernel) : result;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  (void)attrib, (void)val, (void)kernel;
  return device_check(dev);
}

/* ---- functions ---- */

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
  *hmod = hfunc->module;
  return process_check();
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
  (void)hfunc;
  *pi = attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return process_check();
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  (void)hfunc, (void)attrib, (void)value;
  return process_check();
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  (void)hfunc, (void)config;
  return process_check();
}

#if CUDA_VERSION >= 12030
CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
  *name = hfunc->kernel->name;
  return process_check();
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc) { return cuFuncGetName(name, (CUfunction)hfunc); }
#endif

#if CUDA_VERSION >= 12040
CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
  if (paramIndex >= func->kernel->args)
    return CUDA_ERROR_INVALID_VALUE;
  *paramOffset = paramIndex * 8;
  if (paramSize)
    *paramSize = 8;
  return process_check();
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
  return cuFuncGetParamInfo((CUfunction)kernel, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncLoad(CUfunction function) {
  (void)function;
  return process_check();
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
  (void)function;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return process_check();
}
#endif

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  (void)func, (void)dynamicSMemSize;
  *numBlocks = blockSize > 0 ? 2048 / blockSize : 0;
  return process_check();
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int flags) {
  (void)flags;
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, func, blockSize, dynamicSMemSize);
}
