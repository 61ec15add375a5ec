/*
 * fake.h - a table of fake driver functions, and the rest of the library as far as the memory room uses it.
 * It books allocations without memory behind them and notes what it was asked to do.
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "settings.h"

#define FAKE_CARD_BYTES (UINT64_C(16) << 30)
#define FAKE_PAGE_BYTES (UINT64_C(2) << 20)
#define FAKE_CONTEXT ((CUcontext)0x100)
#define FAKE_OTHER_CONTEXT ((CUcontext)0x101)
#define FAKE_PEER_CONTEXT ((CUcontext)0x102) /* on the second device */
#define FAKE_OTHER_STREAM ((CUstream)0x11)   /* in the other context; all the rest are in FAKE_CONTEXT */
#define FAKE_DEFAULT_POOL ((CUmemoryPool)0x200)
#define FAKE_UNIFIED_POOL ((CUmemoryPool)0x201) /* the driver's own, of unified memory */

enum fake_kind { FAKE_NONE, FAKE_DEVICE, FAKE_MANAGED, FAKE_POOL, FAKE_MANAGED_POOL };

struct fake {
  /* how it is to behave */
  bool no_concurrent_access; /* the device has no concurrentManagedAccess */
  bool no_managed_pools;     /* a driver before CUDA 13 */
  bool no_mapping;           /* no physical memory that can be mapped */
  int gpus;                  /* visible; 0: the driver does not say, so small memory is not mapped either */
  bool no_peers;             /* none of them can reach another */
  CUresult refuse_peer;
  bool capturing;      /* every stream is */
  bool events_pending; /* no event has completed yet */
  bool streams_busy;   /* one that none of the events is of */
  uint64_t streams_gone;
  CUresult refuse_alloc; /* what allocations answer, until reset */
  CUresult refuse_free;
  CUresult refuse_prefetch;
  bool refuse_batch;
  bool no_context;
  CUdevice current_device; /* of the current context */
  bool other_context_dead;
  int daemon_memory; /* enum gs_memory */
  /* what it was asked */
  unsigned plain_allocs, managed_allocs, pool_allocs, advices, frees, stream_frees, events, trims;
  unsigned prefetches_in, prefetches_out, batches, synchronizations, pool_creates;
  uint64_t bytes_in, bytes_out;
  CUmemAllocationType created_type; /* of the last pool */
  CUstream last_stream;
  CUmemoryPool last_pool;             /* allocated from */
  unsigned strict_calls;              /* own calls made outside the relaxed mode */
  void (*on_prefetch)(void);          /* called within cuMemPrefetchAsync */
  void (*on_trim)(CUmemoryPool pool); /* within cuMemPoolTrimTo */
  void (*on_query)(void);             /* within cuEventQuery */
  unsigned uses_of_dead;              /* pools and events that were gone before the call returned */
  uint64_t reserved_bytes;            /* of every pool */
  uint64_t used_bytes;                /* likewise */
  unsigned pointer_questions, reserved_ranges, access_calls, context_synchronizations;
  uint64_t mapped_bytes;
  CUmemAccessDesc last_access;
  bool linked;             /* the second device's calls need the first one's memory */
  unsigned mode_questions; /* to the daemon, about the first device */
  unsigned room_waits;     /* for memory that can't leave */
  bool over_room;          /* the process may have nothing on the card */
  unsigned move_orders;    /* to the device's worker */
};

extern struct fake fake;

/* What lives at an address. */
enum fake_kind fake_kind(CUdeviceptr address);
cuuint64_t fake_threshold(CUmemoryPool pool);
int fake_follows(CUmemoryPool pool); /* events, for reuse; as last set */
bool fake_pool_destroyed(CUmemoryPool pool);
unsigned fake_live(void);

/* Unified memory that prefetches have moved to the host and not back. */
uint64_t fake_away_bytes(void);
bool fake_is_away(CUdeviceptr address);

/* Of this thread, as it is now. */
CUstreamCaptureMode fake_mode(void);

/* Settings and gate. */
extern bool fake_gate_open;
void fake_set_memory(int mode);

/* The whole table of the driver. */
void fake_install(void);

/* Between the fake's own files: a part of the table, and addresses that nobody has. */
void fake_install_physical(void);
uint64_t fake_new_range(uint64_t bytes);

#endif
