/* meters.c - see meters.h. */
#include "meters.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static bool map(struct meter *meter) {
  void *at = MAP_FAILED;
  meter->fd = memfd_create("gpushare-meter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (meter->fd >= 0 && ftruncate(meter->fd, GS_METER_SIZE) == 0 && fcntl(meter->fd, F_ADD_SEALS, SEALS) == 0)
    at = mmap(NULL, GS_METER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, meter->fd, 0);
  meter->page = at == MAP_FAILED ? NULL : at;
  if (meter->page)
    madvise(at, GS_METER_SIZE, MADV_DONTFORK); /* of so many pages a fork would take long */
  return meter->page;
}

void meter_make(struct meter *meter) {
  if (!map(meter)) {
    meter_passed(meter);
    return;
  }
  meter->page->version = GS_METER_VERSION;
  atomic_store(&meter->page->limit, GS_LIMIT_NONE);
  atomic_store(&meter->page->limit_seq, 1); /* who has seen nothing yet has seen 0 */
}

void meter_passed(struct meter *meter) {
  if (meter->fd >= 0)
    close(meter->fd);
  meter->fd = -1;
}

void meter_end(struct meter *meter) {
  meter_passed(meter);
  if (meter->page)
    munmap(meter->page, GS_METER_SIZE);
  meter->page = NULL;
}
