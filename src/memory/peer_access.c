/*
 * peer_access.c - access between cards. The driver opens plain memory to a peer by itself; swap memory is
 * mapped piece by piece, each for the cards that may reach it, so it must be told. And a kernel there may
 * touch any of it, so it must be there.
 */
#include "memory/peer_access.h"

#include <pthread.h>

#include "common/lock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/device.h"
#include "memory/swap/swap.h"

/* Pairs of contexts for which the program has enabled access to the first device from the second. The lock
 * is held while the access is changed, so that the last change is the one that counts. */
static struct lock lock = LOCK(LOCK_PEERS);
static unsigned enabled[DEVICES][DEVICES];

/* False: swap memory is not concerned. */
static bool find_devices(CUcontext owner_context, CUdevice *owner, CUdevice *peer) {
  *owner = contexts_device(owner_context);
  return device_valid(*owner) && device_current(peer, NULL) && *owner != *peer;
}

static void count(CUdevice owner, CUdevice peer, int change) {
  bool swap = device_memory(owner) == MEMORY_SWAP;
  lock_take(&lock);
  unsigned before = enabled[owner][peer];
  enabled[owner][peer] = change < 0 && !before ? 0 : before + (unsigned)change;
  swap_set_peer(owner, peer, enabled[owner][peer]);
  gate_link(peer, owner, enabled[owner][peer] && swap);
  lock_release(&lock);
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  CUdevice owner, peer;
  CUresult result = driver.cuCtxEnablePeerAccess(peerContext, Flags);
  if (result == CUDA_SUCCESS && find_devices(peerContext, &owner, &peer))
    count(owner, peer, 1);
  return result;
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peerContext) {
  CUdevice owner, peer;
  CUresult result = driver.cuCtxDisablePeerAccess(peerContext);
  if (result == CUDA_SUCCESS && find_devices(peerContext, &owner, &peer))
    count(owner, peer, -1);
  return result;
}

void peer_access_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_PEERS);
  for (CUdevice owner = 0; owner < DEVICES; owner++)
    for (CUdevice peer = 0; peer < DEVICES; peer++)
      enabled[owner][peer] = 0;
}
