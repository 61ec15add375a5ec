/* tap.c - libcuda's slot of ioctl, and what passes it; see tap.h. */
#include "preempt/tap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "driver/text.h"
#include "preempt/channels.h"

typedef int (*ioctl_function)(int fd, unsigned long request, ...);

static ioctl_function _Atomic below; /* NULL: nothing is watched */
static tap_listener _Atomic listener;
static _Atomic pid_t tapped_pid;

/* ---- what passes ---- */

/* The driver has just read the parameters. */
static uint32_t value_in(uint32_t class, uint64_t parameters) {
  struct rm_device_parameters device;
  struct rm_group_parameters group;
  const void *at = (const void *)(uintptr_t)parameters; // NOLINT(performance-no-int-to-ptr)
  if (class == RM_DEVICE && at) {
    memcpy(&device, at, sizeof device);
    return device.instance;
  }
  if (class == RM_GROUP && at) {
    memcpy(&group, at, sizeof group);
    return group.engine;
  }
  return UINT32_MAX; /* no GPU, no engine */
}

static void note_alloc(int fd, const void *argument, size_t size) {
  struct rm_alloc_short made;
  struct rm_alloc whole;
  if (size == sizeof whole) {
    memcpy(&whole, argument, sizeof whole);
    memcpy(&made, argument, sizeof made);
    made.status = whole.status;
  } else if (size == sizeof made) {
    memcpy(&made, argument, sizeof made);
  } else {
    channels_doubt(); /* another driver's */
    return;
  }
  if (made.status == RM_OK)
    channels_add(fd, &made, value_in(made.class, made.parameters));
}

static void note_free(const void *argument, size_t size, uint64_t now) {
  struct rm_free freed;
  if (size != sizeof freed) {
    channels_doubt();
    return;
  }
  memcpy(&freed, argument, sizeof freed);
  if (freed.status == RM_OK)
    channels_remove(freed.client, freed.handle, now);
}

static void note_control(const void *argument, size_t size) {
  struct rm_control control;
  if (size != sizeof control)
    return;
  memcpy(&control, argument, sizeof control);
  if (control.status == RM_OK)
    atomic_load (&listener)(&control);
}

static int tapped(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  ioctl_function function = atomic_load_explicit(&below, memory_order_acquire);
  if (_IOC_TYPE(request) != RM_TYPE)
    return function(fd, request, argument);
  uint64_t now = _IOC_NR(request) == RM_FREE ? channels_now() : 0;
  int result = function(fd, request, argument), saved = errno;
  if (result >= 0 && argument)
    switch (_IOC_NR(request)) {
    case RM_ALLOC:
      note_alloc(fd, argument, _IOC_SIZE(request));
      break;
    case RM_FREE:
      note_free(argument, _IOC_SIZE(request), now);
      break;
    case RM_CONTROL:
      note_control(argument, _IOC_SIZE(request));
      break;
    }
  errno = saved;
  return result;
}

int tap_call(int fd, unsigned long request, void *argument) {
  ioctl_function function = atomic_load_explicit(&below, memory_order_acquire);
  if (function)
    return function(fd, request, argument);
  errno = ENOTTY;
  return -1;
}

/* ---- the slot ---- */

struct patch {
  const struct elf_object *library;
  bool done, failed;
};

/* A slot that is bound at the first call leads into the library itself until then. */
static ioctl_function held_by(const uintptr_t *slot, const struct elf_object *library) {
  bool inside = *slot >= library->base && *slot < library->end;
  return !library->bound && inside ? (ioctl_function)ioctl : (ioctl_function)*slot; // NOLINT
}

static void patch(const char *name, uintptr_t *slot, void *argument) {
  struct patch *p = argument;
  if (!text_equal(name, "ioctl") || *slot == (uintptr_t)tapped)
    return;
  ioctl_function before = held_by(slot, p->library);
  ioctl_function expected = NULL;
  bool first = atomic_compare_exchange_strong(&below, &expected, before);
  if ((first || expected == before) && elf_set_slot(slot, (uintptr_t)tapped))
    p->done = true;
  else
    p->failed = true;
}

bool tap_library(const struct elf_object *library, tap_listener hears) {
  struct patch p = {.library = library};
  atomic_store(&listener, hears);
  elf_each_import(library, patch, &p);
  if (p.failed)
    channels_doubt();
  if (p.done)
    atomic_store(&tapped_pid, getpid());
  return p.done && !p.failed;
}

bool tap_is_on(void) { return atomic_load(&below) && getpid() == atomic_load(&tapped_pid); }

/* The slot is as in the parent: what is below stays. */
void tap_fork_child(void) {
  if (atomic_load(&below))
    atomic_store(&tapped_pid, getpid());
}
