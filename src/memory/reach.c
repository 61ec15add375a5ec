/* reach.c - the addresses of copies, looked up in the ledger. */
#include "memory/reach.h"

#include "gpushare/protocol.h"
#include "memory/account.h"
#include "memory/swap/swap.h"

uint64_t reach_of(CUdeviceptr address) {
  struct allocation found;
  if (!swap_is_used() || !ledger_find(&account_addresses, address, &found) || found.backing != BACKING_SWAP)
    return 0;
  return UINT64_C(1) << found.device;
}

uint64_t reach_pair(CUdeviceptr to, CUdeviceptr from) { return reach_of(to) | reach_of(from); }

uint64_t reach_batch(const CUdeviceptr *to, const CUdeviceptr *from, size_t count) {
  uint64_t reach = 0;
  for (size_t i = 0; to && from && i < count; i++)
    reach |= reach_pair(to[i], from[i]);
  return reach;
}

static uint64_t reach_end(CUmemorytype type, CUdeviceptr address) {
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? reach_of(address) : 0;
}

#define ENDS(copy)                                                                                           \
  ((copy) ? reach_end((copy)->dstMemoryType, (copy)->dstDevice) |                                            \
                reach_end((copy)->srcMemoryType, (copy)->srcDevice)                                          \
          : 0)

uint64_t reach_2d(const CUDA_MEMCPY2D *copy) { return ENDS(copy); }
uint64_t reach_3d(const CUDA_MEMCPY3D *copy) { return ENDS(copy); }
uint64_t reach_3d_peer(const CUDA_MEMCPY3D_PEER *copy) { return ENDS(copy); }

#if CUDA_VERSION >= 12080
static uint64_t reach_operand(const CUmemcpy3DOperand *operand) {
  return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? reach_of(operand->op.ptr.ptr) : 0;
}

uint64_t reach_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
  uint64_t reach = 0;
  for (size_t i = 0; copies && i < count; i++)
    reach |= reach_operand(&copies[i].dst) | reach_operand(&copies[i].src);
  return reach;
}
#else
/* These headers don't tell what is in it: any of our GPUs. */
uint64_t reach_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
  uint64_t reach = 0;
  for (CUdevice device = 0; copies && count && device < GS_GPUS_PER_CLIENT; device++)
    reach |= swap_total_bytes(device) ? UINT64_C(1) << device : 0;
  return reach;
}
#endif
