/*
 * opened.h - memory of other processes that this one has opened by CUDA IPC: its mappings, and their ends.
 *
 * Large memory makes way while this process is stopped, if all of it allows that (backend_opened, a user as
 * lending.h says): it counts as this process' own that can leave. To leave, it is unmapped, and the maker's
 * leave says when its room is free. To come back, it is asked for anew, at the same address. Other memory
 * that is opened stays on the card, and the maker counts it as pinned.
 *
 * If the maker ends, the memory is an orphan: this process counts it as pinned, once for each block. If the
 * maker ends, or frees the memory, while that has left, its contents are gone, as CUDA IPC has it; work that
 * touches it fails.
 *
 * Threading: any thread.
 */
#ifndef GS_OPENED_H
#define GS_OPENED_H

#include <poll.h>
#include <stdbool.h>

#include "common/abstract_socket.h"
#include "memory/backend.h"
#include "memory/swap/lending.h"

#define IPC_MAGIC UINT64_C(0x6370695f75706773)
#define IPC_MAGIC_USER (IPC_MAGIC + 1)

/* What a CUipcMemHandle of ours is. The same allocation always has the same. */
struct ipc_handle {
  uint64_t magic;
  uint64_t number; /* of the socket */
  uint64_t key;
  struct lent_name name;
  uint64_t at, bytes; /* of the allocation, in the block */
};
_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "it fits");

/* The first packet of who opens it. IPC_MAGIC_USER: of a user. */
struct ipc_request {
  uint64_t magic, key;
  struct lent_name name;
};

static inline struct abstract_name ipc_name(uint64_t number) { return (struct abstract_name){"ipc", number}; }

/* Wait for the other side. False: not within that time (UINT64_MAX: for ever). */
bool ipc_await(const struct descriptor *other, short events, uint64_t patience_ns);

/* `watch`: from now on opened_leases may have another one to wait for. Returns at once. */
void opened_set_watch(void (*watch)(void));

CUresult opened_open(CUdeviceptr *address, const struct ipc_handle *handle, CUdevice device,
                     CUcontext context);

/* False: it is none of these. */
bool opened_close(CUdeviceptr address);

/* Leases to wait for, by poll(2): how many. */
nfds_t opened_leases(struct pollfd *awaited, nfds_t most);

/* Look at them. Devices where memory counts as pinned from now on are added to the mask: the daemon is to be
 * asked (budget_ask). */
void opened_look(uint64_t *noted);

/* Whether there is memory that is to be there while the process runs. */
bool opened_makes_way(CUdevice device);

/* The context is gone: so is what was opened in it. */
void opened_context_left(CUcontext context);

/* What is the context's is the heir's from now on. */
void opened_context_inherited(CUcontext context, CUcontext heir);

#endif
