/*
 * elf.h - look a symbol up in a loaded object by reading its dynamic section, without dlsym: usable before
 * constructors have run, inside look-ups, and without allocation.
 */
#ifndef GS_ELF_H
#define GS_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* The tables of one loaded object. Valid while the object is loaded. */
struct elf_object {
  uintptr_t base, end;
  const ElfW(Sym) * symbols;
  const char *strings;
  const uint32_t *gnu_hash; /* DT_GNU_HASH, or NULL */
  const uint32_t *sysv_hash;
  const ElfW(Rela) * plt_relocations;
  size_t plt_relocation_count;
  const ElfW(Rela) * relocations;
  size_t relocation_count;
  bool bound; /* all of its imports were bound when it was loaded */
};

/* Where an object ends of which only the base is known. */
#define ELF_END_UNKNOWN UINTPTR_MAX

/* Read the tables of the object that is loaded from base to end, of which nothing else is looked at. False if
 * it has no symbols. */
bool elf_read(struct elf_object *object, uintptr_t base, uintptr_t end, const ElfW(Dyn) * dynamic);

/* Address of a function the object defines, of whatever version; NULL if it defines none of that name. */
void *elf_find_function(const struct elf_object *object, const char *name);

/* Call `visit` for each slot through which the object reaches a symbol that it doesn't define itself. The
 * slot of a function that is bound at its first call holds an address within the object until then. */
void elf_each_import(const struct elf_object *object,
                     void (*visit)(const char *name, uintptr_t *slot, void *argument), void *argument);

/* Store an address in such a slot. Its page may have been made read-only: it is made writable, and left so,
 * as whether it was read-only isn't known. False: it can't be. */
bool elf_set_slot(uintptr_t *slot, uintptr_t value);

/* Whether a path's last component is `name` or `name` followed by digits and dots ("libcuda.so" ~
 * "libcuda.so.1"). */
bool elf_name_matches(const char *path, const char *name);

#endif
