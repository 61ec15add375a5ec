/*
 * mode_reopened.c - programs that open libcuda more than once, as those do that bring a driver of their own
 * and ask the system's for its version first. MODE in the environment says which:
 *
 *   reloaded   the driver is closed, its place taken, and opened again
 *   replaced   the driver is closed, and another one opened by its path, which is laid out otherwise
 *   refused    the same, and the first one has refused to be initialized
 *   closed     the driver is closed when it has been initialized: it stays loaded, and is used
 *   kept       the other one is opened while the first stays open
 *   plugin     a plugin that is linked to the driver is closed, its place taken, and opened again
 *   second     the other one is opened when the first has been initialized: it is left alone
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver_table.h"

static struct driver_table table;

static int fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

static int fill_table(void *library) {
  int missing = !library;
#define X(field, function)                                                                                   \
  missing = missing || !(*(void **)&table.field = dlsym(library, EXPORTED_NAME(function)));
  DRIVER_FUNCTIONS(X)
#undef X
  return missing ? fail("a driver function is missing") : 0;
}

static void *base_of(void *library) {
  struct link_map *map;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? (void *)map->l_addr : NULL;
}

/* What is loaded next gets another place. */
static int take_place(void *base) {
  void *taken = mmap(base, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return taken == base ? 0 : fail("the driver's place is not free");
}

/* Everything is looked up, and what may be called before cuInit is called. */
static int ask(void *library) {
  CUresult (*version)(int *);
  CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
  CUdriverProcAddressQueryResult found;
  CUdeviceptr memory;
  void *function;
  int number;
  if (fill_table(library))
    return 1;
  *(void **)&version = dlsym(library, "cuDriverGetVersion");
  *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
  if (version(&number) || number < 11000)
    return fail("no version");
  if (get("cuMemAlloc", &function, 12000, 0, &found) || function != (void *)table.mem_alloc)
    return fail("two addresses of one function");
  return table.mem_alloc(&memory, 8) == CUDA_ERROR_NOT_INITIALIZED ? 0 : fail("it is initialized");
}

static int close_library(void *library) {
  dlclose(library);
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) ? fail("the driver stays loaded") : 0;
}

static int use(void *library) { return fill_table(library) || table_start(&table); }

static void *open_system(void) { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); }
static void *open_other(void) { return dlopen(getenv("OTHER_DRIVER"), RTLD_NOW | RTLD_LOCAL); }

static int reloaded(void) {
  void *library = open_system(), *base = base_of(library);
  return ask(library) || close_library(library) || take_place(base) || use(open_system());
}

static int replaced(void) {
  void *library = open_system();
  return ask(library) || close_library(library) || use(open_other());
}

static int refused(void) {
  void *library = open_system();
  char *card = strdup(getenv("GPUSHARE_SIM_CARD"));
  if (ask(library))
    return 1;
  setenv("GPUSHARE_SIM_CARD", "none", 1);
  if (table.init(0) == CUDA_SUCCESS)
    return fail("there is no such card");
  setenv("GPUSHARE_SIM_CARD", card, 1);
  free(card);
  return close_library(library) || use(open_other());
}

static int closed(void) {
  void *library = open_system();
  return use(library) || dlclose(library);
}

static int kept(void) { return ask(open_system()) || use(open_other()); }

static int second(void) {
  Dl_info about;
  if (use(open_system()))
    return 1;
  void *other = open_other();
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(other, "cuInit");
  return init && dladdr((void *)init, &about) && strcmp(about.dli_fname, getenv("OTHER_DRIVER")) == 0
             ? 0
             : fail("the second driver's function was replaced");
}

static int no_start(void) { return fail("MODE?"); }

/* ---- a plugin ---- */

static const struct device *plugin_device_of(void *plugin) {
  return plugin ? dlsym(plugin, "plugin_device") : NULL;
}

static void *open_plugin(void) { return dlopen(MODE_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL); }

static const struct device *reopen_plugin(void) {
  void *plugin = open_plugin(), *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int (*plugin_ask)(void) = (int (*)(void))dlsym(plugin, "plugin_ask");
  void *base = base_of(driver);
  dlclose(driver);
  if (plugin_ask() || close_library(plugin) || take_place(base))
    exit(1);
  return plugin_device_of(open_plugin());
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*start)(void);
  } modes[] = {{"reloaded", reloaded}, {"replaced", replaced}, {"refused", refused},
               {"closed", closed},     {"kept", kept},         {"second", second}};
  struct device device = {.mode = getenv("MODE"), .start = no_start, TABLE_DEVICE};
  if (strcmp(device.mode, "plugin") == 0)
    return workload_main(reopen_plugin(), argc, argv);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (strcmp(modes[i].name, device.mode) == 0)
      device.start = modes[i].start;
  return workload_main(&device, argc, argv);
}
