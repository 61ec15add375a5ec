/* driver.c - find libcuda.so.1 and fill in the table of its functions. */
#include "interpose/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/log.h"
#include "interpose/elf.h"
#include "interpose/lookup.h"

struct driver driver;

static const struct {
  const char *name;
  size_t offset;
} entries[] = {
#define GATED(group, name, params, args, stream) {#name, offsetof(struct driver, name)},
#define CUSTOM(group, name, params, args) {#name, offsetof(struct driver, name)},
#define CALL(name, params) {#name, offsetof(struct driver, name)},
#include "hooks.def"
};

static _Atomic bool resolved;

static int find_libcuda(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  if (!info->dlpi_name || !elf_name_matches(info->dlpi_name, "libcuda.so"))
    return 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      return elf_read(data, info->dlpi_addr, (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
  return 0;
}

/* Two threads may do this at once; both store the same values. */
static void fill_in(const struct elf_object *libcuda) {
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    uintptr_t *field = (uintptr_t *)((char *)&driver + entries[i].offset);
    __atomic_store_n(field, (uintptr_t)elf_find_function(libcuda, entries[i].name), __ATOMIC_RELAXED);
  }
}

bool driver_resolve(void) {
  if (atomic_load_explicit(&resolved, memory_order_acquire))
    return true;
  struct elf_object libcuda;
  if (dl_iterate_phdr(find_libcuda, &libcuda) == 0)
    return false;
  fill_in(&libcuda);
  lookup_learn();
  atomic_store_explicit(&resolved, true, memory_order_release);
  return true;
}

/* A program linked to libcuda may call it from several threads at once first thing. */
__attribute__((constructor)) static void resolve_early(void) { driver_resolve(); }

bool driver_load(void) {
  if (driver_resolve())
    return true;
  if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL)) {
    log_error(
        "a CUDA function was called, but libcuda.so.1 can't be loaded: is the NVIDIA driver installed?");
    return false;
  }
  return driver_resolve();
}
