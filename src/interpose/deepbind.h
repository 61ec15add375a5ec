/*
 * deepbind.h - a library opened with RTLD_DEEPBIND binds to its own dependencies before anything preloaded,
 * so its calls would miss us. After it is loaded, the slots it has bound to the driver (or to the C library's
 * look-ups) are pointed at our wrappers; everything else about RTLD_DEEPBIND stays as it was.
 */
#ifndef GS_DEEPBIND_H
#define GS_DEEPBIND_H

/* Patch the library of this handle and those it was loaded with. */
void deepbind_patch(void *handle);

/* Something is about to be loaded by a call that we can't see the end of: deepbind_patch_pending, at the next
 * look-up, patches whatever is loaded by then. */
void deepbind_expect(void);
void deepbind_patch_pending(void);

#endif
