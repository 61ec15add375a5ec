/*
 * cuda_abi.h - cuda.h with every ABI version visible, and the types that newer drivers' functions use but
 * older headers (from CUDA 12.0) lack. Only ever passed on by pointer, so an incomplete type will do.
 */
#ifndef GS_CUDA_ABI_H
#define GS_CUDA_ABI_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#if CUDA_VERSION < 12000
#error "gpushare needs the headers of CUDA 12.0 or later"
#endif

/* The stream that a NULL handle means in the _ptsz functions. */
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#endif
