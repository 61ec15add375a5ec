/* methods.h - what each method answers. The answers live as long as the scratch memory, and the request.
 * Pure. */
#ifndef GS_PLUGIN_METHODS_H
#define GS_PLUGIN_METHODS_H

#include <protobuf-c/protobuf-c.h>

#include "plugin/grpc.h"
#include "plugin/resource.h"
#include "plugin/scratch.h"

/* *answer on GRPC_OK. */
typedef struct grpc_result method_answer(const struct resource *resource, const ProtobufCMessage *request,
                                         struct scratch *scratch, ProtobufCMessage **answer);

method_answer options_answer;   /* GetDevicePluginOptions */
method_answer devices_answer;   /* ListAndWatch */
method_answer preferred_answer; /* GetPreferredAllocation */
method_answer allocate_answer;  /* Allocate */
method_answer prestart_answer;  /* PreStartContainer */

/* In one request. The kubelet asks for one at a time. */
#define METHODS_CONTAINERS_MAX 64

static inline struct grpc_result methods_no_memory(void) {
  return (struct grpc_result){GRPC_RESOURCE_EXHAUSTED, "out of memory"};
}

static inline struct grpc_result methods_no_device(void) {
  return (struct grpc_result){GRPC_INVALID_ARGUMENT, "a device is not one of this resource"};
}

#endif
