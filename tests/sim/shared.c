/* shared.c - see shared.h. */
#include "shared.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- descriptors ---- */

#define PREFIX "gpushare-sim-memory-"
#define EXPORTS_MOST 8 /* of one memory at a time */

static socklen_t set_address(struct sockaddr_un *address, uint64_t id, unsigned n) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length =
      snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, PREFIX "%016" PRIx64 "-%u", id, n);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

union control {
  char bytes[CMSG_SPACE(sizeof(int))];
  struct cmsghdr align;
};

static bool put_inside(int socket, int fd, const struct sockaddr_un *address, socklen_t size) {
  union control control = {
      .align = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec part = {.iov_base = &(char){0}, .iov_len = 1};
  struct msghdr header = {.msg_name = (void *)(uintptr_t)address,
                          .msg_namelen = size,
                          .msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control)};
  memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
  return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

static int export_as(int fd, const struct sockaddr_un *address, socklen_t size) {
  int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0)
    return -errno;
  if (bind(made, (const struct sockaddr *)address, size) == 0 && put_inside(made, fd, address, size))
    return made;
  int error = -errno;
  close(made);
  return error;
}

int shared_export(int fd, uint64_t *id) {
  struct sockaddr_un address;
  int made = -EADDRINUSE;
  if (!*id && getrandom(id, sizeof(*id), 0) != sizeof(*id))
    return -errno;
  for (unsigned n = 0; n < EXPORTS_MOST && made == -EADDRINUSE; n++) {
    socklen_t size = set_address(&address, *id, n);
    made = export_as(fd, &address, size);
  }
  return made;
}

int shared_import(int exported, uint64_t *id) {
  struct sockaddr_un address = {.sun_family = AF_UNSPEC};
  socklen_t size = sizeof(address);
  union control control;
  struct iovec part = {.iov_base = &(char){0}, .iov_len = 1};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  int fd;
  if (getsockname(exported, (struct sockaddr *)&address, &size) < 0 || address.sun_family != AF_UNIX ||
      size >= sizeof(address) || sscanf(address.sun_path + 1, PREFIX "%16" SCNx64, id) != 1)
    return -EINVAL;
  if (recvmsg(exported, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
    return -EINVAL;
  const struct cmsghdr *first = CMSG_FIRSTHDR(&header);
  if (first == NULL || first->cmsg_type != SCM_RIGHTS)
    return -EINVAL;
  memcpy(&fd, CMSG_DATA(first), sizeof(fd));
  return fd;
}

static bool is_open(uint64_t id) {
  struct sockaddr_un address;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return true;
  bool open = false;
  for (unsigned n = 0; n < EXPORTS_MOST && !open; n++) {
    socklen_t size = set_address(&address, id, n);
    open = connect(fd, (struct sockaddr *)&address, size) == 0;
  }
  close(fd);
  return open;
}

/* ---- who pays; the state is locked ---- */

static struct shared_memory *find(struct state *state, uint64_t id) {
  for (int i = 0; i < STATE_SHARED; i++)
    if (state->shared[i].id == id)
      return &state->shared[i];
  return NULL;
}

static bool has(const struct shared_memory *memory, int32_t slot) {
  return memory->holders[slot / 64] >> slot % 64 & 1;
}

static int32_t any_holder(const struct shared_memory *memory) {
  for (int32_t slot = 0; slot < STATE_SLOTS; slot++)
    if (has(memory, slot))
      return slot;
  return SHARED_NOBODY;
}

static void charge(struct state *state, struct shared_memory *memory, int32_t slot) {
  if (memory->payer != SHARED_NOBODY)
    atomic_fetch_sub(&state->slots[memory->payer].pinned_bytes[memory->gpu], memory->bytes);
  if (slot != SHARED_NOBODY)
    atomic_fetch_add(&state->slots[slot].pinned_bytes[memory->gpu], memory->bytes);
  memory->payer = slot;
}

static void end(struct state *state, struct shared_memory *memory) {
  charge(state, memory, SHARED_NOBODY);
  atomic_fetch_sub(&state->gpu[memory->gpu].pinned_bytes, memory->bytes);
  *memory = (struct shared_memory){.id = 0};
}

static void leave(struct state *state, struct shared_memory *memory, int32_t slot) {
  memory->holders[slot / 64] &= ~(UINT64_C(1) << slot % 64);
  if (memory->payer == slot)
    charge(state, memory, any_holder(memory));
  if (memory->payer == SHARED_NOBODY && !is_open(memory->id))
    end(state, memory);
}

bool shared_enter(struct state *state, int32_t slot, uint64_t id, unsigned gpu, uint64_t bytes) {
  state_lock(state);
  struct shared_memory *memory = find(state, 0);
  if (memory) {
    *memory = (struct shared_memory){.id = id, .bytes = bytes, .gpu = gpu, .payer = slot};
    memory->holders[slot / 64] = UINT64_C(1) << slot % 64;
  }
  state_unlock(state);
  return memory != NULL;
}

bool shared_join(struct state *state, int32_t slot, uint64_t id, unsigned *gpu) {
  state_lock(state);
  struct shared_memory *memory = find(state, id);
  if (memory) {
    *gpu = memory->gpu;
    memory->holders[slot / 64] |= UINT64_C(1) << slot % 64;
    charge(state, memory, slot);
  }
  state_unlock(state);
  return memory != NULL;
}

void shared_leave(struct state *state, int32_t slot, uint64_t id) {
  state_lock(state);
  struct shared_memory *memory = find(state, id);
  if (memory)
    leave(state, memory, slot);
  state_unlock(state);
}

void shared_bury(struct state *state, int32_t slot) {
  for (int i = 0; i < STATE_SHARED; i++) {
    struct shared_memory *memory = &state->shared[i];
    if (!memory->id || !has(memory, slot))
      continue;
    if (memory->payer == slot) { /* it has been taken off with the rest of what was the process' */
      atomic_fetch_add(&state->slots[slot].pinned_bytes[memory->gpu], memory->bytes);
      atomic_fetch_add(&state->gpu[memory->gpu].pinned_bytes, memory->bytes);
    }
    leave(state, memory, slot);
  }
}

void shared_reap(struct state *state) {
  for (int i = 0; i < STATE_SHARED; i++)
    if (state->shared[i].id && state->shared[i].payer == SHARED_NOBODY && !is_open(state->shared[i].id))
      end(state, &state->shared[i]);
}

uint64_t shared_nobodys_bytes(const struct state *state, unsigned gpu) {
  uint64_t bytes = 0;
  for (int i = 0; i < STATE_SHARED; i++)
    if (state->shared[i].id && state->shared[i].payer == SHARED_NOBODY && state->shared[i].gpu == gpu)
      bytes += state->shared[i].bytes;
  return bytes;
}
