/*
 * cuda_abi.h - cuda.h with every ABI version visible, and stand-ins for the types of newer drivers' functions
 * that older headers (from CUDA 12.0) lack, so that every build hooks every function. These types are only
 * ever passed on by pointer or are handles, so their contents don't matter.
 */
#ifndef GS_CUDA_ABI_H
#define GS_CUDA_ABI_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#if CUDA_VERSION < 12000
#error "gpushare needs the headers of CUDA 12.0 or later"
#endif
#if CUDA_VERSION < 12020
typedef struct gs_opaque_graph_node_params CUgraphNodeParams;
#endif
#if CUDA_VERSION < 12030
typedef struct gs_opaque_edge_data CUgraphEdgeData;
#endif
#if CUDA_VERSION < 12040
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
#endif
#if CUDA_VERSION < 12050
typedef struct gs_opaque_ctx_create_params CUctxCreateParams;
#endif
#if CUDA_VERSION < 12080
typedef struct gs_opaque_memcpy_attributes CUmemcpyAttributes;
typedef struct gs_opaque_memcpy3d_batch_op CUDA_MEMCPY3D_BATCH_OP;
typedef struct gs_opaque_decompress_params CUmemDecompressParams;
#endif
#if CUDA_VERSION < 13000
#define CU_MEM_ALLOCATION_TYPE_MANAGED ((CUmemAllocationType)2)
#endif
#if CUDA_VERSION < 13020
typedef struct gs_opaque_cig_capture_params CUstreamCigCaptureParams;
#endif
#if CUDA_VERSION < 13030
typedef CUresult (*CUgraphRecaptureCallback)(void);
#endif
#if CUDA_VERSION < 13050
typedef struct gs_opaque_fabric_copy_op CUDA_FABRIC_COPY_BATCH_OP;
#endif

/* The stream that a NULL handle means in the _ptsz functions. */
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#endif
