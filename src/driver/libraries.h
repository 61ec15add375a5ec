/*
 * libraries.h - which libcuda.so are loaded now. A program may open one, ask its version, close it, and open
 * another by its path, as those do that bring a driver of their own (forward compatibility).
 *
 * Threading: any thread. The list is kept under the dynamic linker's own lock (dl_iterate_phdr), which
 * nothing but that takes: no library comes or goes while a visitor looks. Nothing here allocates or logs.
 */
#ifndef GS_LIBRARIES_H
#define GS_LIBRARIES_H

#include <stddef.h>
#include <stdint.h>

#include "driver/elf.h"

#define LIBRARIES_MAX 4 /* more at once are not looked at */

struct library {
  struct elf_object elf;
  const char *path; /* while it is loaded */
};

struct libraries {
  uint64_t generation; /* another one: libraries have come or gone, not necessarily a libcuda */
  size_t count;
  struct library list[LIBRARIES_MAX]; /* in the order of their loading */
};

/* Call `visit` once with what is loaded. The visitor must not call into the dynamic linker, nor the driver.
 */
void libraries_visit(void (*visit)(const struct libraries *libraries, void *argument), void *argument);

/* The library that has this address, or NULL. */
const struct library *libraries_find(const struct libraries *libraries, uintptr_t address);

#endif
