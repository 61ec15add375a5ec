/* lookup.c - from look-ups to wrappers; see lookup.h. */
#include "interpose/lookup.h"

#include <assert.h>
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/deepbind.h"
#include "interpose/driver.h"
#include "interpose/elf.h"
#include "interpose/hooks.h"
#include "interpose/text.h"
#include "interpose/wrappers.h"

/* Real address -> wrapper: open addressing, at most half full, entered once and in one order, so that two
 * threads entering at the same time store the same. */
#define MAP_SIZE 1024
static _Atomic uintptr_t map_real[MAP_SIZE];
static _Atomic uintptr_t map_wrapper[MAP_SIZE];

static size_t map_start(uintptr_t real) { return (real >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 54; }

static void map_enter(uintptr_t real, uintptr_t wrapper) {
  size_t i = map_start(real);
  for (;; i = (i + 1) % MAP_SIZE) {
    uintptr_t there = atomic_load_explicit(&map_real[i], memory_order_acquire);
    if (there == real)
      return; /* several names of one function: the first row wins */
    if (there == 0)
      break;
  }
  atomic_store_explicit(&map_wrapper[i], wrapper, memory_order_relaxed);
  atomic_store_explicit(&map_real[i], real, memory_order_release);
}

void lookup_learn(void) {
  static_assert(MAP_SIZE >= 1024, "twice the rows of hooks.def, and 2^10 for map_start");
  for (size_t i = 0; i < wrapper_count; i++)
    if (*wrappers[i].real)
      map_enter((uintptr_t)*wrappers[i].real, (uintptr_t)wrappers[i].function);
}

void *lookup_wrapper(void *real) {
  if (!real || !driver_resolve())
    return real;
  for (size_t i = map_start((uintptr_t)real);; i = (i + 1) % MAP_SIZE) {
    uintptr_t there = atomic_load_explicit(&map_real[i], memory_order_acquire);
    if (there == (uintptr_t)real)
      return (void *)atomic_load_explicit(&map_wrapper[i], memory_order_relaxed);
    if (there == 0)
      return real;
  }
}

/* The C library's own functions are read from its symbol table: asking dlsym or dlvsym for them could lead
 * back to us, or to another interposer. The list of loaded objects is walked without its lock, at start-up.
 */
static void find_linker_functions(struct linker *found) {
  for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
    struct elf_object object;
    if (!elf_name_matches(map->l_name, "libc.so") && !elf_name_matches(map->l_name, "libdl.so"))
      continue;
    if (!elf_read(&object, map->l_addr, map->l_ld))
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

const struct linker *lookup_linker(void) {
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

static bool is_pseudo_handle(const void *handle) { return handle == RTLD_DEFAULT || handle == RTLD_NEXT; }

/* The look-up functions themselves are replaced as well: whoever fetches dlsym gets ours. */
static void *linker_wrapper(void *real) {
  const struct linker *linker = lookup_linker();
  if (real == (void *)linker->dlsym)
    return (void *)trampoline_dlsym;
  if (real == (void *)linker->dlvsym)
    return (void *)trampoline_dlvsym;
  if (real == (void *)linker->dlopen)
    return (void *)trampoline_dlopen;
  return real;
}

/* What the name is known to mean wherever it is looked up from, or NULL. */
static void *wrapper_by_name(const char *name) {
  if (text_equal(name, "dlsym"))
    return (void *)trampoline_dlsym;
  if (text_equal(name, "dlvsym"))
    return (void *)trampoline_dlvsym;
  if (text_equal(name, "dlopen"))
    return (void *)trampoline_dlopen;
  if (name[0] != 'c' || name[1] != 'u' || !driver_resolve())
    return NULL;
  for (size_t i = 0; i < wrapper_count; i++)
    if (*wrappers[i].real && text_equal(name, wrappers[i].name))
      return wrappers[i].function;
  return NULL;
}

static bool may_be_ours(const char *name) {
  return name && ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'd' && name[1] == 'l'));
}

static void *replace(void *real, const char *name) {
  return name[0] == 'd' ? linker_wrapper(real) : lookup_wrapper(real);
}

struct verdict lookup_dlsym(void *handle, const char *name) {
  const struct linker *linker = lookup_linker();
  deepbind_patch_pending();
  void *const pass_on = (void *)linker->dlsym;
  if (!may_be_ours(name))
    return (struct verdict){NULL, pass_on};
  if (is_pseudo_handle(handle)) {
    void *wrapper = wrapper_by_name(name);
    return (struct verdict){wrapper, wrapper ? NULL : pass_on};
  }
  return (struct verdict){replace(linker->dlsym(handle, name), name), NULL};
}

struct verdict lookup_dlvsym(void *handle, const char *name, const char *version) {
  const struct linker *linker = lookup_linker();
  deepbind_patch_pending();
  void *const pass_on = (void *)linker->dlvsym;
  if (!may_be_ours(name))
    return (struct verdict){NULL, pass_on};
  if (is_pseudo_handle(handle)) {
    void *wrapper = wrapper_by_name(name);
    return (struct verdict){wrapper, wrapper ? NULL : pass_on};
  }
  return (struct verdict){replace(linker->dlvsym(handle, name, version), name), NULL};
}

/* A plain name is searched for along the caller's own paths, so that call must be a jump, and what it loads
 * is patched at the next look-up, which usually is for a function in it. */
struct verdict lookup_dlopen(const char *file, int mode) {
  const struct linker *linker = lookup_linker();
  deepbind_patch_pending();
  if (!(mode & RTLD_DEEPBIND) || !file)
    return (struct verdict){NULL, (void *)linker->dlopen};
  if (text_file_name(file) == file) {
    deepbind_expect();
    return (struct verdict){NULL, (void *)linker->dlopen};
  }
  void *handle = linker->dlopen(file, mode);
  if (handle)
    deepbind_patch(handle);
  return (struct verdict){handle, NULL};
}

CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
  CUresult result = driver.cuGetProcAddress(symbol, pfn, cudaVersion, flags);
  if (result == CUDA_SUCCESS && pfn)
    *pfn = lookup_wrapper(*pfn);
  return result;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *symbolStatus) {
  CUresult result = driver.cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
  if (result == CUDA_SUCCESS && pfn)
    *pfn = lookup_wrapper(*pfn);
  return result;
}
