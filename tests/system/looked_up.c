/*
 * looked_up.c - a library that looks up every function that is intercepted, in every way: none may be the
 * driver's own, and no look-up function the C library's own. It stands after the driver's hooks in the order
 * of libraries, so RTLD_NEXT does not find those by itself.
 */
#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>

#include "looked_up.h"

static const char *const hooked[] = {
#define GATED(group, name, params, args, stream) #name,
#define CUSTOM(group, name, params, args) #name,
#include "driver/hooks.def"
};

static const char *const of_linker[] = {"dlsym", "dlvsym", "dlopen"};

typedef void *(*look)(void *handle, const char *name, const char *version);

static struct ways {
  __typeof__(&dlsym) by_name;
  __typeof__(&dlvsym) by_version;
} ways;

static void *look_plain(void *handle, const char *name, const char *version) {
  return version ? ways.by_name(handle, name) : NULL;
}
static void *look_versioned(void *handle, const char *name, const char *version) {
  return ways.by_version(handle, name, version);
}

static unsigned missed, found;

/* A pointer to code in this library is one of the real one. */
static void judge(const void *function, const char *file, const char *name, const char *way) {
  Dl_info where;
  if (!function || !dladdr(function, &where))
    return;
  found++;
  if (!strstr(where.dli_fname, file))
    return;
  missed++;
  printf("%s %s: %s of %s\n", way, name, where.dli_sname ? where.dli_sname : "?", where.dli_fname);
}

static void look_all(void *handle, const char *where) {
  static const struct {
    look look;
    const char *name;
  } kinds[] = {{look_plain, "dlsym"}, {look_versioned, "dlvsym"}};
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    char way[64];
    snprintf(way, sizeof way, "%s of %s", kinds[kind].name, where);
    for (size_t i = 0; i < sizeof hooked / sizeof *hooked; i++)
      judge(kinds[kind].look(handle, hooked[i], "SIM_1"), "libcuda.so", hooked[i], way);
    for (size_t i = 0; i < sizeof of_linker / sizeof *of_linker; i++)
      judge(kinds[kind].look(handle, of_linker[i], "GLIBC_2.34"), "libc.so", of_linker[i], way);
  }
}

static bool is_hooked(const char *name) {
  for (size_t i = 0; name && i < sizeof hooked / sizeof *hooked; i++)
    if (strcmp(name, hooked[i]) == 0)
      return true;
  return false;
}

/* cuGetProcAddress takes names without a suffix, and finds the newest that the version has. */
static void look_by_address(void *library) {
  CUresult (*get)(const char *, void **, int, cuuint64_t);
  CUresult (*get_v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
  CUdriverProcAddressQueryResult status;
  *(void **)&get = ways.by_name(library, "cuGetProcAddress");
  *(void **)&get_v2 = ways.by_name(library, "cuGetProcAddress_v2");
  for (size_t i = 0; i < sizeof hooked / sizeof *hooked; i++) {
    char base[128];
    void *function[2] = {NULL, NULL};
    Dl_info where;
    snprintf(base, sizeof base, "%s", hooked[i]);
    char *suffix = strstr(base, "_v");
    if (suffix)
      *suffix = '\0';
    if (get)
      get(base, &function[0], CUDA_VERSION, 0);
    if (get_v2)
      get_v2(base, &function[1], CUDA_VERSION, 0, &status);
    for (int k = 0; k < 2; k++)
      if (function[k] && dladdr(function[k], &where) && is_hooked(where.dli_sname))
        judge(function[k], "libcuda.so", base, k ? "cuGetProcAddress_v2" : "cuGetProcAddress");
  }
}

/* Both before and after the driver is settled, and by what these look-ups give for themselves. */
unsigned looked_up_wrongly(unsigned *all) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *c = dlopen(LIBC_SO, RTLD_NOW);
  for (int round = 0; round < 4; round++) {
    if (round == 0)
      ways = (struct ways){dlsym, dlvsym};
    if (round == 2) {
      *(void **)&ways.by_version = ways.by_name(c, "dlvsym");
      *(void **)&ways.by_name = ways.by_name(c, "dlsym");
    }
    if (round == 1)
      cuInit(0);
    look_all(RTLD_DEFAULT, "RTLD_DEFAULT");
    look_all(RTLD_NEXT, "RTLD_NEXT");
    look_all(cuda, "libcuda.so.1");
    look_all(c, "libc.so");
    look_by_address(cuda);
  }
  *all = found;
  return missed;
}
