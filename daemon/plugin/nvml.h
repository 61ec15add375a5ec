/* nvml.h - the few questions to NVIDIA's management library, which is loaded if it is there. */
#ifndef GS_PLUGIN_NVML_H
#define GS_PLUGIN_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Load it. 0, or -ENODEV after a line in the log. Once per process, before any other function. */
int nvml_open(void);

unsigned nvml_count(void);

/* The handle of a GPU; NULL: it has none, since it is lost or not ours to see. */
void *nvml_device(unsigned index);

#define NVML_TEXT_SIZE 96
/* "GPU-...", and "00000000:1B:00.0". 0 or -EIO. */
int nvml_uuid(void *device, char text[NVML_TEXT_SIZE]);
int nvml_bus_id(void *device, char text[NVML_TEXT_SIZE]);

/* The number in /dev/nvidia0. 0 or -EIO. */
int nvml_minor(void *device, unsigned *minor);

/* Also how one sees that it lives. 0 or -EIO. Any thread. */
int nvml_memory(void *device, uint64_t *total_bytes);

#endif
