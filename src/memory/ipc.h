/*
 * ipc.h - CUDA IPC of memory that can leave the card (cuIpcGetMemHandle and its like), which the driver knows
 * only as mappings: our own handles, of the same 64 bytes, say which process to ask, and for what. That
 * process answers with a descriptor of each piece's memory (swap/lending.h). Handles of the driver's own
 * memory are the driver's.
 *
 * Both processes need this library and one user, and see each other's abstract sockets: one network
 * namespace.
 *
 * Threading: any thread.
 */
#ifndef GS_IPC_H
#define GS_IPC_H

#include <stdbool.h>

#include "driver/cuda_abi.h"
#include "memory/ledger.h"

/* Whether a handle can be had for the allocation. */
bool ipc_can_share(const struct allocation *allocation);

#endif
