/* page.c - mapping the meter pages. See page.h. */
#include "meter/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/futex.h"
#include "gpushare/protocol.h"

#define STATES_AHEAD (1u << 16)

static struct gs_meter *_Atomic pages[GS_GPUS_PER_CLIENT];

struct gs_meter *page_of(CUdevice device) {
  return atomic_load_explicit(&pages[device], memory_order_acquire);
}

uint32_t page_state(struct gs_meter *page) { return atomic_load(&page->limit_seq); }

void page_wait(struct gs_meter *page, uint32_t state, uint64_t timeout_ns) {
  futex_wait_shared(&page->limit_seq, state, timeout_ns);
}

void page_touch(struct gs_meter *page) {
  atomic_fetch_add(&page->limit_seq, 1);
  futex_wake_shared(&page->limit_seq, INT32_MAX);
}

static void *map(int flags, int fd) {
  void *at = mmap(NULL, GS_METER_SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* Shared memory as the daemon's, so that who waits in it can be reached by another mapping of it. */
static struct gs_meter *map_own(void) {
  struct gs_meter *page = map(MAP_SHARED | MAP_ANONYMOUS, -1);
  if (page)
    atomic_store(&page->limit, GS_LIMIT_NONE);
  return page;
}

/* In one step. Takes `fresh` in any case. */
static int take_place(struct gs_meter *page, struct gs_meter *fresh) {
  if (mremap(fresh, GS_METER_SIZE, GS_METER_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page)
    return 0;
  int err = -errno;
  munmap(fresh, GS_METER_SIZE);
  return err;
}

/* Another mapping of the same page; NULL when memory is out. */
static struct gs_meter *map_again(struct gs_meter *page) {
  void *at = mremap(page, 0, GS_METER_SIZE, MREMAP_MAYMOVE);
  return at == MAP_FAILED ? NULL : at;
}

/* Who waits in the old page is woken afterwards: nobody can begin to wait there any more. Who has seen a
 * state of the old page, and is about to wait, finds another one: the states of the new one are far ahead. */
static int replace(CUdevice device, struct gs_meter *fresh) {
  struct gs_meter *page = page_of(device);
  if (!page) {
    atomic_store(&pages[device], fresh);
    return 0;
  }
  struct gs_meter *old = map_again(page);
  if (!old) {
    munmap(fresh, GS_METER_SIZE);
    return -ENOMEM;
  }
  atomic_fetch_add(&fresh->limit_seq, page_state(page) + STATES_AHEAD);
  int err = take_place(page, fresh);
  page_touch(old);
  munmap(old, GS_METER_SIZE);
  return err;
}

/* It can't become shorter under our hands. */
bool page_is_fit(int fd) {
  struct stat file;
  int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &file) == 0 && file.st_size == GS_METER_SIZE;
}

int page_map(int fd, struct gs_meter **page) {
  struct gs_meter *fresh = page_is_fit(fd) ? map(MAP_SHARED, fd) : NULL;
  if (!fresh)
    return -EINVAL;
  if (fresh->version != GS_METER_VERSION) {
    munmap(fresh, GS_METER_SIZE);
    return -EPROTONOSUPPORT;
  }
  *page = fresh;
  return 0;
}

void page_unmap(struct gs_meter *page) {
  if (page)
    munmap(page, GS_METER_SIZE);
}

int page_attach(CUdevice device, struct gs_meter *page) { return replace(device, page); }

/* Should there be no memory for a page of our own, the old one has to say the same. */
void page_detach(CUdevice device) {
  struct gs_meter *page = page_of(device), *own = page ? map_own() : NULL;
  if (!page || (own && replace(device, own) == 0))
    return;
  atomic_store(&page->limit, GS_LIMIT_NONE);
  atomic_store(&page->wanted, 0);
  page_touch(page);
}

void page_fork_child(void) {
  for (CUdevice device = 0; device < GS_GPUS_PER_CLIENT; device++) {
    struct gs_meter *page = page_of(device), *own = page ? map_own() : NULL;
    if (own && take_place(page, own) == 0)
      continue;
    if (page) /* the parent's page is none of the child's business; no thread of the child knows it */
      munmap(page, GS_METER_SIZE);
    atomic_store(&pages[device], NULL);
  }
}
