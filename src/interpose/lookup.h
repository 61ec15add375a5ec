/*
 * lookup.h - how look-ups lead to our wrappers: dlsym, dlvsym and cuGetProcAddress answer with the real
 * function's address, and an address that is known becomes the wrapper's. By address, never by version or
 * flag: right for _v2, _ptsz and what is yet to come.
 *
 * A library opened with RTLD_DEEPBIND binds to its own dependencies before anything preloaded: the slots that
 * it has bound to the driver, or to the C library's look-ups, are pointed at our wrappers.
 *
 * Nothing here allocates, locks, logs (but once each, of a second driver and of a library that can't be
 * hooked) or changes errno; all of it may run before any constructor.
 */
#ifndef GS_LOOKUP_H
#define GS_LOOKUP_H

/* The wrapper for a real function, or `real` itself when it is none of ours. NULL gives NULL. */
void *lookup_wrapper(void *real);

/* What a trampoline (trampolines.S) does next: jump to `tail` with the caller's own arguments and return
 * address, so that RTLD_NEXT and a library's search path mean what they mean to the caller; or, where
 * `tail` is NULL, return `result`. */
struct verdict {
  void *result;
  void *tail;
};
struct verdict lookup_dlsym(void *handle, const char *name);
struct verdict lookup_dlvsym(void *handle, const char *name, const char *version);
struct verdict lookup_dlopen(const char *file, int mode);

/* The trampolines, exported as dlsym, dlvsym and dlopen. */
void trampoline_dlsym(void);
void trampoline_dlvsym(void);
void trampoline_dlopen(void);

#endif
