/*
 * handles.h - memory of cuMemCreate as swap memory: a block whose own addresses the program does not know,
 * and aliases where the program has mapped it. What is done to an alias is done to the pieces that are
 * mapped; the others follow when they come to the card.
 *
 * Threading: any thread; of one block, one call at a time. None waits for longer than a piece moves, but for
 * handle_block_make, and handle_block_exchange, which copies all of the block.
 */
#ifndef GS_HANDLES_H
#define GS_HANDLES_H

#include "driver/cuda_abi.h"
#include "memory/swap/space.h"

/* Whether the device's physical memory can be kept so. */
bool handle_blocks_supported(CUdevice device);

/* A block of `bytes` (a multiple of GRAIN_BYTES). Like an allocation, it waits for room on the card where the
 * process may run. The driver's result, or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult handle_block_make(CUdevice device, uint64_t bytes, struct block **block);

/* No work uses it, and it has no aliases. */
void handle_block_end(struct block *block);

/* From now on the block is at the alias as well, which its maker frees after alias_remove; or not any more.
 * On an error nothing has changed. */
CUresult alias_add(struct block *block, struct alias *alias);
CUresult alias_remove(struct block *block, struct alias *alias);

/* Each device named gets these rights. On an error nothing has changed, as far as the driver goes. */
CUresult alias_set_access(struct block *block, struct alias *alias, const CUmemAccessDesc *access,
                          size_t users);

/* What is shared with others, or otherwise becomes the driver's own, is on the card.
 *
 * Whether the block's memory could be that as it is: it is one piece, which this process has made in such a
 * way that it can be exported. */
bool handle_block_is_exportable(struct block *block);

/* If so: `handle` refers to it, and it stays mapped at the aliases, which the block has no longer. Work may
 * use it meanwhile. On an error the block is as it was. */
CUresult handle_block_give(struct block *block, CUmemGenericAllocationHandle *handle);

/* Otherwise: instead of the block, `handle` (of the same size and device) is what is mapped at the aliases,
 * with the block's contents. `make` makes it once the block's own memory is off the card. No work uses the
 * memory, a context of the device is current. On an error the block is as it was. */
CUresult handle_block_exchange(struct block *block, CUresult (*make)(void *argument), void *argument,
                               const CUmemGenericAllocationHandle *handle);

#endif
