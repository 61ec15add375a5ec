/* libraries.c - the list of loaded libcuda.so; see libraries.h. */
#include "driver/libraries.h"

#include <stdbool.h>

/* All of it under the dynamic linker's lock. */
static struct libraries loaded;
static unsigned long long seen_adds, seen_subs;

struct pass {
  void (*visit)(const struct libraries *libraries, void *argument);
  void *argument;
  bool scanning; /* the list is being read anew */
  bool visited;
};

static bool read_library(struct library *library, const struct dl_phdr_info *info) {
  const ElfW(Dyn) *dynamic = NULL;
  uintptr_t end = 0; /* of its segments */
  library->path = info->dlpi_name;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    uintptr_t header_end = info->dlpi_addr + header->p_vaddr + header->p_memsz;
    if (header->p_type == PT_DYNAMIC)
      dynamic = (const void *)(info->dlpi_addr + header->p_vaddr);
    if (header->p_type == PT_LOAD && header_end > end)
      end = header_end;
  }
  return elf_read(&library->elf, info->dlpi_addr, end, dynamic);
}

/* The linker counts what it has loaded and unloaded, and tells with each object: while neither count moves,
 * what was read last is right. */
static int look(struct dl_phdr_info *info, size_t size, void *data) {
  struct pass *pass = data;
  (void)size;
  if (!pass->scanning) {
    if (info->dlpi_adds == seen_adds && info->dlpi_subs == seen_subs) {
      pass->visit(&loaded, pass->argument);
      pass->visited = true;
      return 1;
    }
    pass->scanning = true;
    seen_adds = info->dlpi_adds;
    seen_subs = info->dlpi_subs;
    loaded.generation++;
    loaded.count = 0;
  }
  if (loaded.count < LIBRARIES_MAX && info->dlpi_name && elf_name_matches(info->dlpi_name, "libcuda.so") &&
      read_library(&loaded.list[loaded.count], info))
    loaded.count++;
  return 0;
}

void libraries_visit(void (*visit)(const struct libraries *, void *), void *argument) {
  struct pass pass = {.visit = visit, .argument = argument};
  while (!pass.visited) {
    pass.scanning = false;
    dl_iterate_phdr(look, &pass);
  }
}

const struct library *libraries_find(const struct libraries *libraries, uintptr_t address) {
  for (size_t i = 0; i < libraries->count; i++)
    if (address >= libraries->list[i].elf.base && address < libraries->list[i].elf.end)
      return &libraries->list[i];
  return NULL;
}
