/* deepbind.c - point the bound slots of RTLD_DEEPBIND libraries at our wrappers. */
#include "interpose/deepbind.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/log.h"
#include "driver/elf.h"
#include "interpose/lookup.h"

/* What our look-up gives for this name is what a preloaded library would have bound; NULL: not ours. */
static void *wanted(const char *name) {
  struct verdict verdict = lookup_dlsym(RTLD_NEXT, name);
  return verdict.tail ? NULL : verdict.result;
}

static void patch(const char *name, uintptr_t *slot, void *unused) {
  void *wrapper = wanted(name);
  (void)unused;
  if (wrapper && *slot != (uintptr_t)wrapper && !elf_set_slot(slot, (uintptr_t)wrapper))
    log_warn("a library opened with RTLD_DEEPBIND can't be hooked: its calls are not shared");
}

/* libcuda binds its own look-ups: those are the driver's business. */
static int is_left_alone(const char *path) {
  return elf_name_matches(path, "libcuda.so") || elf_name_matches(path, "libc.so") ||
         strstr(path, "/ld-linux");
}

/* This object and what was loaded after it. */
static void patch_from(const struct link_map *map) {
  for (; map; map = map->l_next) {
    struct elf_object object;
    if (is_left_alone(map->l_name) || !elf_read(&object, map->l_addr, ELF_END_UNKNOWN, map->l_ld))
      continue;
    elf_each_import(&object, patch, NULL);
  }
}

void deepbind_patch(void *handle) {
  struct link_map *map = NULL;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0)
    patch_from(map);
}

static _Atomic bool expected;

void deepbind_expect(void) { atomic_store(&expected, true); }

void deepbind_patch_pending(void) {
  if (atomic_load_explicit(&expected, memory_order_relaxed) && atomic_exchange(&expected, false))
    patch_from(_r_debug.r_map);
}
