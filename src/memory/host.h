/* host.h - how much host memory may back what does not fit on the cards. Any thread. */
#ifndef GS_HOST_H
#define GS_HOST_H

#include <stdint.h>

/* Bytes the host can give now without starting to swap: 80 % of what is available, and no more than the
 * process' cgroup (v2) still allows. Reads /proc and /sys: milliseconds at worst. Keeps errno. */
uint64_t host_available_bytes(void);

/* The value of a "Key:   123 kB" line in bytes; 0 if there is none. */
uint64_t host_parse_meminfo(const char *text, const char *key);

#endif
