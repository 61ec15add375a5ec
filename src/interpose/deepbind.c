/* deepbind.c - point the bound slots of RTLD_DEEPBIND libraries at our wrappers. */
#include "interpose/deepbind.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "interpose/elf.h"
#include "interpose/lookup.h"

#if defined(__x86_64__)
#define RELOCATION_SLOT R_X86_64_JUMP_SLOT
#define RELOCATION_DATA R_X86_64_GLOB_DAT
#define RELOCATION_POINTER R_X86_64_64
#else
#define RELOCATION_SLOT R_AARCH64_JUMP_SLOT
#define RELOCATION_DATA R_AARCH64_GLOB_DAT
#define RELOCATION_POINTER R_AARCH64_ABS64
#endif

/* The slot's page may have been made read-only (RELRO): make it writable for the store, and leave it so, as
 * whether it was read-only isn't known. */
static void store(uintptr_t *slot, uintptr_t value) {
  uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
  void *page = (void *)((uintptr_t)slot & ~(page_size - 1));
  if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
    log_warn("a library opened with RTLD_DEEPBIND can't be hooked: its calls are not shared");
    return;
  }
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

/* What our look-up gives for this name is what a preloaded library would have bound; NULL: not ours. */
static void *wanted(const char *name) {
  struct verdict verdict = lookup_dlsym(RTLD_NEXT, name);
  return verdict.tail ? NULL : verdict.result;
}

static void patch_table(const struct elf_object *object, const ElfW(Rela) * table, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint64_t type = ELF64_R_TYPE(table[i].r_info);
    if (type != RELOCATION_SLOT && type != RELOCATION_DATA && type != RELOCATION_POINTER)
      continue;
    const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(table[i].r_info)];
    void *wrapper = symbol->st_shndx == SHN_UNDEF ? wanted(object->strings + symbol->st_name) : NULL;
    uintptr_t *slot = (uintptr_t *)(object->base + table[i].r_offset);
    if (wrapper && *slot != (uintptr_t)wrapper)
      store(slot, (uintptr_t)wrapper);
  }
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
    patch_table(&object, object.plt_relocations, object.plt_relocation_count);
    patch_table(&object, object.relocations, object.relocation_count);
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
