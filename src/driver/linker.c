/* linker.c - the dynamic linker's own look-ups, past every interposer. */
#include "driver/linker.h"

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "driver/elf.h"

/* The C library's own functions are read from its symbol table: asking dlsym or dlvsym for them could lead
 * back to us, or to another interposer. The list of loaded objects is walked without its lock, at start-up.
 */
static void find_linker_functions(struct linker *found) {
  for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
    struct elf_object object;
    if (!elf_name_matches(map->l_name, "libc.so") && !elf_name_matches(map->l_name, "libdl.so"))
      continue;
    if (!elf_read(&object, map->l_addr, ELF_END_UNKNOWN, map->l_ld))
      continue;
    void *dlsym_there = elf_find_function(&object, "dlsym");
    if (!dlsym_there)
      continue;
    found->dlsym = (void *(*)(void *, const char *))dlsym_there;
    found->dlvsym = (void *(*)(void *, const char *, const char *))elf_find_function(&object, "dlvsym");
    found->dlopen = (void *(*)(const char *, int))elf_find_function(&object, "dlopen");
    return;
  }
}

const struct linker *linker_functions(void) {
  static struct linker linker;
  static _Atomic bool known;
  if (!atomic_load_explicit(&known, memory_order_acquire)) {
    struct linker found = {0};
    find_linker_functions(&found);
    linker = found;
    atomic_store_explicit(&known, true, memory_order_release);
  }
  return &linker;
}
