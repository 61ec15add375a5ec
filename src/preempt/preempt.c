/*
 * preempt.c - stop, go and slices of each GPU, and the verdict; see preempt.h.
 *
 * A GPU's `stopped` is what shall be. Whoever changes it, or makes channels, sends what that takes: to those
 * that are not so yet, and to no others. Its lock makes the look and the controls one step. Why to no others:
 * a stop of channels that are stopped already may lose what is being submitted to them, for good (driver 580:
 * tests/gpu/preempt contents hung within 1,000 stops, in the loading of a module).
 */
#include "preempt/preempt.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "common/clock.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"
#include "driver/driver.h"
#include "driver/libraries.h"
#include "gpushare/protocol.h"
#include "preempt/channels.h"
#include "preempt/tap.h"
#include "preempt/trial.h"
#include "settings.h"

/* A channel that has been freed is known as such a moment later: when the thread that frees it runs again. */
enum { STALE_ATTEMPTS = 2000 };
#define STALE_WAIT_NS NS_PER_MS

#define LIBCUDA_SLICE_US 2048 /* if it has not been seen to set another */

struct gpu {
  struct lock lock;     /* over the controls that stop, let on and slice */
  _Atomic bool stopped; /* all channels shall be */
  _Atomic int verdict;
  _Atomic int error;
  _Atomic bool trying;
  _Atomic bool unsliced;             /* a slice was refused: none is set any more */
  _Atomic uint64_t slice_us;         /* 0: as libcuda has it */
  _Atomic uint64_t libcuda_slice_us; /* 0: not seen */
};

static struct gpu gpus[CHANNELS_GPUS] = {[0 ... CHANNELS_GPUS - 1] = {.lock = LOCK(LOCK_PREEMPT)}};
static _Atomic int known_gpus[GS_GPUS_PER_CLIENT]; /* of devices, plus 1; 0: not known */

/* The calling thread makes a context: its channels are stopped, where they are to be, once it is there. */
static __thread bool making __attribute__((tls_model("initial-exec")));

/* ---- controls ---- */

/* 0, -errno, or the resource manager's status. */
static int control(const struct channels_object *to, uint32_t command, void *parameters, uint32_t size) {
  struct rm_control call = {.client = to->client,
                            .object = to->handle,
                            .command = command,
                            .parameters = (uintptr_t)parameters,
                            .parameters_size = size,
                            .status = UINT16_MAX};
  int saved = errno;
  int err;
  do
    err = tap_call(to->fd, RM_REQUEST(RM_CONTROL, sizeof call), &call) < 0 ? -errno : (int)call.status;
  while (err == -EINTR);
  errno = saved;
  return err;
}

static int send_list(const struct channels_batch *batch, const uint32_t *channels, uint32_t count,
                     bool stop) {
  struct rm_stop_channels list = {.stop = stop, .count = count};
  for (uint32_t i = 0; i < count; i++) {
    list.clients[i] = batch->subdevice.client;
    list.channels[i] = channels[i];
  }
  return control(&batch->subdevice, RM_STOP_CHANNELS, &list, sizeof list);
}

static bool is_stale(int err) { return err == RM_NOT_FOUND || err == RM_BAD_CHANNEL; }

/* Where one of the list has been freed, the others once more, as soon as it is known which. An error may come
 * after some of them have been stopped. */
static int stop_batch(struct channels_batch *batch) {
  int err = 0, saved = errno;
  channels_mark(batch, true);
  for (int attempt = 0; batch->count > 0 && attempt < STALE_ATTEMPTS; attempt++) {
    err = send_list(batch, batch->channels, batch->count, true);
    if (!is_stale(err))
      break;
    clock_sleep(STALE_WAIT_NS);
    channels_refresh(batch);
  }
  errno = saved;
  return batch->count > 0 ? err : 0;
}

/* Where they can't be let on together, one by one: none stays behind for another's sake. */
static int let_batch_on(const struct channels_batch *batch) {
  int worst = 0;
  channels_mark(batch, false);
  if (send_list(batch, batch->channels, batch->count, false) == 0)
    return 0;
  for (uint32_t i = 0; i < batch->count; i++) {
    int err = send_list(batch, &batch->channels[i], 1, false);
    worst = err && !is_stale(err) ? err : worst;
  }
  return worst;
}

static int send_all(unsigned gpu, const struct channels_object *group, bool stop) {
  struct channels_cursor cursor = {0};
  struct channels_batch batch;
  int worst = stop && !channels_are_known() ? -ENODATA : 0;
  while ((worst == 0 || !stop) && channels_next(gpu, group, stop, &cursor, &batch)) {
    int err = stop ? stop_batch(&batch) : let_batch_on(&batch);
    worst = err ? err : worst;
  }
  return worst;
}

/* ---- what shall be ---- */

static int give_up(struct gpu *g, int err, const char *what) {
  atomic_store(&g->error, err);
  if (atomic_exchange(&g->verdict, PREEMPT_NO) != PREEMPT_NO)
    log_info("GPU work can't be stopped here (%s: error 0x%x): it is waited for", what, (unsigned)err);
  return -ENOTSUP;
}

/* What can't be let on is told. Lock held. */
static int let_all_on(unsigned gpu) {
  atomic_store(&gpus[gpu].stopped, false);
  int err = send_all(gpu, NULL, false);
  if (!err)
    return 0;
  log_error("GPU work that was stopped may not have gone on (error 0x%x)", (unsigned)err);
  return give_up(&gpus[gpu], err, "go on");
}

/* What can't be stopped goes on, and all else with it. */
static int stop(unsigned gpu) {
  struct gpu *g = &gpus[gpu];
  lock_take(&g->lock);
  atomic_store(&g->stopped, true);
  int err = send_all(gpu, NULL, true);
  if (err) {
    err = give_up(g, err, "stop");
    let_all_on(gpu);
  }
  lock_release(&g->lock);
  log_debug("GPU work %s", err ? "goes on: it can't be stopped" : "stands still");
  return err;
}

static int go(unsigned gpu) {
  struct gpu *g = &gpus[gpu];
  if (!tap_is_on())
    return 0;
  lock_take(&g->lock);
  int err = atomic_load(&g->stopped) ? let_all_on(gpu) : 0;
  lock_release(&g->lock);
  return err;
}

/* ---- for a thread of the program ---- */

/* Why without signals: a handler that jumps out would leave the lock taken, and the work could not go on. */
static void take_from_program(struct gpu *g, sigset_t *signals) {
  thread_block_signals(signals);
  lock_take(&g->lock);
}

static void release_to_program(struct gpu *g, const sigset_t *signals) {
  lock_release(&g->lock);
  thread_restore_signals(signals);
}

/* These channels have come since the stop. If they can't be stopped they run; the others stand still all the
 * same, as whoever has stopped them may have taken their memory away. */
static void stop_new(unsigned gpu, const struct channels_object *group) {
  struct gpu *g = &gpus[gpu];
  sigset_t signals;
  if (!atomic_load(&g->stopped))
    return;
  take_from_program(g, &signals);
  int err = atomic_load(&g->stopped) ? send_all(gpu, group, true) : 0;
  if (err)
    give_up(g, err, "stop");
  release_to_program(g, &signals);
}

/* ---- slices ---- */

static int send_slice(unsigned gpu, const struct channels_object *group) {
  struct gpu *g = &gpus[gpu];
  uint64_t libcuda_us = atomic_load(&g->libcuda_slice_us), shall_us = atomic_load(&g->slice_us);
  struct rm_set_slice slice = {.slice_us = shall_us ? shall_us : libcuda_us ? libcuda_us : LIBCUDA_SLICE_US};
  struct channels_object found;
  size_t cursor = 0;
  int worst = 0;
  while (channels_next_group(gpu, group, &cursor, &found)) {
    int err = control(&found, RM_SET_SLICE, &slice, sizeof slice);
    worst = err && !is_stale(err) ? err : worst;
  }
  return worst;
}

/* Lock held. */
static int set_slice(unsigned gpu, const struct channels_object *group) {
  struct gpu *g = &gpus[gpu];
  int err = send_slice(gpu, group);
  if (!err)
    return 0;
  if (!atomic_exchange(&g->unsliced, true))
    log_info("GPU time can't be shared by weights here (error 0x%x)", (unsigned)err);
  atomic_store(&g->slice_us, 0);
  send_slice(gpu, NULL);
  return -ENOTSUP;
}

/* Of a group that libcuda has made, or set a slice of. */
static void slice_new(unsigned gpu, const struct channels_object *group) {
  struct gpu *g = &gpus[gpu];
  sigset_t signals;
  if (!atomic_load(&g->slice_us))
    return;
  take_from_program(g, &signals);
  if (atomic_load(&g->slice_us))
    set_slice(gpu, group);
  release_to_program(g, &signals);
}

/* ---- what libcuda does ---- */

/* It lets a group or a channel run. */
static void note_scheduled(unsigned gpu, const struct channels_object *group) {
  channels_scheduled(group);
  if (!making)
    stop_new(gpu, group);
  slice_new(gpu, group);
}

static void note_slice(unsigned gpu, const struct channels_object *group, const struct rm_control *control) {
  struct rm_set_slice slice;
  if (control->parameters_size != sizeof slice)
    return;
  memcpy(&slice, (const void *)(uintptr_t)control->parameters, sizeof slice); // NOLINT
  atomic_store(&gpus[gpu].libcuda_slice_us, slice.slice_us);
  slice_new(gpu, group);
}

static void on_control(const struct rm_control *control) {
  bool schedules = control->command == RM_SCHEDULE_GROUP || control->command == RM_SCHEDULE_CHANNEL;
  struct channels_object group;
  int gpu;
  if (!schedules && control->command != RM_SET_SLICE)
    return;
  if ((gpu = channels_gpu_of(control->client, control->object, &group)) < 0)
    return;
  if (schedules)
    note_scheduled((unsigned)gpu, &group);
  else
    note_slice((unsigned)gpu, &group, control);
}

/* ---- the beginning ---- */

static void begin(const struct libraries *libraries, void *unused) {
  const struct library *library = driver_in_use(libraries);
  (void)unused;
  if (library)
    tap_library(&library->elf, on_control);
}

void preempt_begin(void) {
  if (settings()->preempt && !driver_is_settled())
    libraries_visit(begin, NULL);
}

/* ---- devices ---- */

static int find_gpu(CUdevice device) {
  CUuuid uuid;
  struct channels_object subdevice;
  if (!driver.cuDeviceGetUuid_v2 || driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS)
    return -1;
  for (unsigned gpu = 0; gpu < CHANNELS_GPUS; gpu++) {
    struct rm_get_uuid answer = {.format = RM_UUID_BINARY, .length = RM_UUID_BYTES};
    if (channels_subdevice(gpu, &subdevice) &&
        control(&subdevice, RM_GET_UUID, &answer, sizeof answer) == 0 && answer.length == RM_UUID_BYTES &&
        memcmp(answer.bytes, uuid.bytes, RM_UUID_BYTES) == 0)
      return (int)gpu;
  }
  return -1;
}

/* -1: not known yet. */
static int gpu_of(CUdevice device) {
  return device >= 0 && device < GS_GPUS_PER_CLIENT ? atomic_load(&known_gpus[device]) - 1 : -1;
}

enum preempt_verdict preempt_verdict(CUdevice device) {
  int gpu = gpu_of(device);
  if (!tap_is_on() || device < 0 || device >= GS_GPUS_PER_CLIENT)
    return PREEMPT_NO;
  return gpu < 0 ? PREEMPT_UNKNOWN : (enum preempt_verdict)atomic_load(&gpus[gpu].verdict);
}

int preempt_try(CUdevice device) {
  if (preempt_verdict(device) != PREEMPT_UNKNOWN)
    return 0;
  int gpu = gpu_of(device) >= 0 ? gpu_of(device) : find_gpu(device), saved = errno;
  if (gpu < 0)
    return -EAGAIN; /* libcuda has nothing there yet, or what it has is a part of a GPU */
  atomic_store(&known_gpus[device], gpu + 1);
  struct gpu *g = &gpus[gpu];
  if (atomic_exchange(&g->trying, true))
    return -EAGAIN; /* another thread does */
  int found = trial_run(stop, go, (unsigned)gpu), unknown = PREEMPT_UNKNOWN;
  if (found == TRIAL_MOVED)
    give_up(g, -EPROTO, "accepted, and ignored");
  else if (found == TRIAL_STUCK)
    give_up(g, -ETIMEDOUT, "it does not go on");
  else if (found == TRIAL_STOOD && atomic_compare_exchange_strong(&g->verdict, &unknown, PREEMPT_YES))
    log_info("GPU work of this process can be stopped");
  atomic_store(&g->trying, false);
  errno = saved;
  return atomic_load(&g->verdict) == PREEMPT_UNKNOWN ? -EAGAIN : 0;
}

static int check(CUdevice device) {
  switch (preempt_verdict(device)) {
  case PREEMPT_YES:
    return 0;
  case PREEMPT_NO:
    return -ENOTSUP;
  default:
    return -EAGAIN;
  }
}

int preempt_stop(CUdevice device) {
  int err = check(device);
  return err ? err : stop((unsigned)gpu_of(device));
}

int preempt_go(CUdevice device) {
  int gpu = gpu_of(device);
  return gpu < 0 ? 0 : go((unsigned)gpu);
}

int preempt_slice(CUdevice device, uint64_t us) {
  if (us > 1000000)
    return -ERANGE;
  int err = check(device);
  if (err)
    return err;
  struct gpu *g = &gpus[gpu_of(device)];
  lock_take(&g->lock);
  err = atomic_load(&g->unsliced) ? -ENOTSUP : 0;
  if (!err) {
    atomic_store(&g->slice_us, us);
    err = set_slice((unsigned)gpu_of(device), NULL);
  }
  lock_release(&g->lock);
  return err;
}

bool preempt_slices(CUdevice device) {
  return preempt_verdict(device) == PREEMPT_YES && !atomic_load(&gpus[gpu_of(device)].unsliced);
}

void preempt_own(bool begins) { channels_own(begins); }

void preempt_making(bool begins) {
  int saved = errno;
  making = begins;
  for (unsigned gpu = 0; gpu < CHANNELS_GPUS && !begins; gpu++)
    stop_new(gpu, NULL);
  errno = saved;
}

struct preempt_channels preempt_channels(CUdevice device) {
  int gpu = gpu_of(device);
  if (gpu < 0)
    return (struct preempt_channels){0};
  struct channels_count count = channels_count((unsigned)gpu);
  return (struct preempt_channels){.groups = count.compute_groups + count.other_groups,
                                   .compute = count.compute_channels,
                                   .other = count.other_channels,
                                   .stopped = atomic_load(&gpus[gpu].stopped),
                                   .error = atomic_load(&gpus[gpu].error)};
}

void preempt_fork_child(void) {
  tap_fork_child();
  channels_fork_child();
  for (struct gpu *g = gpus; g < gpus + CHANNELS_GPUS; g++)
    *g = (struct gpu){.lock = LOCK(LOCK_PREEMPT)};
  memset(known_gpus, 0, sizeof known_gpus);
}
