/* nvml.h - the few questions to NVIDIA's management library, which is loaded if it is there. */
#ifndef GS_NVML_H
#define GS_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define NVML_TEXT_SIZE 96
#define NVML_WHY_SIZE 160

/* Load it. 0, or -ENODEV and why. Once per process, before any other function. */
int nvml_open(const char *library, char why[NVML_WHY_SIZE]);

unsigned nvml_count(void);

/* The handle of a GPU; NULL: it has none, since it is lost or not ours to see. */
void *nvml_device(unsigned index);

/* "GPU-..." or "MIG-...", "00000000:1B:00.0", and the product's. 0 or -EIO. */
int nvml_uuid(void *device, char text[NVML_TEXT_SIZE]);
int nvml_bus_id(void *device, char text[NVML_TEXT_SIZE]);
int nvml_name(void *device, char text[NVML_TEXT_SIZE]);

/* "Hopper", and "580.95.05" of the driver. 0, or -EIO, also where NVML has no such function. */
int nvml_architecture(void *device, char text[NVML_TEXT_SIZE]);
int nvml_driver_version(char text[NVML_TEXT_SIZE]);

/* A process with a compute context on the card, by its number in the first pid namespace. bytes: of the
 * card's memory; 0 also where NVML does not tell. */
struct nvml_process {
  unsigned pid;
  uint64_t bytes;
};

/* All of them; how many. 0, or -EIO: also if there are more than NVML_PROCESSES_MAX. */
#define NVML_PROCESSES_MAX 256
int nvml_processes(void *device, struct nvml_process processes[NVML_PROCESSES_MAX], unsigned *count);

/* So the names of MPS' own processes begin, which have a context in place of their programs. */
#define NVML_MPS_COMM "nvidia-cuda-mps"

/* What a card does at this moment. Cards differ in what they tell: `known` has the bits of what counts. */
enum {
  NVML_TEMPERATURE = 1 << 0,
  NVML_POWER = 1 << 1,
  NVML_UTILIZATION = 1 << 2,
  NVML_ENERGY = 1 << 3,
};
struct nvml_reading {
  uint32_t known;
  uint32_t temperature_c;
  uint32_t power_mw;
  uint32_t gpu_percent, memory_percent; /* of the time: a kernel ran; the card's memory was read or written */
  uint64_t energy_mj;                   /* used since the driver was loaded */
};
struct nvml_reading nvml_read(void *device);

/* The number in /dev/nvidia0. 0 or -EIO. */
int nvml_minor(void *device, unsigned *minor);

/* What the card has. Also how one sees that it lives. 0 or -EIO. Any thread. */
int nvml_memory(void *device, uint64_t *total_bytes);

/* The part of it that programs can have: without what the driver keeps. Likewise. */
int nvml_usable_memory(void *device, uint64_t *bytes);

/* What of that is in use, by whomever, with the unified memory that is there. (What NVML tells of single
 * processes is without that.) Likewise. */
int nvml_used_memory(void *device, uint64_t *bytes);

/* The card is in MIG mode: programs see its instances, and not the card. */
bool nvml_is_split(void *device);

/* How many instances it can have, and the handle of one; NULL: there is none with this index. */
unsigned nvml_part_limit(void *device);
void *nvml_part(void *device, unsigned index);

#endif
