/* reach.c - the ranges of copies and sets, looked up in the ledger; and access between cards. */
#include "memory/reach.h"

#include "common/lock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/contexts.h"
#include "gpushare/protocol.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/swap/blocks.h"

static struct reach both(struct reach a, struct reach b) {
  return (struct reach){.gpus = a.gpus | b.gpus, .beyond = a.beyond || b.beyond};
}

/* Why the block is asked for last: what is in one, and in no allocation, has been freed. */
struct reach reach_range(CUdeviceptr address, uint64_t bytes) {
  struct allocation found;
  if (!block_may_contain(address))
    return REACH_NOTHING;
  if (!ledger_find(&account_addresses, address, &found))
    return (struct reach){.beyond = bytes && block_contains(address)};
  if (!found.backend->hidden)
    return REACH_NOTHING;
  struct reach reach = {.gpus = found.stays ? 0 : UINT64_C(1) << found.device};
  uint64_t rest_bytes = found.base + found.span - address;
  while (bytes > rest_bytes && allocation_is_mapping(&found)) { /* often mapped side by side */
    address += rest_bytes;
    bytes -= rest_bytes;
    if (!ledger_find(&account_addresses, address, &found) || !found.backend->hidden)
      return reach;
    reach.gpus |= found.stays ? 0 : UINT64_C(1) << found.device;
    rest_bytes = found.base + found.span - address;
  }
  reach.beyond = bytes > rest_bytes;
  return reach;
}

struct reach reach_pair(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  return both(reach_range(to, bytes), reach_range(from, bytes));
}

struct reach reach_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count) {
  struct reach reach = REACH_NOTHING;
  for (size_t i = 0; to && from && bytes && i < count; i++)
    reach = both(reach, reach_pair(to[i], from[i], bytes[i]));
  return reach;
}

/* ---- boxes ---- */

static uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
static uint64_t multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

struct box {
  uint64_t width, height, depth; /* bytes, rows, layers */
};

/* From the byte at x in row y of layer z on: to the last byte that is touched, not to the end of its row. */
static struct reach box_at(CUdeviceptr base, uint64_t pitch, uint64_t rows, uint64_t x, uint64_t y,
                           uint64_t z, const struct box *box) {
  if (!box->width || !box->height || !box->depth)
    return REACH_NOTHING;
  uint64_t first = add(multiply(add(multiply(z, rows), y), pitch), x);
  uint64_t last_row = add(multiply(box->depth - 1, rows), box->height - 1);
  uint64_t end = add(add(first, multiply(last_row, pitch)), box->width);
  return reach_range(base, end);
}

struct reach reach_set(CUdeviceptr to, uint64_t pitch, uint64_t element_bytes, uint64_t width,
                       uint64_t height) {
  return box_at(to, pitch, 0, 0, 0, 0, &(struct box){multiply(element_bytes, width), height, 1});
}

struct reach reach_set_node(const CUDA_MEMSET_NODE_PARAMS *set) {
  return set ? reach_set(set->dst, set->pitch, set->elementSize, set->width, set->height) : REACH_NOTHING;
}

static bool is_linear(CUmemorytype type) {
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

#define END(copy, end, rows, z, box)                                                                         \
  (is_linear((copy)->end##MemoryType) ? box_at((copy)->end##Device, (copy)->end##Pitch, rows,                \
                                               (copy)->end##XInBytes, (copy)->end##Y, z, box)                \
                                      : REACH_NOTHING)

struct reach reach_2d(const CUDA_MEMCPY2D *copy) {
  if (!copy)
    return REACH_NOTHING;
  struct box box = {copy->WidthInBytes, copy->Height, 1};
  return both(END(copy, dst, 0, 0, &box), END(copy, src, 0, 0, &box));
}

#define REACH_3D(copy)                                                                                       \
  if (!(copy))                                                                                               \
    return REACH_NOTHING;                                                                                    \
  struct box box = {(copy)->WidthInBytes, (copy)->Height, (copy)->Depth};                                    \
  return both(END(copy, dst, (copy)->dstHeight, (copy)->dstZ, &box),                                         \
              END(copy, src, (copy)->srcHeight, (copy)->srcZ, &box));

struct reach reach_3d(const CUDA_MEMCPY3D *copy) {
  REACH_3D(copy)
}
struct reach reach_3d_peer(const CUDA_MEMCPY3D_PEER *copy) {
  REACH_3D(copy)
}

#if CUDA_VERSION >= 12080
/* Beside an array, widths count its elements, whose size is not known here. */
static struct reach reach_operand(const CUmemcpy3DOperand *operand, const struct box *box) {
  if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
    return REACH_NOTHING;
  uint64_t pitch = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : box->width;
  uint64_t rows = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : box->height;
  return box_at(operand->op.ptr.ptr, pitch, rows, 0, 0, 0, box);
}

struct reach reach_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
  struct reach reach = REACH_NOTHING;
  for (size_t i = 0; copies && i < count; i++) {
    struct box box = {copies[i].extent.width, copies[i].extent.height, copies[i].extent.depth};
    reach = both(reach, both(reach_operand(&copies[i].dst, &box), reach_operand(&copies[i].src, &box)));
  }
  return reach;
}
#else
/* These headers don't tell what is in it: any of our GPUs. */
struct reach reach_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
  struct reach reach = REACH_NOTHING;
  for (CUdevice device = 0; copies && count && device < GS_GPUS_PER_CLIENT; device++)
    reach.gpus |= atomic_load(&space_of(device)->total_bytes) ? UINT64_C(1) << device : 0;
  return reach;
}
#endif

/* ---- access between cards: the driver opens plain memory to a peer by itself, but not what is mapped by the
 * piece, and a kernel there may touch any of it, so it must be there ---- */

/* Pairs of contexts for which the program has enabled access to the first device from the second. The lock
 * is held while the access is changed, so that the last change is the one that counts. */
static struct lock lock = LOCK(LOCK_PEERS);
static unsigned enabled[DEVICES][DEVICES];

/* False: swap memory is not concerned. */
static bool find_devices(CUcontext owner_context, CUdevice *owner, CUdevice *peer) {
  *owner = contexts_device(owner_context);
  return device_valid(*owner) && device_current(peer, NULL) && *owner != *peer;
}

/* Mappings of memory that can leave, to which the program has given the second device rights. */
static unsigned mapped[DEVICES][DEVICES];

/* Lock held. */
static void link_gates(CUdevice owner, CUdevice peer) {
  bool plain = enabled[owner][peer] && backend_on(owner)->set_peer;
  gate_link(peer, owner, plain || mapped[owner][peer]);
}

void reach_count_mapping(CUdevice owner, CUdevice peer, int change) {
  lock_take(&lock);
  mapped[owner][peer] += (unsigned)change;
  link_gates(owner, peer);
  lock_release(&lock);
}

static void count_access(CUdevice owner, CUdevice peer, int change) {
  void (*set_peer)(CUdevice, CUdevice, bool) = backend_on(owner)->set_peer;
  lock_take(&lock);
  unsigned before = enabled[owner][peer];
  enabled[owner][peer] = change < 0 && !before ? 0 : before + (unsigned)change;
  if (set_peer)
    set_peer(owner, peer, enabled[owner][peer]);
  link_gates(owner, peer);
  lock_release(&lock);
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  CUdevice owner, peer;
  CUresult result = driver.cuCtxEnablePeerAccess(peerContext, Flags);
  if (result == CUDA_SUCCESS && find_devices(peerContext, &owner, &peer))
    count_access(owner, peer, 1);
  return result;
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peerContext) {
  CUdevice owner, peer;
  CUresult result = driver.cuCtxDisablePeerAccess(peerContext);
  if (result == CUDA_SUCCESS && find_devices(peerContext, &owner, &peer))
    count_access(owner, peer, -1);
  return result;
}

static void forget(void) {
  lock = (struct lock)LOCK(LOCK_PEERS);
  for (CUdevice owner = 0; owner < DEVICES; owner++)
    for (CUdevice peer = 0; peer < DEVICES; peer++)
      enabled[owner][peer] = mapped[owner][peer] = 0;
}
IN_FORKED_CHILD(forget);
