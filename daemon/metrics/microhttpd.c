/* microhttpd.c - libmicrohttpd, loaded when metrics are asked for. */
#include "metrics/microhttpd.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "common/log.h"

#define LIBRARY "libmicrohttpd.so.12"

static bool find(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  memcpy(function, &found, sizeof found);
  return found;
}

static bool find_all(void *library, struct microhttpd *functions) {
  bool all = true;
#define X(name) all &= find(library, "MHD_" #name, &functions->name);
  MICROHTTPD_FUNCTIONS(X)
#undef X
  return all;
}

const struct microhttpd *microhttpd_load(void) {
  static struct microhttpd functions;
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    log_error("metrics need " LIBRARY " (Debian, Ubuntu: libmicrohttpd12): %s", dlerror());
    return NULL;
  }
  if (find_all(library, &functions))
    return &functions;
  log_error("metrics need another version of " LIBRARY);
  dlclose(library);
  return NULL;
}
