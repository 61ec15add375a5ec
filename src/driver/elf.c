/* elf.c - symbol look-up in loaded objects, by hand. */
#include "driver/elf.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/text.h"

#if defined(__x86_64__)
#define RELOCATION_SLOT R_X86_64_JUMP_SLOT
#define RELOCATION_DATA R_X86_64_GLOB_DAT
#define RELOCATION_POINTER R_X86_64_64
#else
#define RELOCATION_SLOT R_AARCH64_JUMP_SLOT
#define RELOCATION_DATA R_AARCH64_GLOB_DAT
#define RELOCATION_POINTER R_AARCH64_ABS64
#endif

/* Whether so many bytes of the object are there, for numbers of so many bytes. */
static bool is_inside(const struct elf_object *object, const void *at, uint64_t bytes, size_t alignment) {
  uintptr_t address = (uintptr_t)at;
  return address >= object->base && address <= object->end && bytes <= object->end - address &&
         address % alignment == 0;
}

/* glibc relocates the addresses in the dynamic section on most machines, not for every object (vdso). NULL:
 * the table is not in the object. */
static const void *table(const struct elf_object *object, ElfW(Addr) address, size_t alignment) {
  const void *at = (const void *)(address < object->base ? object->base + address : address);
  return is_inside(object, at, 0, alignment) ? at : NULL;
}

/* As many as are there. */
static size_t count_relocations(const struct elf_object *object, const ElfW(Rela) * list, uint64_t bytes) {
  return list && is_inside(object, list, bytes, 1) ? bytes / sizeof *list : 0;
}

bool elf_read(struct elf_object *object, uintptr_t base, uintptr_t end, const ElfW(Dyn) * dynamic) {
  uint64_t plt_bytes = 0, bytes = 0;
  *object = (struct elf_object){.base = base, .end = end};
  for (const ElfW(Dyn) *d = dynamic;
       d && is_inside(object, d, sizeof *d, sizeof(ElfW(Addr))) && d->d_tag != DT_NULL; d++)
    switch (d->d_tag) {
    case DT_SYMTAB:
      object->symbols = table(object, d->d_un.d_ptr, sizeof(ElfW(Addr)));
      break;
    case DT_STRTAB:
      object->strings = table(object, d->d_un.d_ptr, 1);
      break;
    case DT_GNU_HASH:
      object->gnu_hash = table(object, d->d_un.d_ptr, sizeof(uint32_t));
      break;
    case DT_HASH:
      object->sysv_hash = table(object, d->d_un.d_ptr, sizeof(uint32_t));
      break;
    case DT_JMPREL:
      object->plt_relocations = table(object, d->d_un.d_ptr, sizeof(ElfW(Addr)));
      break;
    case DT_PLTRELSZ:
      plt_bytes = d->d_un.d_val;
      break;
    case DT_RELA:
      object->relocations = table(object, d->d_un.d_ptr, sizeof(ElfW(Addr)));
      break;
    case DT_RELASZ:
      bytes = d->d_un.d_val;
      break;
    case DT_BIND_NOW:
      object->bound = true;
      break;
    case DT_FLAGS:
      object->bound |= (d->d_un.d_val & DF_BIND_NOW) != 0;
      break;
    case DT_FLAGS_1:
      object->bound |= (d->d_un.d_val & DF_1_NOW) != 0;
      break;
    }
  object->plt_relocation_count = count_relocations(object, object->plt_relocations, plt_bytes);
  object->relocation_count = count_relocations(object, object->relocations, bytes);
  return object->symbols && object->strings && (object->gnu_hash || object->sysv_hash);
}

/* The entry of a table of numbers; false: it is not there. */
static bool number_at(const struct elf_object *object, const uint32_t *numbers, uint64_t index,
                      uint32_t *number) {
  if (index > UINT64_MAX / sizeof *numbers - 1 ||
      !is_inside(object, numbers, (index + 1) * sizeof *numbers, sizeof *numbers))
    return false;
  *number = numbers[index];
  return true;
}

/* A name of that length. One that the object ends before is another one. */
static bool is_name_at(const struct elf_object *object, uint64_t offset, const char *name) {
  size_t size = 1;
  for (; name[size - 1]; size++)
    __asm__ volatile(""); /* see text.h */
  return is_inside(object, object->strings, offset + size, 1) && text_equal(object->strings + offset, name);
}

static void *function_at(const struct elf_object *object, uint32_t index, const char *name) {
  const ElfW(Sym) *symbol = &object->symbols[index];
  if (!is_inside(object, object->symbols, ((uint64_t)index + 1) * sizeof *symbol, 1))
    return NULL;
  if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
    return NULL;
  return is_name_at(object, symbol->st_name, name) ? (void *)(object->base + symbol->st_value) : NULL;
}

static uint32_t gnu_hash(const char *name) {
  uint32_t hash = 5381;
  for (; *name; name++)
    hash = hash * 33 + (unsigned char)*name;
  return hash;
}

/* Layout of DT_GNU_HASH: bucket count, first symbol, bloom size, bloom shift, bloom, buckets, chains. */
static void *find_by_gnu_hash(const struct elf_object *object, const char *name) {
  const uint32_t *header = object->gnu_hash;
  if (!is_inside(object, header, 4 * sizeof *header, 1) || header[0] == 0)
    return NULL;
  uint32_t bucket_count = header[0], first = header[1], hash = gnu_hash(name), index, entry;
  uint64_t buckets = 4 + (uint64_t)header[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  uint64_t chains = buckets + bucket_count;
  if (!number_at(object, header, buckets + hash % bucket_count, &index) || index < first)
    return NULL;
  for (; number_at(object, header, chains + (index - first), &entry); index++) {
    void *function = (entry | 1) == (hash | 1) ? function_at(object, index, name) : NULL;
    if (function || entry & 1)
      return function;
  }
  return NULL;
}

static uint32_t sysv_hash(const char *name) {
  uint32_t hash = 0;
  for (; *name; name++) {
    hash = (hash << 4) + (unsigned char)*name;
    uint32_t high = hash & 0xf0000000u;
    hash = (hash ^ (high >> 24)) & ~high;
  }
  return hash;
}

/* Layout of DT_HASH: bucket count, chain count, buckets, chains. A chain is no longer than there are entries,
 * and has an end even if these lead in a circle. */
static void *find_by_sysv_hash(const struct elf_object *object, const char *name) {
  const uint32_t *header = object->sysv_hash;
  if (!is_inside(object, header, 2 * sizeof *header, 1) || header[0] == 0)
    return NULL;
  uint64_t chains = 2 + (uint64_t)header[0];
  uint64_t entries = (object->end - (uintptr_t)header) / sizeof *header;
  uint64_t left = header[1] < entries ? header[1] : entries;
  uint32_t index;
  for (uint64_t at = 2 + sysv_hash(name) % header[0];
       left > 0 && number_at(object, header, at, &index) && index != STN_UNDEF; at = chains + index, left--) {
    void *function = function_at(object, index, name);
    if (function)
      return function;
  }
  return NULL;
}

void *elf_find_function(const struct elf_object *object, const char *name) {
  return object->gnu_hash ? find_by_gnu_hash(object, name) : find_by_sysv_hash(object, name);
}

static void each_import(const struct elf_object *object, const ElfW(Rela) * list, size_t count,
                        void (*visit)(const char *name, uintptr_t *slot, void *argument), void *argument) {
  for (size_t i = 0; i < count; i++) {
    uint64_t type = ELF64_R_TYPE(list[i].r_info);
    if (type != RELOCATION_SLOT && type != RELOCATION_DATA && type != RELOCATION_POINTER)
      continue;
    const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(list[i].r_info)];
    uintptr_t *slot = (uintptr_t *)(object->base + list[i].r_offset);
    if (is_inside(object, symbol, sizeof *symbol, 1) && symbol->st_shndx == SHN_UNDEF &&
        is_inside(object, object->strings + symbol->st_name, 1, 1) &&
        is_inside(object, slot, sizeof *slot, sizeof *slot))
      visit(object->strings + symbol->st_name, slot, argument);
  }
}

void elf_each_import(const struct elf_object *object,
                     void (*visit)(const char *name, uintptr_t *slot, void *argument), void *argument) {
  each_import(object, object->plt_relocations, object->plt_relocation_count, visit, argument);
  each_import(object, object->relocations, object->relocation_count, visit, argument);
}

bool elf_set_slot(uintptr_t *slot, uintptr_t value) {
  uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
  void *page = (void *)((uintptr_t)slot & ~(page_size - 1));
  if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0)
    return false;
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  return true;
}

bool elf_name_matches(const char *path, const char *name) {
  const char *version = text_after(text_file_name(path), name);
  while (version && (*version == '.' || (*version >= '0' && *version <= '9')))
    version++;
  return version && !*version;
}
