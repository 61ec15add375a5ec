/* hook_dlsym.c - another preloaded library that replaces dlsym itself, with the real one by dlvsym, as some
 * profilers and overlays do. Says at the end how many look-ups of driver functions it saw. */
#include <dlfcn.h>
#include <stdio.h>

static int lookups;

static void *real_dlsym(void) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  void *found = NULL;
  for (size_t i = 0; !found && i < sizeof versions / sizeof versions[0]; i++)
    found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  return found;
}

void *dlsym(void *restrict handle, const char *restrict name) {
  static void *(*next)(void *, const char *);
  if (!next)
    *(void **)&next = real_dlsym();
  lookups += name[0] == 'c' && name[1] == 'u'; /* no strncmp: a sanitizer may be looking for its own */
  return next ? next(handle, name) : NULL;
}

__attribute__((destructor)) static void report(void) {
  fprintf(stderr, "hook_dlsym saw %d look-ups\n", lookups);
}
