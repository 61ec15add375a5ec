/* opener.c - a library that opens another by its plain name with RTLD_DEEPBIND: it is found along this
 * library's own run path, and nobody else's. */
#include "opener.h"

#include <dlfcn.h>

/* Something to do after dlopen, lest it be a jump, and so its caller our caller. */
static void *volatile opened;

void *opener_open(const char *name) {
  opened = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  return opened;
}
