/* elf.c - symbol look-up in loaded objects, by hand. */
#include "interpose/elf.h"

#include <stddef.h>

#include "interpose/text.h"

/* glibc relocates the addresses in the dynamic section on most machines, not for every object (vdso). */
static const void *table(uintptr_t base, ElfW(Addr) address) {
  return (const void *)(address < base ? base + address : address);
}

bool elf_read(struct elf_object *object, uintptr_t base, const ElfW(Dyn) * dynamic) {
  *object = (struct elf_object){0};
  object->base = base;
  for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++)
    switch (d->d_tag) {
    case DT_SYMTAB:
      object->symbols = table(base, d->d_un.d_ptr);
      break;
    case DT_STRTAB:
      object->strings = table(base, d->d_un.d_ptr);
      break;
    case DT_GNU_HASH:
      object->gnu_hash = table(base, d->d_un.d_ptr);
      break;
    case DT_HASH:
      object->sysv_hash = table(base, d->d_un.d_ptr);
      break;
    case DT_JMPREL:
      object->plt_relocations = table(base, d->d_un.d_ptr);
      break;
    case DT_PLTRELSZ:
      object->plt_relocation_count = d->d_un.d_val / sizeof(ElfW(Rela));
      break;
    case DT_RELA:
      object->relocations = table(base, d->d_un.d_ptr);
      break;
    case DT_RELASZ:
      object->relocation_count = d->d_un.d_val / sizeof(ElfW(Rela));
      break;
    }
  return object->symbols && object->strings && (object->gnu_hash || object->sysv_hash);
}

static void *function_at(const struct elf_object *object, uint32_t index, const char *name) {
  const ElfW(Sym) *symbol = &object->symbols[index];
  if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
    return NULL;
  if (!text_equal(object->strings + symbol->st_name, name))
    return NULL;
  return (void *)(object->base + symbol->st_value);
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
  uint32_t bucket_count = header[0], first = header[1], bloom_size = header[2];
  const uint32_t *buckets = header + 4 + bloom_size * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chains = buckets + bucket_count;
  uint32_t hash = gnu_hash(name);
  if (bucket_count == 0)
    return NULL;
  uint32_t index = buckets[hash % bucket_count];
  if (index < first)
    return NULL;
  for (;; index++) {
    uint32_t entry = chains[index - first];
    if ((entry | 1) == (hash | 1)) {
      void *function = function_at(object, index, name);
      if (function)
        return function;
    }
    if (entry & 1)
      return NULL;
  }
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

/* Layout of DT_HASH: bucket count, chain count, buckets, chains. */
static void *find_by_sysv_hash(const struct elf_object *object, const char *name) {
  const uint32_t *header = object->sysv_hash;
  const uint32_t *buckets = header + 2, *chains = buckets + header[0];
  if (header[0] == 0)
    return NULL;
  for (uint32_t index = buckets[sysv_hash(name) % header[0]]; index != STN_UNDEF; index = chains[index]) {
    void *function = function_at(object, index, name);
    if (function)
      return function;
  }
  return NULL;
}

void *elf_find_function(const struct elf_object *object, const char *name) {
  return object->gnu_hash ? find_by_gnu_hash(object, name) : find_by_sysv_hash(object, name);
}

bool elf_name_matches(const char *path, const char *name) {
  const char *version = text_after(text_file_name(path), name);
  while (version && (*version == '.' || (*version >= '0' && *version <= '9')))
    version++;
  return version && !*version;
}
