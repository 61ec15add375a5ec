/* probe.h - what may hang or crash is asked by a child, which is killed if it takes too long. */
#ifndef GS_CTL_PROBE_H
#define GS_CTL_PROBE_H

#include <stddef.h>

#define PROBE_MS 10000

/* Runs in a child, and returns its exit code. What it writes to stdout and stderr is the answer. */
typedef int probe_f(const void *argument);

/* The child's exit code; 128 and its signal; or -errno, -ETIMEDOUT: it has been killed. `text`: its answer,
 * as far as there is room. */
int probe(probe_f *ask, const void *argument, char *text, size_t size);

#endif
