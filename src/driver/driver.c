/* driver.c - which libcuda.so is the driver, and the table of its functions. */
#include "driver/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/log.h"
#include "driver/libraries.h"
#include "driver/linker.h"

struct driver driver;
_Atomic bool driver_settled;

struct row {
  const char *name;
  size_t offset;
};

static const struct row rows[] = {
#define GATED(group, name, params, args, stream) {#name, offsetof(struct driver, name)},
#define CUSTOM(group, name, params, args) {#name, offsetof(struct driver, name)},
#define CALL(name, params) {#name, offsetof(struct driver, name)},
#include "driver/hooks.def"
};

static const struct row first_rows[] = {
#define FIRST(group, name, params, args) {#name, offsetof(struct driver, name)},
#include "driver/hooks.def"
};

/* Bases of libraries: the one that the program has looked a function up in last, and the one that
 * driver_prepare has filled in from. Under the dynamic linker's lock. */
static uintptr_t preferred, prepared;

/* Two threads may do this at once; both store the same values unless the program changes the driver. */
static void fill_in(const struct row *list, size_t count, const struct library *library) {
  for (size_t i = 0; i < count; i++) {
    void *function = library ? elf_find_function(&library->elf, list[i].name) : NULL;
    __atomic_store_n((uintptr_t *)((char *)&driver + list[i].offset), (uintptr_t)function, __ATOMIC_RELAXED);
  }
}

void driver_prefer(const struct library *library) { preferred = library->elf.base; }

const struct library *driver_in_use(const struct libraries *libraries) {
  const struct library *library = libraries_find(libraries, preferred);
  return library || libraries->count == 0 ? library : &libraries->list[0];
}

/* ---- until one is initialized ---- */

static void prepare(const struct libraries *libraries, void *argument) {
  if (driver_is_settled()) {
    *(bool *)argument = true;
    return;
  }
  const struct library *library = driver_in_use(libraries);
  prepared = library ? library->elf.base : 0;
  fill_in(first_rows, sizeof first_rows / sizeof *first_rows, library);
  *(bool *)argument = library != NULL;
}

bool driver_prepare(void) {
  bool found = driver_is_settled();
  if (!found)
    libraries_visit(prepare, &found);
  if (found)
    return true;
  int saved = errno;
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL))
    libraries_visit(prepare, &found);
  if (!found)
    log_error(
        "a CUDA function was called, but libcuda.so.1 can't be loaded: is the NVIDIA driver installed?");
  errno = saved;
  return found;
}

/* ---- from then on ---- */

struct settling {
  uintptr_t base;
  bool done, others;
  char path[PATH_MAX];
};

static void settle(const struct libraries *libraries, void *argument) {
  struct settling *settling = argument;
  const struct library *library = libraries_find(libraries, settling->base ? settling->base : prepared);
  if (driver_is_settled() || !library || strlen(library->path) >= sizeof settling->path)
    return;
  strcpy(settling->path, library->path);
  settling->others = libraries->count > 1;
  settling->done = true;
  preferred = library->elf.base;
  fill_in(rows, sizeof rows / sizeof *rows, library);
  driver_port.settling(library);
  atomic_store_explicit(&driver_settled, true, memory_order_release);
}

/* base: 0 for the prepared one. */
static void settle_on(uintptr_t base) {
  struct settling settling = {.base = base};
  int saved = errno;
  if (!driver_is_settled())
    libraries_visit(settle, &settling);
  if (settling.done) {
    if (!linker_functions()->dlopen(settling.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
      log_warn("%s can't be kept loaded: a program that closes it must not use the GPU after that",
               settling.path);
    if (settling.others)
      log_info("several drivers are loaded: the program uses %s", settling.path);
  }
  errno = saved;
}

void driver_settle(void) { settle_on(0); }

/* ---- initialized past us ---- */

static void copy(const struct libraries *libraries, void *argument) {
  *(struct libraries *)argument = *libraries;
}

static bool is_initialized(const struct library *library) {
  CUresult (*get_count)(int *) = (CUresult(*)(int *))elf_find_function(&library->elf, "cuDeviceGetCount");
  int count;
  return get_count && get_count(&count) == CUDA_SUCCESS;
}

struct question {
  const char *name;
  void *answer;
};

static void find(const struct libraries *libraries, void *argument) {
  struct question *question = argument;
  const struct library *library = driver_in_use(libraries);
  question->answer = library ? elf_find_function(&library->elf, question->name) : NULL;
}

void *driver_find(const char *name) {
  struct libraries now;
  struct question question = {.name = name};
  libraries_visit(copy, &now);
  for (size_t i = 0; i < now.count && !driver_is_settled(); i++)
    if (is_initialized(&now.list[i]))
      settle_on(now.list[i].elf.base);
  libraries_visit(find, &question);
  return question.answer;
}
