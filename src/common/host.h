/* host.h - how much host memory may back what does not fit on the cards. Any thread. */
#ifndef GS_HOST_H
#define GS_HOST_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that the host has available now, and the process' cgroup (v2) still allows. Reads /proc and /sys:
 * milliseconds at worst. Keeps errno. */
uint64_t host_spare_bytes(void);

/* Of these, what the host can give without starting to swap: at most 80 % of what it has available. */
uint64_t host_available_bytes(void);

/* Whether a quarter of all that the host has is available, and the process' cgroup still allows as much. */
bool host_is_plentiful(void);

/* The value of a "Key:   123 kB" line in bytes; 0 if there is none. */
uint64_t host_parse_meminfo(const char *text, const char *key);

/* What the cgroup of this path and its ancestors below `root` leave; UINT64_MAX without a limit. Inactive
 * file cache counts as free. */
uint64_t host_cgroup_spare_bytes(const char *root, const char *path);

#endif
