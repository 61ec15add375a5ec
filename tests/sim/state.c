/* state.c - the shared state file: creation, slots of processes, and repair after deaths. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared.h"

#define STATE_MAGIC UINT64_C(0x677373696d303031)

static uint64_t frames_of(const struct card *card) { return card->capacity_bytes / PAGE_BYTES; }

static uint64_t state_size(const struct card *card) {
  return sizeof(struct state) + card->gpus * frames_of(card) * sizeof(struct frame);
}

static void robust_init(pthread_mutex_t *mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

int robust_lock(pthread_mutex_t *mutex) {
  int result = pthread_mutex_lock(mutex);
  if (result == EOWNERDEAD)
    pthread_mutex_consistent(mutex);
  return result;
}

/* ---- frame lists ---- */

void frame_append(struct state *state, struct frame_list *list, int32_t index) {
  struct frame *frame = &state->frames[index];
  frame->previous = list->tail;
  frame->next = FRAME_NONE;
  if (list->tail != FRAME_NONE)
    state->frames[list->tail].next = index;
  else
    list->head = index;
  list->tail = index;
}

static struct frame_list *list_of(struct gpu_state *gpu, const struct frame *frame) {
  return frame->slot == FRAME_NONE ? &gpu->free : &gpu->lru[frame->preferred != 0];
}

void frame_unlink(struct state *state, struct gpu_state *gpu, int32_t index) {
  struct frame *frame = &state->frames[index];
  struct frame_list *list = list_of(gpu, frame);
  if (frame->previous != FRAME_NONE)
    state->frames[frame->previous].next = frame->next;
  else
    list->head = frame->next;
  if (frame->next != FRAME_NONE)
    state->frames[frame->next].previous = frame->previous;
  else
    list->tail = frame->previous;
}

void frame_free(struct state *state, struct gpu_state *gpu, int32_t index) {
  struct frame *frame = &state->frames[index];
  frame_unlink(state, gpu, index);
  atomic_fetch_sub(&state->slots[frame->slot].frames[gpu - state->gpu], 1);
  atomic_fetch_sub(&gpu->used_frames, 1);
  frame->slot = FRAME_NONE;
  frame->key = 0;
  frame_append(state, &gpu->free, index);
}

/* ---- creation ---- */

static void gpu_init(struct state *state, unsigned index, const struct card *card) {
  struct gpu_state *gpu = &state->gpu[index];
  const struct frame_list empty = {FRAME_NONE, FRAME_NONE};
  gpu->capacity_bytes = card->capacity_bytes;
  gpu->frame_count = frames_of(card);
  gpu->first_frame = index * gpu->frame_count;
  gpu->free = gpu->lru[0] = gpu->lru[1] = empty;
  for (int e = 0; e < ENGINE_COUNT; e++) {
    robust_init(&gpu->engines[e].next);
    robust_init(&gpu->engines[e].turn);
  }
  for (uint64_t f = 0; f < gpu->frame_count; f++) {
    state->frames[gpu->first_frame + f].slot = FRAME_NONE;
    frame_append(state, &gpu->free, (int32_t)(gpu->first_frame + f));
  }
}

static void state_init(struct state *state, const struct card *card) {
  robust_init(&state->lock);
  state->gpus = card->gpus;
  for (unsigned g = 0; g < card->gpus; g++)
    gpu_init(state, g, card);
  state->layout = sizeof(struct state);
  state->bytes = state_size(card);
  state->magic = STATE_MAGIC;
}

static bool state_fits(const struct state *state, uint64_t bytes, const struct card *card) {
  if (bytes < sizeof(struct state) || state->magic != STATE_MAGIC || state->layout != sizeof(struct state) ||
      state->bytes != bytes)
    return false;
  return card == NULL || (bytes == state_size(card) && state->gpus == card->gpus);
}

static bool state_anyone_alive(struct state *state) {
  for (int i = 0; i < STATE_SLOTS; i++)
    if (slot_alive(&state->slots[i]))
      return true;
  return false;
}

static int state_map(struct state **state, int fd, uint64_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED)
    return -errno;
  *state = at;
  return 0;
}

/* Start afresh. An old file stays with those who have it mapped. */
static int state_create(struct state **state, int fd, const struct card *card) {
  if (ftruncate(fd, 0) != 0 || ftruncate(fd, (off_t)state_size(card)) != 0)
    return -errno;
  int result = state_map(state, fd, state_size(card));
  if (result == 0)
    state_init(*state, card);
  return result;
}

static int refuse(const char *path) {
  fprintf(stderr, "simulated driver: %s is in use for another card\n", path);
  return -EBUSY;
}

/* The file is locked. */
static int state_attach(struct state **state, int fd, const char *path, const struct card *card) {
  struct stat info;
  if (fstat(fd, &info) != 0)
    return -errno;
  uint64_t bytes = (uint64_t)info.st_size;
  if (bytes < sizeof(struct state))
    return card ? state_create(state, fd, card) : -ENOENT;
  int result = state_map(state, fd, bytes);
  if (result != 0 || state_fits(*state, bytes, card))
    return result;
  bool known = state_fits(*state, bytes, NULL), busy = known && state_anyone_alive(*state);
  munmap(*state, bytes);
  *state = NULL;
  if (busy || card == NULL)
    return refuse(path);
  return state_create(state, fd, card);
}

int state_open(struct state **state, const char *path, const struct card *card) {
  int fd = open(path, (card ? O_CREAT : 0) | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0)
    return -errno;
  int result = flock(fd, LOCK_EX) == 0 ? state_attach(state, fd, path, card) : -errno;
  flock(fd, LOCK_UN); /* the mapping keeps the open file, and with it the lock */
  close(fd);
  return result;
}

void state_close(struct state *state) { munmap(state, state->bytes); }

void state_default_path(char *path, size_t size, const char *card_name) {
  const char *named = getenv("GPUSHARE_SIM_STATE");
  if (named && *named) {
    snprintf(path, size, "%s", named);
    return;
  }
  int length = snprintf(path, size, "/dev/shm/gpushare-sim-%u-", (unsigned)getuid());
  for (size_t i = (size_t)length; i + 1 < size && *card_name; i++, card_name++) {
    path[i] = (*card_name == ' ' || *card_name == '/') ? '_' : *card_name;
    path[i + 1] = '\0';
  }
}

/* ---- liveness ---- */

struct process_stat {
  char state;
  long threads;
  unsigned long long start_time; /* clock ticks since boot */
};

static bool process_stat(pid_t pid, struct process_stat *stat) {
  char path[48], text[1024];
  snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  ssize_t length = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (length <= 0)
    return false;
  text[length] = '\0';
  const char *rest = strrchr(text, ')'); /* the command's name may hold anything */
  return rest &&
         sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
                &stat->state, &stat->threads, &stat->start_time) == 3;
}

/* 0 when there is no such process, or only a zombie of it. */
static uint64_t process_start_time(pid_t pid) {
  struct process_stat stat;
  if (!process_stat(pid, &stat) || stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1))
    return 0;
  return stat.start_time;
}

bool process_stopped(pid_t pid) {
  struct process_stat stat;
  return process_stat(pid, &stat) && (stat.state == 'T' || stat.state == 't');
}

bool slot_alive(struct slot *slot) {
  pid_t pid = atomic_load(&slot->pid);
  return atomic_load(&slot->alive) && pid != 0 &&
         (pid == getpid() || process_start_time(pid) == slot->start_time);
}

/* ---- slots; the lock is held ---- */

static void slot_bury(struct state *state, int32_t index) {
  struct slot *slot = &state->slots[index];
  for (unsigned g = 0; g < state->gpus; g++) {
    struct gpu_state *gpu = &state->gpu[g];
    for (uint64_t f = 0; f < gpu->frame_count; f++)
      if (state->frames[gpu->first_frame + f].slot == index)
        frame_free(state, gpu, (int32_t)(gpu->first_frame + f));
    atomic_fetch_sub(&gpu->pinned_bytes, atomic_load(&slot->pinned_bytes[g]));
    atomic_store(&slot->pinned_bytes[g], 0);
    atomic_store(&slot->in_flight[g], 0);
    atomic_store(&slot->standing[g], 0);
  }
  shared_bury(state, index);
  atomic_store(&slot->alive, 0);
}

void state_reap(struct state *state) {
  for (int32_t i = 0; i < STATE_SLOTS; i++)
    if (atomic_load(&state->slots[i].alive) && !slot_alive(&state->slots[i]))
      slot_bury(state, i);
  shared_reap(state);
}

static int slot_choose(struct state *state) {
  int oldest = -EAGAIN;
  for (int i = 0; i < STATE_SLOTS; i++) {
    struct slot *slot = &state->slots[i];
    if (atomic_load(&slot->pid) == 0)
      return i;
    if (!atomic_load(&slot->alive) && (oldest < 0 || slot->born < state->slots[oldest].born))
      oldest = i;
  }
  return oldest;
}

int state_claim(struct state *state) {
  state_lock(state);
  state_reap(state);
  int index = slot_choose(state);
  if (index >= 0) {
    struct slot *slot = &state->slots[index];
    memset(slot, 0, sizeof(*slot));
    slot->start_time = process_start_time(getpid());
    slot->born = ++state->born;
    atomic_store(&slot->pid, getpid());
    atomic_store(&slot->alive, 1);
  }
  state_unlock(state);
  return index;
}

/* ---- the lock, and what follows from the frames when its owner died ---- */

static struct state *sorted_state;

static int by_stamp(const void *a, const void *b) {
  const struct frame *frames = sorted_state->frames;
  uint64_t x = frames[*(const int32_t *)a].stamp, y = frames[*(const int32_t *)b].stamp;
  return (x > y) - (x < y);
}

static void gpu_repair(struct state *state, struct gpu_state *gpu, int32_t *order) {
  const struct frame_list empty = {FRAME_NONE, FRAME_NONE};
  unsigned g = (unsigned)(gpu - state->gpu);
  gpu->free = gpu->lru[0] = gpu->lru[1] = empty;
  atomic_store(&gpu->used_frames, 0);
  atomic_store(&gpu->pinned_bytes, shared_nobodys_bytes(state, g));
  for (int i = 0; i < STATE_SLOTS; i++) {
    atomic_store(&state->slots[i].frames[g], 0);
    count(&gpu->pinned_bytes, atomic_load(&state->slots[i].pinned_bytes[g]));
  }
  for (uint64_t f = 0; f < gpu->frame_count; f++)
    order[f] = (int32_t)(gpu->first_frame + f);
  sorted_state = state;
  qsort(order, gpu->frame_count, sizeof(*order), by_stamp);
  for (uint64_t f = 0; f < gpu->frame_count; f++) {
    struct frame *frame = &state->frames[order[f]];
    frame_append(state, list_of(gpu, frame), order[f]);
    if (frame->slot == FRAME_NONE)
      continue;
    count(&gpu->used_frames, 1);
    count(&state->slots[frame->slot].frames[g], 1);
  }
}

static void state_repair(struct state *state) {
  int32_t *order = malloc(sizeof(*order) * state->gpu[0].frame_count);
  if (order == NULL)
    abort();
  for (unsigned g = 0; g < state->gpus; g++)
    gpu_repair(state, &state->gpu[g], order);
  free(order);
}

void state_lock(struct state *state) {
  if (robust_lock(&state->lock) == EOWNERDEAD)
    state_repair(state);
}

void state_unlock(struct state *state) { pthread_mutex_unlock(&state->lock); }
