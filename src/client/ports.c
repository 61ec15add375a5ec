/* ports.c - what the rooms above the client need of it, and the gate of memory. */
#include "client/client.h"
#include "client/client_state.h"
#include "gate/gate_port.h"
#include "memory/memory.h"
#include "memory/memory_port.h"

const struct gate_port gate_port = {
    .attach = client_attach,
    .context_added = client_context_added,
    .want = client_want,
    .submits = client_submits,
    .is_stopped = client_is_stopped,
    .await_go = client_await_go,
    .context_leaving = memory_context_leaving,
    .context_left = memory_context_left,
    .context_destroyed = memory_context_destroyed,
    .green_context_destroyed = memory_green_context_destroyed,
    .context_gone = memory_context_gone,
};

const struct memory_port memory_port = {
    .mode = client_memory_mode,
    .capacity = client_capacity,
    .bounds = client_bounds,
    .request = client_memory_request,
    .report = client_memory_report,
    .room_bytes = client_room_bytes,
    .room_wait = client_room_wait,
    .room_await = client_room_await,
    .order_moves = client_order_moves,
    .wake_timers = client_wake,
    .falls_short = client_memory_short,
    .is_stopped = client_is_stopped,
};
