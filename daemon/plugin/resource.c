/* resource.c - the devices of a resource: their names and their health. */
#include "plugin/resource.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/parse.h"

void resource_format_id(const struct resource *resource, size_t gpu, unsigned share,
                        char id[RESOURCE_ID_SIZE]) {
  snprintf(id, RESOURCE_ID_SIZE, "%s.%u", resource->gpus->at[gpu].uuid, share);
}

int resource_parse_id(const struct resource *resource, const char *id, size_t *gpu, unsigned *share) {
  char same[RESOURCE_ID_SIZE];
  const char *dot = strrchr(id, '.');
  int64_t number;
  if (!dot || parse_integer(dot + 1, 0, (int64_t)resource->shares - 1, &number) != 0)
    return -ENOENT;
  int index = gpus_index(resource->gpus, id, (size_t)(dot - id));
  if (index < 0)
    return -ENOENT;
  resource_format_id(resource, (size_t)index, (unsigned)number, same);
  if (strcmp(same, id) != 0) /* "007" */
    return -ENOENT;
  *gpu = (size_t)index;
  *share = (unsigned)number;
  return 0;
}

bool resource_healthy(const struct resource *resource, size_t gpu) {
  return *resource->daemon_answers && atomic_load(&resource->gpus->at[gpu].healthy);
}
