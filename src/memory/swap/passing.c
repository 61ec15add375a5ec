/* passing.c - two sockets: where memory comes from, and where it goes. */
#include "memory/swap/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/abstract_socket.h"
#include "common/descriptor.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/wire.h"
#include "driver/driver.h"
#include "memory/forked.h"

#define SENDERS 4 /* jobs that pass memory to this one at the same time */
#define NOTE_MAGIC UINT64_C(0x7373617065726168)

/* Goes with each descriptor. The answer, once it is mapped, is a byte. */
struct note {
  uint64_t magic, key, bytes;
};

static struct side {
  struct memory_heir heir;
  struct descriptor out; /* connected to the heir */
  unsigned sent;         /* there, and not answered */
  bool ended;            /* nothing more is sent there */
  unsigned passed;
  struct descriptor listening, in[SENDERS];
  unsigned mapped;
  int packed; /* a descriptor of memory that is not sent yet; 0: none */
} sides[DEVICES];

/* Of whoever changes which descriptors of memory there are: a child of a fork finds all of them. */
static struct lock descriptors_lock = LOCK(LOCK_DESCRIPTORS);

static struct lock heirs_lock = LOCK(LOCK_HEIRS);
static struct memory_heir heirs[DEVICES]; /* as told; a side has the one that it has looked at last */

static _Atomic uint64_t names[DEVICES], keys[DEVICES];
static _Atomic int can[DEVICES]; /* 0: unknown, 1: yes, -1: no */
static _Atomic bool expected[DEVICES];

/* ---- what is known beforehand ---- */

struct gs_pass passing_own(CUdevice device) {
  struct gs_pass own = {.name = abstract_draw(&names[device]), .key = abstract_draw(&keys[device])};
  return own.name && own.key ? own : (struct gs_pass){.name = 0};
}

static bool ask_can(CUdevice device) {
  int supported = 0;
  return driver.cuMemExportToShareableHandle && driver.cuMemImportFromShareableHandle &&
         driver.cuMemGetAllocationPropertiesFromHandle && driver.cuMemRetainAllocationHandle &&
         driver.cuDeviceGetAttribute(&supported,
                                     CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                     device) == CUDA_SUCCESS &&
         supported;
}

bool passing_can(CUdevice device) {
  int known = atomic_load(&can[device]);
  if (!known && !atomic_compare_exchange_strong(&can[device], &known, ask_can(device) ? 1 : -1))
    return known > 0;
  return atomic_load(&can[device]) > 0;
}

void passing_forbid(CUdevice device) { atomic_store(&can[device], -1); }

void passing_expect(CUdevice device, bool expects) { atomic_store(&expected[device], expects); }
bool passing_is_expected(const struct space *space) { return atomic_load(&expected[space->device]); }

/* ---- sockets ---- */

static struct abstract_name name_of(uint64_t number) { return (struct abstract_name){"pass", number}; }

/* ---- descriptors of memory ---- */

#define KEPT_MOST 4096

static struct descriptor kept[KEPT_MOST]; /* by their numbers, from DESCRIPTOR_LEAST on */

static bool is_any(int fd, const void *unused) { return fd >= 0 && !unused; }

/* Takes it over. Its number, 0 if it is not kept: also where the program has closed what had that number. */
static int keep(int fd) {
  struct descriptor made = descriptor_keep(fd, is_any, NULL);
  if (!descriptor_may_stay(&made, DESCRIPTOR_PASSED) || made.fd - DESCRIPTOR_LEAST >= KEPT_MOST ||
      kept[made.fd - DESCRIPTOR_LEAST].fd > 0) {
    descriptor_close(&made);
    return 0;
  }
  kept[made.fd - DESCRIPTOR_LEAST] = made;
  return made.fd;
}

/* The caller's from now on; -1: there is none, or the program has closed it. */
static int take_out(struct piece *piece) {
  if (!piece->passed)
    return -1;
  struct descriptor *known = &kept[piece->passed - DESCRIPTOR_LEAST];
  int fd = descriptor_is_ours(known) ? known->fd : -1;
  *known = (struct descriptor){.fd = 0};
  piece->passed = 0;
  return fd;
}

void passing_forget(struct block *block, size_t i) {
  if (!block->piece[i].passed)
    return;
  lock_take(&descriptors_lock);
  int fd = take_out(&block->piece[i]);
  if (fd >= 0)
    close(fd);
  lock_release(&descriptors_lock);
}

/* ---- out ---- */

void passing_set_heir(CUdevice device, const struct memory_heir *heir) {
  lock_take(&heirs_lock);
  heirs[device] = *heir;
  lock_release(&heirs_lock);
}

static void follow_heir(CUdevice device) {
  struct side *side = &sides[device];
  uint64_t before = side->heir.pass.name;
  lock_take(&heirs_lock);
  side->heir = heirs[device];
  lock_release(&heirs_lock);
  if (side->heir.pass.name != before)
    descriptor_close(&side->out);
}

/* False: it takes no more now, or ever. */
static bool has_taken(struct side *side) {
  ssize_t n;
  while ((n = recv(side->out.fd, &(char){0}, 1, MSG_DONTWAIT)) > 0 && side->sent > 0)
    side->sent--;
  if (n >= 0 || errno != EAGAIN) {
    descriptor_close(&side->out);
    return false;
  }
  return side->sent < PASSING_MOST;
}

/* Where the heir is not there yet, it may be at the next piece. */
static bool reach_heir(struct side *side) {
  if (side->ended && descriptor_is_ours(&side->out)) { /* what it has not mapped counts still */
    has_taken(side);
    if (side->sent && descriptor_is_ours(&side->out))
      return false;
    descriptor_close(&side->out);
  }
  if (descriptor_is_ours(&side->out))
    return true;
  side->sent = 0;
  side->ended = false;
  side->out = abstract_connect(name_of(side->heir.pass.name));
  if (side->out.fd >= 0 && abstract_is_trusted(&side->out, side->heir.pid))
    return true;
  descriptor_close(&side->out);
  return false;
}

static int export(CUdeviceptr at) {
  CUmemGenericAllocationHandle handle;
  int fd = -1;
  if (driver.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at) != CUDA_SUCCESS)
    return -1;
  if (driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
      CUDA_SUCCESS)
    fd = -1;
  driver.cuMemRelease(handle);
  return fd;
}

int passing_pack(const struct space *space, struct block *block, size_t i) {
  struct side *side = &sides[space->device];
  follow_heir(space->device);
  if (piece_bytes(block, i) != PIECE_BYTES || !side->heir.pass.name || !side->heir.pid ||
      !passing_can(space->device) || !reach_heir(side) || !has_taken(side))
    return -1;
  lock_take(&descriptors_lock);
  int fd = take_out(&block->piece[i]);
  if (fd < 0)
    fd = export(piece_at(block, i));
  side->packed = fd > 0 ? fd : 0;
  lock_release(&descriptors_lock);
  return fd;
}

void passing_send(const struct space *space, int packed, bool unmapped) {
  struct side *side = &sides[space->device];
  struct note note = {.magic = NOTE_MAGIC, .key = side->heir.pass.key, .bytes = PIECE_BYTES};
  if (packed < 0)
    return;
  if (unmapped && descriptor_is_ours(&side->out) &&
      wire_send_passing(side->out.fd, &note, sizeof note, packed) == 0) {
    side->sent++;
    side->passed++;
  }
  lock_take(&descriptors_lock);
  side->packed = 0;
  close(packed);
  lock_release(&descriptors_lock);
}

/* As long as the heir has not mapped all of it, the connection stays, and with it the count; but the heir
 * sees its end, and takes it for none of SENDERS any more. */
void passing_end_out(const struct space *space) {
  struct side *side = &sides[space->device];
  if (side->passed)
    log_debug("GPU %d: %u pieces passed to the next job", space->device, side->passed);
  side->passed = 0;
  if (descriptor_is_ours(&side->out))
    has_taken(side);
  if (!side->sent)
    descriptor_close(&side->out);
  else if (!side->ended && descriptor_is_ours(&side->out))
    side->ended = shutdown(side->out.fd, SHUT_WR) == 0;
}

/* ---- in ---- */

void passing_await(const struct space *space) {
  struct side *side = &sides[space->device];
  struct gs_pass own = passing_own(space->device);
  if (own.name && passing_can(space->device) && !descriptor_is_ours(&side->listening))
    side->listening = abstract_listen(name_of(own.name), SENDERS);
}

/* True: there is a new one. */
static bool accept_one(CUdevice device, struct descriptor *in) {
  struct side *side = &sides[device];
  *in = abstract_accept(&side->listening, name_of(atomic_load(&names[device])));
  if (in->fd < 0)
    return false;
  if (!abstract_is_trusted(in, 0))
    descriptor_hang_up(in);
  return true;
}

static void accept_all(CUdevice device) {
  struct side *side = &sides[device];
  bool more = true;
  for (int i = 0; i < SENDERS && more; i++)
    if (!descriptor_is_ours(&side->in[i]))
      more = accept_one(device, &side->in[i]);
}

static bool is_of_device(CUmemGenericAllocationHandle handle, CUdevice device) {
  CUmemAllocationProp properties;
  return driver.cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS &&
         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.location.id == device;
}

/* Memory of another size can't be mapped so. */
static bool map(CUdevice device, int fd, CUdeviceptr at) {
  CUmemGenericAllocationHandle handle;
  if (driver.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS)
    return false;
  bool mapped =
      is_of_device(handle, device) && driver.cuMemMap(at, PIECE_BYTES, 0, handle, 0) == CUDA_SUCCESS;
  driver.cuMemRelease(handle);
  return mapped;
}

static void answer(const struct descriptor *in) { send(in->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

/* A sender that sends anything else is not listened to any more. False: nothing has come of it. */
static bool map_next(CUdevice device, struct descriptor *in, struct block *block, size_t i) {
  struct note note;
  int fd;
  ssize_t n = wire_recv_passed(in->fd, &note, sizeof note, &fd);
  if (n == -EAGAIN)
    return false;
  bool mapped = n == sizeof note && note.magic == NOTE_MAGIC && note.key == atomic_load(&keys[device]) &&
                note.bytes == PIECE_BYTES && fd >= 0 && map(device, fd, piece_at(block, i));
  if (mapped) {
    answer(in);
    block->piece[i].passed = keep(fd);
    block->piece[i].foreign = true;
    return true;
  }
  if (fd >= 0)
    close(fd);
  descriptor_hang_up(in);
  return false;
}

static bool map_from(CUdevice device, struct descriptor *in, struct block *block, size_t i) {
  if (!descriptor_is_ours(in))
    return false;
  lock_take(&descriptors_lock);
  bool mapped = map_next(device, in, block, i);
  lock_release(&descriptors_lock);
  return mapped;
}

bool passing_map(const struct space *space, struct block *block, size_t i) {
  struct side *side = &sides[space->device];
  if (!descriptor_is_ours(&side->listening))
    return false;
  accept_all(space->device);
  for (int k = 0; k < SENDERS; k++)
    if (map_from(space->device, &side->in[k], block, i)) {
      side->mapped++;
      return true;
    }
  return false;
}

/* The kernel closes descriptors that are not asked for. */
bool passing_drop(const struct space *space) {
  struct side *side = &sides[space->device];
  struct descriptor late;
  bool any = false;
  if (space->backing != BACKING_SWAP)
    return false;
  accept_all(space->device);
  for (int i = 0; i < SENDERS * PASSING_MOST; i++) {
    const struct descriptor *in = &side->in[i / PASSING_MOST];
    if (!descriptor_is_ours(in) || recv(in->fd, &(char){0}, 1, MSG_DONTWAIT) <= 0)
      continue;
    answer(in);
    any = true;
  }
  for (; accept_one(space->device, &late); any = true) /* of more than SENDERS */
    descriptor_hang_up(&late);
  return any;
}

void passing_end_in(const struct space *space) {
  struct side *side = &sides[space->device];
  struct descriptor late;
  if (side->mapped)
    log_debug("GPU %d: %u pieces taken from jobs before", space->device, side->mapped);
  side->mapped = 0;
  for (int i = 0; i < SENDERS; i++)
    descriptor_hang_up(&side->in[i]);
  if (descriptor_is_ours(&side->listening))
    shutdown(side->listening.fd, SHUT_RDWR);
  while (accept_one(space->device, &late))
    descriptor_hang_up(&late);
  descriptor_close(&side->listening);
}

/* ---- shared ---- */

/* What has come from another process has the descriptor that it came with, if that is kept. */
static const struct descriptor *kept_of(const struct piece *piece) {
  const struct descriptor *known = piece->passed ? &kept[piece->passed - DESCRIPTOR_LEAST] : NULL;
  return known && descriptor_is_ours(known) ? known : NULL;
}

bool passing_can_lend(const struct piece *piece) {
  lock_take(&descriptors_lock);
  bool can_lend = !piece->foreign || kept_of(piece);
  lock_release(&descriptors_lock);
  return can_lend;
}

static int copy_of(const struct block *block, size_t i) {
  const struct descriptor *known = kept_of(&block->piece[i]);
  return known ? fcntl(known->fd, F_DUPFD_CLOEXEC, DESCRIPTOR_LEAST) : export(piece_at(block, i));
}

int passing_lend(const struct block *block, size_t i, const struct descriptor *to, const void *note,
                 size_t bytes) {
  lock_take(&descriptors_lock);
  int fd = copy_of(block, i);
  int err = fd < 0 ? -EOPNOTSUPP : 0;
  if (err == 0)
    err = descriptor_is_ours(to) ? wire_send_passing(to->fd, note, bytes, fd) : -EBADF;
  if (fd >= 0)
    close(fd);
  lock_release(&descriptors_lock);
  return err;
}

ssize_t passing_borrow(const struct descriptor *from, void *note, size_t bytes,
                       CUmemGenericAllocationHandle *handle, CUresult *result) {
  int fd = -1;
  lock_take(&descriptors_lock);
  ssize_t n = descriptor_is_ours(from) ? wire_recv_passed(from->fd, note, bytes, &fd) : -EBADF;
  *result = fd < 0 ? CUDA_ERROR_INVALID_HANDLE
                   : driver.cuMemImportFromShareableHandle(handle, (void *)(uintptr_t)fd,
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (fd >= 0)
    close(fd);
  lock_release(&descriptors_lock);
  return n;
}

void passing_fork_prepare(void) { lock_take(&descriptors_lock); }
void passing_fork_parent(void) { lock_release(&descriptors_lock); }

/* All of it is the parent's as well. A child that had memory would keep it on the card. */
static void forget_all(void) {
  descriptors_lock = (struct lock)LOCK(LOCK_DESCRIPTORS);
  heirs_lock = (struct lock)LOCK(LOCK_HEIRS);
  for (int i = 0; i < KEPT_MOST; i++)
    if (kept[i].fd > 0)
      descriptor_close(&kept[i]);
  for (CUdevice device = 0; device < DEVICES; device++) {
    struct side *side = &sides[device];
    if (side->packed)
      close(side->packed);
    descriptor_close(&side->out);
    descriptor_close(&side->listening);
    for (int i = 0; i < SENDERS; i++)
      descriptor_close(&side->in[i]);
    *side = (struct side){.sent = 0};
    heirs[device] = (struct memory_heir){.pid = 0};
    atomic_store(&names[device], 0);
    atomic_store(&keys[device], 0);
    atomic_store(&can[device], 0);
    atomic_store(&expected[device], false);
  }
}
IN_FORKED_CHILD(forget_all);
