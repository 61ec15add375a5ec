/* node_gpus.c - the GPUs of this host, by NVML or by the command line. */
#include "plugin/node_gpus.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "shared/nvml.h"

int gpus_index(const struct gpus *gpus, const char *uuid, size_t length) {
  for (size_t i = 0; i < gpus->count; i++)
    if (strlen(gpus->at[i].uuid) == length && memcmp(gpus->at[i].uuid, uuid, length) == 0)
      return (int)i;
  return -1;
}

bool gpus_answers(const struct gpu *gpu) {
  uint64_t bytes;
  return (!*gpu->node || access(gpu->node, F_OK) == 0) && (!gpu->nvml || nvml_memory(gpu->nvml, &bytes) == 0);
}

/* A further one, with this UUID in the one way of writing it; NULL: not one, or too many. */
static struct gpu *add_gpu(struct gpus *gpus, const char *uuid) {
  uint8_t bytes[GS_UUID_SIZE];
  if (gpus->count == GPUS_MAX || parse_uuid(uuid, bytes) != 0)
    return NULL;
  struct gpu *gpu = &gpus->at[gpus->count];
  *gpu = (struct gpu){.numa = -1, .healthy = true};
  format_uuid(bytes, gpu->uuid);
  if (gpus_index(gpus, gpu->uuid, strlen(gpu->uuid)) >= 0)
    return NULL;
  gpus->count++;
  return gpu;
}

/* ---- by the command line ---- */

/* UUID[:MEMORY[:DEVICE FILE]]; writes to it. */
static int parse_gpu(struct gpus *gpus, char *word) {
  char *memory = strchr(word, ':'), *node = memory ? strchr(memory + 1, ':') : NULL;
  if (memory)
    *memory++ = '\0';
  if (node)
    *node++ = '\0';
  struct gpu *gpu = add_gpu(gpus, word);
  if (!gpu || (memory && *memory && parse_bytes(memory, &gpu->memory_bytes) != 0) ||
      (node && strlen(node) >= sizeof gpu->node))
    return -EINVAL;
  if (node)
    strcpy(gpu->node, node);
  return 0;
}

int gpus_parse(struct gpus *gpus, const char *text) {
  char *copy = strdup(text), *rest = NULL;
  int err = copy ? 0 : -ENOMEM;
  *gpus = (struct gpus){0};
  for (char *word = copy ? strtok_r(copy, ",", &rest) : NULL; word && err == 0;
       word = strtok_r(NULL, ",", &rest))
    err = parse_gpu(gpus, word);
  if (err == 0 && gpus->count == 0)
    err = -EINVAL;
  free(copy);
  return err;
}

/* ---- by NVML ---- */

/* -1: unknown, as on machines with one node. */
static int read_numa(void *device) {
  char bus[NVML_TEXT_SIZE], path[160];
  int numa = -1;
  if (nvml_bus_id(device, bus) != 0 || strlen(bus) <= 4)
    return -1;
  for (char *c = bus; *c; c++)
    *c = (char)tolower((unsigned char)*c);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus + 4); /* NVML's domain is longer */
  FILE *file = fopen(path, "re");
  if (!file)
    return -1;
  if (fscanf(file, "%d", &numa) != 1)
    numa = -1;
  fclose(file);
  return numa;
}

static void add_found(struct gpus *gpus, unsigned index) {
  char uuid[NVML_TEXT_SIZE];
  unsigned minor;
  void *device = nvml_device(index);
  if (!device || nvml_uuid(device, uuid) != 0) {
    log_error("GPU %u does not answer: not shared", index);
    return;
  }
  struct gpu *gpu = add_gpu(gpus, uuid);
  if (!gpu) {
    log_error("GPU %u has the UUID %s: not shared", index, uuid);
    return;
  }
  gpu->nvml = device;
  gpu->numa = read_numa(device);
  if (nvml_minor(device, &minor) == 0)
    snprintf(gpu->node, sizeof gpu->node, "/dev/nvidia%u", minor);
  if (access(gpu->node, F_OK) != 0)
    *gpu->node = '\0'; /* this container has none: NVML alone tells then */
  if (nvml_memory(device, &gpu->memory_bytes) != 0)
    gpu->memory_bytes = 0;
}

int gpus_find(struct gpus *gpus) {
  char why[NVML_WHY_SIZE];
  int err = nvml_open(NVML_LIBRARY, why);
  *gpus = (struct gpus){0};
  if (err < 0) {
    log_error("no NVIDIA driver to be seen: %s", why);
    return err;
  }
  unsigned count = nvml_count();
  for (unsigned i = 0; i < count; i++)
    add_found(gpus, i);
  if (gpus->count > 0)
    return 0;
  log_error("NVML knows no GPU to share");
  return -ENODEV;
}
