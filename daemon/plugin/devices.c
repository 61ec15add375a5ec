/* devices.c - what the plugin can do, and the devices with their health. */
#include <string.h>

#include "deviceplugin.pb-c.h"
#include "plugin/methods.h"

struct grpc_result options_answer(const struct resource *resource, const ProtobufCMessage *request,
                                  struct scratch *scratch, ProtobufCMessage **answer) {
  V1beta1__DevicePluginOptions *options = scratch_take(scratch, 1, sizeof *options);
  (void)resource;
  (void)request;
  if (!options)
    return methods_no_memory();
  v1beta1__device_plugin_options__init(options);
  options->get_preferred_allocation_available = true;
  *answer = &options->base;
  return (struct grpc_result){0};
}

/* Where the GPU is; NULL: unknown, or *err. */
static V1beta1__TopologyInfo *make_topology(const struct gpu *gpu, struct scratch *scratch,
                                            bool *short_of_memory) {
  V1beta1__TopologyInfo *topology = scratch_take(scratch, 1, sizeof *topology);
  V1beta1__NUMANode *node = scratch_take(scratch, 1, sizeof *node),
                    **nodes = scratch_take(scratch, 1, sizeof *nodes);
  if (!topology || !node || !nodes) {
    *short_of_memory = true;
    return NULL;
  }
  v1beta1__topology_info__init(topology);
  v1beta1__numanode__init(node);
  node->id = gpu->numa;
  nodes[0] = node;
  topology->nodes = nodes;
  topology->n_nodes = 1;
  return topology;
}

struct listing {
  V1beta1__ListAndWatchResponse *response;
  V1beta1__Device *devices;
  char (*ids)[RESOURCE_ID_SIZE];
};

static void list_shares(const struct resource *resource, size_t gpu, V1beta1__TopologyInfo *topology,
                        struct listing *listing) {
  static char healthy[] = "Healthy", unhealthy[] = "Unhealthy";
  bool usable = resource_healthy(resource, gpu);
  for (unsigned share = 0; share < resource->shares; share++) {
    size_t i = listing->response->n_devices++;
    V1beta1__Device *device = &listing->devices[i];
    v1beta1__device__init(device);
    resource_format_id(resource, gpu, share, listing->ids[i]);
    device->id = listing->ids[i];
    device->health = usable ? healthy : unhealthy;
    device->topology = topology;
    listing->response->devices[i] = device;
  }
}

struct grpc_result devices_answer(const struct resource *resource, const ProtobufCMessage *request,
                                  struct scratch *scratch, ProtobufCMessage **answer) {
  size_t count = resource->gpus->count * resource->shares;
  bool short_of_memory = false;
  struct listing listing = {.response = scratch_take(scratch, 1, sizeof *listing.response),
                            .devices = scratch_take(scratch, count, sizeof *listing.devices),
                            .ids = scratch_take(scratch, count, sizeof *listing.ids)};
  V1beta1__Device **pointers = scratch_take(scratch, count, sizeof *pointers);
  (void)request;
  if (!listing.response || !listing.devices || !listing.ids || !pointers)
    return methods_no_memory();
  v1beta1__list_and_watch_response__init(listing.response);
  listing.response->devices = pointers;
  for (size_t i = 0; i < resource->gpus->count; i++) {
    const struct gpu *gpu = &resource->gpus->at[i];
    list_shares(resource, i, gpu->numa < 0 ? NULL : make_topology(gpu, scratch, &short_of_memory), &listing);
  }
  *answer = &listing.response->base;
  return short_of_memory ? methods_no_memory() : (struct grpc_result){0};
}

struct grpc_result prestart_answer(const struct resource *resource, const ProtobufCMessage *request,
                                   struct scratch *scratch, ProtobufCMessage **answer) {
  const V1beta1__PreStartContainerRequest *asked = (const void *)request;
  V1beta1__PreStartContainerResponse *nothing = scratch_take(scratch, 1, sizeof *nothing);
  size_t gpu;
  unsigned share;
  for (size_t i = 0; i < asked->n_devices_ids; i++)
    if (resource_parse_id(resource, asked->devices_ids[i], &gpu, &share) != 0)
      return methods_no_device();
  if (!nothing)
    return methods_no_memory();
  v1beta1__pre_start_container_response__init(nothing);
  *answer = &nothing->base;
  return (struct grpc_result){0};
}
