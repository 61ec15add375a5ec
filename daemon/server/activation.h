/* activation.h - the listening socket that a service manager has opened for us. */
#ifndef GS_ACTIVATION_H
#define GS_ACTIVATION_H

#include <stddef.h>

/* What the manager has to call it, if it gives names (FileDescriptorName=). */
#define ACTIVATION_NAME "gpushare"

/* Take it over: a non-blocking descriptor, its address in path; -ENOENT: nothing has been passed; or -errno
 * after a line in the log: what has been passed is not what we listen on. Once per process. */
int activation_take(char *path, size_t size);

#endif
