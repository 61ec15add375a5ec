/*
 * memory.h - all memory that the driver knows: blocks of address space with real bytes, and allocations in
 * them.
 *
 * As in the real driver, an allocation smaller than 2 MiB shares a 2 MiB block with others of its kind, in
 * steps of 512 bytes. Residency, placement advice and the room that plain memory takes are those of whole 2
 * MiB pages.
 *
 * One lock (inside) protects it all. No function here calls back, or waits for streams.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "process.h"

enum memory_kind {
  MEMORY_PLAIN,
  MEMORY_MANAGED,
  MEMORY_HOST,
  MEMORY_REGISTERED,
  MEMORY_RESERVED,
  MEMORY_ARRAY
};

enum { PAGE_NO_GPU = -1, PREFER_NOTHING = -1, PREFER_HOST = -2 };

struct page {
  int32_t frame;
  int8_t gpu;           /* the card where it was last */
  int8_t preferred;     /* a card, or PREFER_ */
  int8_t last_prefetch; /* a card, or PREFER_ */
  uint8_t accessed_by;  /* one bit per card */
  bool populated;       /* it has contents somewhere */
};

struct memory_request {
  enum memory_kind kind;
  unsigned gpu;
  CUcontext context;
  CUmemoryPool pool;
  size_t bytes;
  unsigned flags;
  bool unpinned; /* plain memory of a graph: what it takes of the card is counted by graph_memory.c */
};

/* What is known of an address. */
struct memory_info {
  enum memory_kind kind;
  unsigned gpu;
  CUcontext context;
  CUmemoryPool pool;
  CUdeviceptr base; /* of the allocation; of the whole reservation for MEMORY_RESERVED */
  size_t bytes;
  CUdeviceptr block_base;
  size_t block_bytes;
  uint64_t id, block_id;
  unsigned flags;
  bool sync_memops;
  bool leaving; /* freed in stream order: to the program it is gone */
};

CUresult memory_allocate(const struct memory_request *request, CUdeviceptr *address);
/* Adopt host memory of the program (cuMemHostRegister), or address space (cuMemAddressReserve). */
CUresult memory_adopt(const struct memory_request *request, CUdeviceptr address);
/* Exactly one of the allowed kinds, by the start of the allocation; else CUDA_ERROR_INVALID_VALUE. */
CUresult memory_free(CUdeviceptr address, unsigned kinds);
#define KIND_BIT(kind) (1u << (kind))

/* What was made without taking room on the card takes it now, once. */
CUresult memory_pin(CUdeviceptr address);

bool memory_find(CUdeviceptr address, struct memory_info *info);
/* Freed in stream order from now on, or not after all. False if it was already. */
bool memory_set_leaving(CUdeviceptr address, bool leaving);
/* False unless it is in device memory. */
bool memory_set_sync_memops(CUdeviceptr address, bool value);
/* Whether all of the range is known memory. */
bool memory_covers(CUdeviceptr address, size_t bytes);
/* Whether a range that begins in device memory goes beyond its allocation: the driver refuses that, measured
 * to the byte for copies and sets of one and two dimensions. */
bool memory_exceeds(CUdeviceptr address, size_t bytes);
bool memory_is_device(const struct memory_info *info);

/* Free all that a context or pool owns. */
void memory_free_context(CUcontext context);
void memory_free_pool(CUmemoryPool pool);

struct pool_usage {
  uint64_t reserved, used, reserved_high, used_high;
};
void memory_pool_usage(CUmemoryPool pool, struct pool_usage *usage, bool reset_reserved, bool reset_used);
void memory_pool_trim(CUmemoryPool pool, uint64_t keep_bytes);

/* ---- managed pages (managed.c); both ends are rounded to pages ---- */

/* The GPU accesses [address, address + bytes): returns what bringing it there costs, in scaled ns. */
uint64_t managed_touch(CUdeviceptr address, size_t bytes, unsigned gpu);

enum page_visit { VISIT_GO_ON, VISIT_STOP };
typedef enum page_visit (*page_visitor)(struct page *page, uint64_t key, void *context);
/* Calls the visitor for each managed page of the range, with the memory locked. */
void memory_visit_pages(CUdeviceptr address, size_t bytes, page_visitor visit, void *context);

#endif
