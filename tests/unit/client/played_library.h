/*
 * played_library.h - what the client asks of the rest of the library, for a program on one GPU of which the
 * client is all that there is. Include it once; played_assert() is what the program calls when something is
 * wrong.
 */
#ifndef GS_TEST_PLAYED_LIBRARY_H
#define GS_TEST_PLAYED_LIBRARY_H

#include "client/client.h"
#include "client/client_state.h"
#include "client/fork.h"
#include "common/lock.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "memory/device.h"
#include "memory/memory.h"
#include "preempt/preempt.h"
#include "settings.h"

struct driver driver;
void driver_settle(void) {}
void preempt_begin(void) {}
static struct settings set = {.socket = "/nonexistent"};

static bool gate_used, gate_opened;
static bool has_room; /* a daemon says how much may be on the card */
static bool in_context;
static unsigned away_steps;  /* so many are left until all memory is on the card */
static unsigned short_steps; /* of these: so many find the card full */
static unsigned steps_at_open;
static unsigned steps;
static bool locked;    /* somebody holds the memory's lock */
static unsigned waits; /* calls that may have to wait for him */

const struct settings *settings(void) { return &set; }
void settings_complain(void) {}

void fork_watch(void) {}
void gate_add(CUdevice device) { gate_used |= device == 0; }
bool gate_is_used(CUdevice device) { return device == 0 && gate_used; }
bool gate_is_open(CUdevice device) { return device == 0 && gate_opened; }
void gate_open(CUdevice device) {
  gate_opened |= device == 0;
  steps_at_open = steps;
}
bool gate_close(CUdevice device, uint64_t timeout_ns) {
  gate_opened &= device != 0;
  return device == 0 && timeout_ns;
}
static unsigned gate_pulsed;
static bool may_pass_once; /* who waits may pass by a pulse */
bool gate_revoke_pulse(CUdevice device, uint64_t timeout_ns) {
  may_pass_once &= device != 0;
  return device == 0 && timeout_ns;
}
void gate_pulse(CUdevice device) {
  gate_pulsed += device == 0;
  may_pass_once |= device == 0;
}
uint64_t gate_pulses(CUdevice device) { return device ? 0 : gate_pulsed; }
static unsigned at_gate; /* threads that wait there */
uint32_t gate_waiting(CUdevice device) { return device ? 0 : at_gate; }
static unsigned waits_prepared;
/* It may take long: nobody may hold the lock meanwhile. */
void gate_wait_prepare(void) {
  played_assert(lock_try(&client.lock));
  lock_release(&client.lock);
  waits_prepared++;
}
void gate_wait_begin(CUdevice device, uint32_t what) {
  (void)device, (void)what;
  played_assert(waits_prepared > 0);
}
void gate_wait_end(void) {}
static uint32_t waits_for; /* another thread: enum gate_wait */
uint32_t gate_waits(CUdevice device, uint32_t what) { return device ? 0 : waits_for & what; }
static uint64_t reached_from; /* these devices */
uint64_t gate_reached_from(CUdevice device) { return device ? 0 : reached_from; }
bool gate_is_kept(CUdevice device) { return device != 0; }
static _Atomic uint64_t calls_made;
uint64_t gate_calls(void) { return calls_made; }
static _Atomic bool told_of; /* the next call is to be told of */
void gate_watch(CUdevice device, bool watch) { told_of = device == 0 && watch; }
bool gate_in_flight(void) { return false; }

bool contexts_any(CUdevice device, void (*action)(void *argument), void *argument) {
  in_context = device == 0;
  action(argument);
  in_context = false;
  return true;
}
bool contexts_make_own(CUdevice device) { return device == 0; }
bool contexts_has_own(CUdevice device) { return device == 0; }
static bool forbidden;         /* a call waits in the driver for work */
static bool ends_if_forbidden; /* the work, once it is known that it can't be stopped */
static bool endless, stands_still;
bool gate_stop_is_forbidden(void) {
  endless &= !(forbidden && ends_if_forbidden);
  return forbidden;
}
bool gate_reaches_others(CUdevice device) { return device != 0; }

/* Whether work can be stopped, whether it ends by itself, and what has become of it. */
static enum preempt_verdict verdict = PREEMPT_NO;
static int stop_err;
static _Atomic unsigned stops, trials;
enum preempt_verdict preempt_verdict(int device) { return device == 0 ? verdict : PREEMPT_NO; }
int preempt_try(int device) {
  trials += device == 0;
  return 0;
}
int preempt_stop(int device) {
  stops += device == 0;
  stands_still = stop_err == 0;
  return stop_err;
}
int preempt_go(int device) {
  stands_still &= device != 0;
  return 0;
}
static _Atomic uint64_t sliced_us;
static _Atomic unsigned slicings;
static bool slices_refused;
int preempt_slice(int device, uint64_t us) {
  if (device == 0)
    sliced_us = us;
  slicings++;
  return slices_refused ? -ENOTSUP : 0;
}
bool preempt_slices(int device) { return preempt_verdict(device) == PREEMPT_YES && !slices_refused; }
void gate_take(void) {}

static uint64_t synchronized; /* these devices */
static unsigned synchronizations, captures_open;
/* That would invalidate captures. */
void contexts_synchronize(CUdevice device) {
  played_assert(captures_open == 0);
  synchronized |= UINT64_C(1) << device;
  synchronizations += device == 0;
}
static void (*on_ask)(void); /* once, when it is asked what the streams do */
enum streams_state streams_ask(CUdevice device) {
  void (*called)(void) = on_ask;
  on_ask = NULL;
  if (called)
    called();
  return device ? STREAMS_UNKNOWN : endless ? STREAMS_BUSY : STREAMS_FINISHED;
}
unsigned capture_count(void) { return captures_open; }
void capture_forbid(void) {}
void capture_allow(void) {}
/* They end in the end. */
bool capture_wait_none(uint64_t timeout_ns) {
  captures_open = timeout_ns == UINT64_MAX ? 0 : captures_open;
  return captures_open == 0;
}

static struct memory_usage there;
struct memory_usage memory_usage(CUdevice device) {
  return device ? (struct memory_usage){0} : there;
}
void memory_pinned_arrives(CUdevice device, uint64_t bytes) { (void)device, (void)bytes; }
uint32_t memory_attach_flags(CUdevice device) { return device < 0 ? GS_ATTACH_DEFAULT : 0; }
bool memory_may_stop(CUdevice device) { return device == 0; }
static bool refuses; /* every move, until that is given up */
void memory_give_up(CUdevice device) {
  played_assert(in_context && device == 0);
  refuses = false;
}
void memory_prepare_stop(CUdevice device) { (void)device; }
enum memory_progress memory_land(CUdevice device) { return device ? MEMORY_SHORT : MEMORY_SETTLED; }
static bool closed_drained;
void memory_close(CUdevice device, bool drained) { closed_drained = device == 0 && drained; }
void memory_expect_moves(CUdevice device, bool expected) { (void)device, (void)expected; }
bool memory_expects_moves(CUdevice device) { return device && false; }
void memory_set_host_tight(bool tight) { (void)tight; }
void memory_set_host_copies(enum gs_host_copies mode) { (void)mode; }
uint64_t memory_run_timers(uint64_t now_ns) { return now_ns; }

static bool at_target; /* the program has what is enough */
static bool is_there(CUdevice device) { return device == 0 && !away_steps && !refuses; }
bool memory_open(CUdevice device, uint64_t enough_bytes) {
  waits++;
  return is_there(device) && (at_target || !enough_bytes);
}
bool memory_try_open(CUdevice device, uint64_t enough_bytes) {
  return is_there(device) && !locked && enough_bytes;
}

struct gs_pass memory_pass(CUdevice device) {
  return (struct gs_pass){.name = (uint64_t)device + 1, .key = 2};
}
static struct memory_heir heir; /* of what leaves with the next step */
void memory_set_heir(CUdevice device, const struct memory_heir *told) { heir = device ? heir : *told; }
void memory_expect_passed(CUdevice device, bool expects) { (void)device, (void)expects; }
static int forks_prepared;
void memory_fork_prepare(void) { forks_prepared++; }
void memory_fork_parent(void) { forks_prepared--; }

enum memory_progress memory_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  played_assert(in_context && device == 0 && (room_bytes == UINT64_MAX || has_room));
  steps++;
  if (refuses)
    return MEMORY_FAILED;
  if (!away_steps)
    return MEMORY_SETTLED;
  if (short_steps) {
    short_steps--;
    return MEMORY_SHORT;
  }
  moved->in_bytes++;
  away_steps--;
  return MEMORY_MOVED;
}

#endif
