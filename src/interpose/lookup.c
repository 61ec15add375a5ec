/* lookup.c - from look-ups to wrappers; see lookup.h. */
#include "interpose/lookup.h"

#include <assert.h>
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/log.h"
#include "driver/driver.h"
#include "driver/elf.h"
#include "driver/hooks.h"
#include "driver/libraries.h"
#include "driver/linker.h"
#include "driver/text.h"
#include "interpose/wrappers.h"

/* Real address -> wrapper: open addressing, at most half full. Until the driver is settled, the functions of
 * all loaded drivers are known, and the map is written and read under the dynamic linker's lock; from then on
 * it is constant. */
#define MAP_BITS 12
#define MAP_SIZE (1 << MAP_BITS)
static uintptr_t map_real[MAP_SIZE];
static uintptr_t map_wrapper[MAP_SIZE];
static uint64_t map_generation; /* of the libraries that it was made from */

enum {
  ROWS = 0
#define GATED(group, name, params, args, stream) +1
#define CUSTOM(group, name, params, args) +1
#include "driver/hooks.def"
};
static_assert(MAP_SIZE >= 2 * LIBRARIES_MAX * ROWS, "at most half full");

static size_t map_start(uintptr_t real) {
  return (real >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - MAP_BITS);
}

static void map_clear(void) {
  for (size_t i = 0; i < MAP_SIZE; i++) {
    __asm__ volatile("");
    map_real[i] = 0;
  }
}

static void map_enter(uintptr_t real, uintptr_t wrapper) {
  size_t i = map_start(real);
  for (; map_real[i] != 0; i = (i + 1) % MAP_SIZE)
    if (map_real[i] == real)
      return; /* several names of one function: the first row wins */
  map_wrapper[i] = wrapper;
  map_real[i] = real;
}

/* NULL: none of ours. */
static void *map_find(uintptr_t real) {
  for (size_t i = map_start(real); map_real[i] != 0; i = (i + 1) % MAP_SIZE)
    if (map_real[i] == real)
      return (void *)map_wrapper[i];
  return NULL;
}

static void learn(const struct library *library) {
  for (size_t i = 0; i < wrapper_count; i++) {
    uintptr_t real = (uintptr_t)elf_find_function(&library->elf, wrappers[i].name);
    if (real)
      map_enter(real, (uintptr_t)wrappers[i].function);
  }
}

/* Called under the dynamic linker's lock, before the driver counts as settled: from then on no other one's
 * functions are known. */
static void settling(const struct library *library) {
  map_clear();
  learn(library);
}

const struct driver_port driver_port = {.settling = settling};

struct query {
  uintptr_t real;
  const char *name;
  void *wrapper;
};

static void find_unsettled(const struct libraries *libraries, void *argument) {
  struct query *query = argument;
  if (libraries->count == 0)
    return;
  if (map_generation != libraries->generation && !driver_is_settled()) {
    map_clear();
    for (size_t i = 0; i < libraries->count; i++)
      learn(&libraries->list[i]);
    map_generation = libraries->generation;
  }
  query->wrapper = map_find(query->real);
  const struct library *library = query->wrapper ? libraries_find(libraries, query->real) : NULL;
  if (library)
    driver_prefer(library);
}

void *lookup_wrapper(void *real) {
  struct query query = {.real = (uintptr_t)real};
  if (!real)
    return NULL;
  if (driver_is_settled())
    query.wrapper = map_find(query.real);
  else
    libraries_visit(find_unsettled, &query);
  return query.wrapper ? query.wrapper : real;
}

static bool is_pseudo_handle(const void *handle) { return handle == RTLD_DEFAULT || handle == RTLD_NEXT; }

/* The look-up functions themselves are replaced as well: whoever fetches dlsym gets ours. */
static void *linker_wrapper(void *real) {
  const struct linker *linker = linker_functions();
  if (real == (void *)linker->dlsym)
    return (void *)trampoline_dlsym;
  if (real == (void *)linker->dlvsym)
    return (void *)trampoline_dlvsym;
  if (real == (void *)linker->dlopen)
    return (void *)trampoline_dlopen;
  return real;
}

static void find_by_name(const struct libraries *libraries, void *argument) {
  struct query *query = argument;
  const struct library *library = driver_in_use(libraries);
  query->wrapper = library ? elf_find_function(&library->elf, query->name) : NULL;
}

static bool driver_has(const struct wrapper *wrapper) {
  struct query query = {.name = wrapper->name};
  if (driver_is_settled())
    return *wrapper->real != NULL;
  libraries_visit(find_by_name, &query);
  return query.wrapper != NULL;
}

/* What the name is known to mean wherever it is looked up from, or NULL. */
static void *wrapper_by_name(const char *name) {
  if (text_equal(name, "dlsym"))
    return (void *)trampoline_dlsym;
  if (text_equal(name, "dlvsym"))
    return (void *)trampoline_dlvsym;
  if (text_equal(name, "dlopen"))
    return (void *)trampoline_dlopen;
  if (name[0] != 'c' || name[1] != 'u')
    return NULL;
  for (size_t i = 0; i < wrapper_count; i++)
    if (text_equal(name, wrappers[i].name))
      return driver_has(&wrappers[i]) ? wrappers[i].function : NULL;
  return NULL;
}

static bool may_be_ours(const char *name) {
  return name && ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'd' && name[1] == 'l'));
}

static void find_second(const struct libraries *libraries, void *argument) {
  struct query *query = argument;
  query->wrapper = (void *)libraries_find(libraries, query->real);
}

/* A program that initializes another driver after the first has two that know nothing of each other. To lead
 * the second one's calls to the first would mix their handles. */
static void warn_of_second(void *real) {
  static _Atomic bool warned;
  struct query query = {.real = (uintptr_t)real};
  libraries_visit(find_second, &query);
  if (query.wrapper && !atomic_exchange(&warned, true))
    log_warn("the program uses a second driver (libcuda.so): what it does through that is not shared");
}

static void *replace(void *real, const char *name) {
  if (name[0] == 'd')
    return linker_wrapper(real);
  void *wrapper = lookup_wrapper(real);
  if (real && wrapper == real && driver_is_settled() && text_equal(name, "cuInit"))
    warn_of_second(real);
  return wrapper;
}

/* ---- RTLD_DEEPBIND ---- */

/* Something was loaded by a call whose end we can't see: what has come is patched at the next look-up. */
static _Atomic bool patch_expected;

/* The slot gets what a preloaded library would have bound. */
static void patch(const char *name, uintptr_t *slot, void *unused) {
  static _Atomic bool warned;
  void *wrapper = may_be_ours(name) ? wrapper_by_name(name) : NULL;
  (void)unused;
  if (wrapper && *slot != (uintptr_t)wrapper && !elf_set_slot(slot, (uintptr_t)wrapper) &&
      !atomic_exchange(&warned, true))
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

static void patch_pending(void) {
  if (atomic_load_explicit(&patch_expected, memory_order_relaxed) && atomic_exchange(&patch_expected, false))
    patch_from(_r_debug.r_map);
}

/* ---- what trampolines ask ---- */

struct verdict lookup_dlsym(void *handle, const char *name) {
  const struct linker *linker = linker_functions();
  patch_pending();
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
  const struct linker *linker = linker_functions();
  patch_pending();
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
  const struct linker *linker = linker_functions();
  patch_pending();
  if (!(mode & RTLD_DEEPBIND) || !file)
    return (struct verdict){NULL, (void *)linker->dlopen};
  if (text_file_name(file) == file) {
    atomic_store(&patch_expected, true);
    return (struct verdict){NULL, (void *)linker->dlopen};
  }
  void *handle = linker->dlopen(file, mode);
  struct link_map *map = NULL;
  if (handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0)
    patch_from(map);
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
