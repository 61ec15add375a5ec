/* slice.c - the JSON of a ResourceSlice. */
#include "dra/slice.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "dra/claim.h"

/* Claims ask for memory in multiples of this. */
#define STEP_MIB 256
#define MIB (UINT64_C(1) << 20)
/* What a claim gets that does not say: a tenth of a GPU. */
#define DEFAULT_PART 10

/* A capacity, of which claims ask for multiples of `step`; "unit" is of all these numbers. */
static json_t *capacity(uint64_t value, uint64_t step, const char *unit) {
  uint64_t tenth = value / DEFAULT_PART / step * step;
  return json_pack("{s:o, s:{s:o, s:{s:o, s:o}}}", "value", json_sprintf("%lu%s", value, unit),
                   "requestPolicy", "default", json_sprintf("%lu%s", tenth > step ? tenth : step, unit),
                   "validRange", "min", json_sprintf("%lu%s", step, unit), "step",
                   json_sprintf("%lu%s", step, unit));
}

static void add_text(json_t *attributes, const char *name, const char *text) {
  if (*text)
    json_object_set_new(attributes, name, json_pack("{s:s}", "string", text));
}

/* The API has versions of three numbers; "" if it has none, or more. */
static void add_version(json_t *attributes, const char *name, const char *text) {
  unsigned numbers[3] = {0};
  char rest;
  int count = sscanf(text, "%u.%u.%u%c", &numbers[0], &numbers[1], &numbers[2], &rest);
  if (count >= 1 && count <= 3)
    json_object_set_new(
        attributes, name,
        json_pack("{s:o}", "version", json_sprintf("%u.%u.%u", numbers[0], numbers[1], numbers[2])));
}

static json_t *device(const struct gpus *gpus, size_t i, unsigned memory_percent) {
  const struct gpu *gpu = &gpus->at[i];
  uint64_t memory_mib = gpu->memory_bytes / MIB * memory_percent / 100 / STEP_MIB * STEP_MIB;
  char name[DEVICE_NAME_SIZE];
  json_t *capacities = json_object(), *attributes = json_object();
  device_name(gpu, name);
  json_object_set_new(attributes, "index", json_pack("{s:I}", "int", (json_int_t)gpu->index));
  add_text(attributes, "uuid", gpu->uuid);
  add_text(attributes, "productName", gpu->product);
  add_text(attributes, "architecture", gpu->architecture);
  add_version(attributes, "driverVersion", gpus->driver_version);
  if (memory_mib >= 2 * STEP_MIB) /* else there would be nothing to choose from, or it is unknown */
    json_object_set_new(capacities, "memory", capacity(memory_mib, STEP_MIB, "Mi"));
  json_object_set_new(capacities, "share", capacity(100, 1, ""));
  return json_pack("{s:s, s:b, s:o, s:o}", "name", name, "allowMultipleAllocations", 1, "attributes",
                   attributes, "capacity", capacities);
}

json_t *slice_devices(const struct gpus *gpus, unsigned memory_percent) {
  json_t *devices = json_array();
  for (size_t i = 0; i < gpus->count; i++)
    if (atomic_load(&gpus->at[i].healthy))
      json_array_append_new(devices, device(gpus, i, memory_percent));
  return devices;
}

json_t *slice_object(const char *name, const char *node, const char *node_uid, const char *version,
                     json_int_t generation, json_t *devices) {
  json_t *metadata = json_pack("{s:s}", "name", name);
  if (version)
    json_object_set_new(metadata, "resourceVersion", json_string(version));
  if (*node_uid) /* it goes with its node */
    json_object_set_new(metadata, "ownerReferences",
                        json_pack("[{s:s, s:s, s:s, s:s}]", "apiVersion", "v1", "kind", "Node", "name", node,
                                  "uid", node_uid));
  return json_pack("{s:s, s:s, s:o, s:{s:s, s:s, s:{s:s, s:I, s:i}, s:O}}", "apiVersion",
                   "resource.k8s.io/v1", "kind", "ResourceSlice", "metadata", metadata, "spec", "driver",
                   DRIVER_NAME, "nodeName", node, "pool", "name", node, "generation", generation,
                   "resourceSliceCount", 1, "devices", devices);
}
