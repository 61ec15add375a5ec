/* slice.h - the GPUs as a ResourceSlice of Kubernetes. Pure. */
#ifndef GS_DRA_SLICE_H
#define GS_DRA_SLICE_H

#include <jansson.h>

#include "kubelet/health.h"

#define RESOURCE_API "/apis/resource.k8s.io/v1"

/* Those that are healthy, as spec.devices; of each, memory_percent of its memory may be given to claims. */
json_t *slice_devices(const struct gpus *gpus, unsigned memory_percent);

/* All of it. node_uid "": nobody knows. version: metadata.resourceVersion; NULL: a new one. */
json_t *slice_object(const char *name, const char *node, const char *node_uid, const char *version,
                     json_int_t generation, json_t *devices);

#endif
