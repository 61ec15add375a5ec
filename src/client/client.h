/*
 * client.h - the connection to the daemon: registers this process, asks for the lock, obeys DROP_LOCK.
 *
 * Devices are CUdevice ordinals (as the process sees them), 0 .. GS_GPUS_PER_CLIENT-1.
 * Threading: every function here may be called from any thread. Nothing here is called on the hot path.
 */
#ifndef GS_CLIENT_H
#define GS_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "gpushare/protocol.h"
#include "memory/memory_port.h"

/* What the gate needs: gate_port.h tells what each does. */
void client_attach(CUdevice device);
void client_context_added(CUdevice device);
void client_want(CUdevice device);
void client_submits(CUdevice device);
bool client_is_stopped(CUdevice device);
void client_await_go(CUdevice device);

/* What memory needs: memory_port.h tells what each does. */
int client_memory_mode(CUdevice device);
uint64_t client_capacity(CUdevice device);
struct memory_bounds client_bounds(CUdevice device);
int client_memory_request(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                          _Atomic uint64_t *seen_ns);
void client_memory_report(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes);
uint64_t client_room_bytes(CUdevice device);
bool client_room_wait(CUdevice device, uint64_t bytes);
bool client_room_await(CUdevice device, uint64_t bytes, uint64_t deadline_ns);
void client_order_moves(CUdevice device);
void client_memory_short(CUdevice device, uint64_t bytes);

/* Around a fork, in the parent. */
void client_fork_prepare(void);
void client_fork_parent(void);

/* In the child of a fork: close the parent's connection and start as a fresh process. */
void client_fork_child(void);

#endif
