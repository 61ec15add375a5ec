/*
 * deepbind.h - a library opened with RTLD_DEEPBIND binds to its own dependencies before anything preloaded,
 * so its calls would miss us. After it is loaded, the slots it has bound to the driver (or to the C library's
 * look-ups) are pointed at our wrappers; everything else about RTLD_DEEPBIND stays as it was.
 */
#ifndef GS_DEEPBIND_H
#define GS_DEEPBIND_H

/* Patch the library of this handle and those it was loaded with. */
void deepbind_patch(void *handle);

#endif
