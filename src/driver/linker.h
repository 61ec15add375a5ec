/*
 * linker.h - the dynamic linker's own look-ups, past every interposer.
 *
 * Threading: any thread. Nothing here allocates, locks, logs or changes errno; it may run before any
 * constructor.
 */
#ifndef GS_LINKER_H
#define GS_LINKER_H

struct linker {
  void *(*dlsym)(void *handle, const char *name);
  void *(*dlvsym)(void *handle, const char *name, const char *version);
  void *(*dlopen)(const char *file, int mode);
};
const struct linker *linker_functions(void);

#endif
