/* slot.c - says which library libcuda's own calls of ioctl lead to, before cuInit and after it. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver/libraries.h"

static void find(const char *name, uintptr_t *slot, void *held) {
  if (strcmp(name, "ioctl") == 0)
    *(uintptr_t *)held = *slot;
}

static void look(const struct libraries *libraries, void *held) {
  if (libraries->count > 0)
    elf_each_import(&libraries->list[0].elf, find, held);
}

static void say(const char *when) {
  uintptr_t held = 0;
  Dl_info info;
  libraries_visit(look, &held);
  if (!held || !dladdr((void *)held, &info))
    info.dli_fname = "?";
  printf("%s %s\n", when, strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  say("before");
  CUresult result = cuInit(0);
  say("after");
  return result != CUDA_SUCCESS;
}
