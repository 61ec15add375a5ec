/* process.c - cuInit's part: read the card, join the shared state, and notice forks. */
#include "process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mps.h"
#include "objects.h"

struct sim sim;
struct state *sim_own_state;

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

/* However the child was made: it has this page cleared. */
static bool is_forked(void) { return sim.here && !atomic_load(sim.here); }

static bool mark_process(void) {
  void *page = mmap(NULL, sizeof(*sim.here), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, sizeof(*sim.here), MADV_WIPEONFORK) < 0)
    return false;
  sim.here = page;
  atomic_store(sim.here, 1);
  return true;
}

static bool uuid_matches(unsigned gpu, const char *text, size_t length) {
  char uuid[GPU_UUID_TEXT_SIZE];
  device_uuid_text(gpu, uuid);
  return length >= 4 && strncmp(uuid, text, length) == 0;
}

/* The card that one element of CUDA_VISIBLE_DEVICES names, or -1. */
static int visible_gpu(const char *text, size_t length) {
  char *end;
  unsigned long index = strtoul(text, &end, 10);
  if (end == text + length && length > 0)
    return index < sim.card.gpus ? (int)index : -1;
  for (unsigned g = 0; g < sim.card.gpus; g++)
    if (uuid_matches(g, text, length))
      return (int)g;
  return -1;
}

/* As the real one: the list ends at the first element that is no device. */
static void choose_devices(void) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  sim.device_count = 0;
  if (list == NULL) {
    for (unsigned g = 0; g < sim.card.gpus; g++)
      sim.gpu_of[sim.device_count++] = g;
    return;
  }
  while (sim.device_count < STATE_GPUS) {
    size_t length = strcspn(list, ",");
    int gpu = visible_gpu(list, length);
    if (gpu < 0)
      return;
    sim.gpu_of[sim.device_count++] = (unsigned)gpu;
    if (list[length] == '\0')
      return;
    list += length + 1;
  }
}

static CUresult join_state(void) {
  char path[256];
  if (card_load(&sim.card, getenv("GPUSHARE_SIM_CARD")) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  state_default_path(path, sizeof(path), sim.card.name);
  if (state_open(&sim.state, path, &sim.card) != 0)
    return CUDA_ERROR_SYSTEM_NOT_READY;
  sim.slot_index = state_claim(sim.state);
  if (sim.slot_index < 0)
    return CUDA_ERROR_SYSTEM_NOT_READY;
  sim.slot = &sim.state->slots[sim.slot_index];
  sim_own_state = sim.state;
  return CUDA_SUCCESS;
}

/* A failure may be followed by another attempt. */
static CUresult join(void) {
  CUresult result = sim.slot ? CUDA_SUCCESS : join_state();
  return result == CUDA_SUCCESS ? mps_join(sim.slot) : result;
}

/* As the real one does in cuInit, for all GPUs: the device's file stays open as long as the process is there.
 */
static void open_device(void) {
  const char *path = getenv("GPUSHARE_SIM_DEVICE");
  if (path && open(path, O_RDWR | O_CLOEXEC) < 0)
    perror(path);
}

static CUresult init_once(void) {
  CUresult result = join();
  if (result != CUDA_SUCCESS)
    return result;
  choose_devices();
  if (sim.device_count == 0)
    return CUDA_ERROR_NO_DEVICE;
  devices_init();
  channels_init();
  if (!mark_process())
    return CUDA_ERROR_OUT_OF_MEMORY;
  open_device();
  atomic_store(&sim.ready, 1);
  return CUDA_SUCCESS;
}

CUresult process_init(void) {
  if (is_forked())
    return CUDA_ERROR_NOT_INITIALIZED;
  if (atomic_load(&sim.ready))
    return CUDA_SUCCESS;
  pthread_mutex_lock(&init_lock);
  CUresult result = atomic_load(&sim.ready) ? CUDA_SUCCESS : init_once();
  pthread_mutex_unlock(&init_lock);
  return result;
}

CUresult process_check(void) {
  return atomic_load(&sim.ready) && !is_forked() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

void process_count(unsigned gpu, enum gs_sim_counter counter, uint64_t by) {
  count(&sim.slot->counters[gpu][counter], by);
  count(&sim.state->gpu[gpu].counters[counter], by);
}

void process_submit(unsigned gpu) {
  atomic_fetch_add(&sim.slot->in_flight[gpu], 1);
  process_count(gpu, GS_SIM_submitted, 1);
}

void process_finish(unsigned gpu) { atomic_fetch_sub(&sim.slot->in_flight[gpu], 1); }

static __thread bool overlaps_ignored;

void process_ignore_overlaps(bool ignore) { overlaps_ignored = ignore; }

void process_note_start(unsigned gpu) {
  for (int32_t i = 0; i < STATE_SLOTS && !overlaps_ignored; i++) {
    struct slot *other = &sim.state->slots[i];
    if (i == sim.slot_index || atomic_load(&other->in_flight[gpu]) == 0 || !slot_alive(other) ||
        atomic_load(&other->standing[gpu]) > 0)
      continue;
    process_count(gpu, GS_SIM_overlaps, 1);
    atomic_store(&sim.state->gpu[gpu].overlap_pid, atomic_load(&sim.slot->pid));
    atomic_store(&sim.state->gpu[gpu].overlap_other_pid, atomic_load(&other->pid));
    return;
  }
}

CUresult process_fault(void) { return (CUresult)atomic_load(&sim.fault); }

void process_set_fault(CUresult result, uint64_t address, const char *who) {
  fprintf(stderr, "simulated driver: %s: illegal address %#llx\n", who, (unsigned long long)address);
  atomic_store(&sim.had_fault, 1);
  atomic_store(&sim.fault, (int)result);
}

bool process_had_fault(void) { return atomic_load(&sim.had_fault); }

void process_end_fault(void) {
  if (sim.card.fault_ends)
    atomic_store(&sim.fault, CUDA_SUCCESS);
}

_Noreturn void process_illegal_address(uint64_t address, const char *who) {
  fprintf(stderr, "simulated driver: %s: illegal address %#llx\n", who, (unsigned long long)address);
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
  abort();
}
