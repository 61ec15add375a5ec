/* service.c - the table of methods, the way from bytes to bytes, and what each method answers.
 *
 * The kubelet tells nothing about the pod, so everything follows from the resource, the GPUs and the number
 * of shares. What the pod's own specification sets in the environment counts more: the kubelet puts it last.
 */
#include "plugin/service.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deviceplugin.pb-c.h"

#define CONTAINERS_MAX 64 /* in one request: the kubelet asks for one at a time */
#define ENVS_MAX (CONTAINER_ENVS_MAX + 4)
#define ID_SIZE (GS_UUID_TEXT_SIZE + 8)

typedef V1beta1__ContainerAllocateRequest allocate_request;
typedef V1beta1__ContainerAllocateResponse allocate_response;
typedef V1beta1__ContainerPreferredAllocationRequest preferred_request;
typedef V1beta1__ContainerPreferredAllocationResponse preferred_response;

static const struct grpc_result no_device = {GRPC_INVALID_ARGUMENT, "a device is not one of this resource"},
                                too_many = {GRPC_INVALID_ARGUMENT, "too many containers"};

/* ---- devices: each is named by its GPU and its number, "GPU-....7" ---- */

static char *print_id(const struct resource *resource, size_t gpu, unsigned share, struct scratch *scratch) {
  return scratch_print(scratch, "%s.%u", resource->gpus->at[gpu].uuid, share);
}

/* False: the resource has no such device. */
static bool parse_id(const struct resource *resource, const char *id, size_t *gpu, unsigned *share) {
  char same[ID_SIZE];
  const char *dot = strrchr(id, '.');
  int64_t number;
  if (!dot || parse_integer(dot + 1, 0, (int64_t)resource->shares - 1, &number) != 0)
    return false;
  int index = gpus_index(resource->gpus, id, (size_t)(dot - id));
  if (index < 0)
    return false;
  snprintf(same, sizeof same, "%s.%u", resource->gpus->at[index].uuid, (unsigned)number);
  *gpu = (size_t)index;
  *share = (unsigned)number;
  return strcmp(same, id) == 0; /* not "007" */
}

/* ---- GetDevicePluginOptions, PreStartContainer ---- */

static struct grpc_result get_options(void *context, const ProtobufCMessage *request, struct scratch *scratch,
                                      ProtobufCMessage **answer) {
  V1beta1__DevicePluginOptions *options = scratch_make(scratch, &v1beta1__device_plugin_options__descriptor);
  (void)context, (void)request;
  if (!options)
    return rpc_no_memory;
  options->get_preferred_allocation_available = true;
  *answer = &options->base;
  return rpc_done;
}

static struct grpc_result prestart(void *context, const ProtobufCMessage *request, struct scratch *scratch,
                                   ProtobufCMessage **answer) {
  const struct resource *resource = context;
  const V1beta1__PreStartContainerRequest *asked = (const void *)request;
  V1beta1__PreStartContainerResponse *nothing =
      scratch_make(scratch, &v1beta1__pre_start_container_response__descriptor);
  size_t gpu;
  unsigned share;
  for (size_t i = 0; i < asked->n_devices_ids; i++)
    if (!parse_id(resource, asked->devices_ids[i], &gpu, &share))
      return no_device;
  if (!nothing)
    return rpc_no_memory;
  *answer = &nothing->base;
  return rpc_done;
}

/* ---- ListAndWatch: the devices with their health ---- */

/* Where the GPU is; NULL: unknown. */
static V1beta1__TopologyInfo *make_topology(const struct gpu *gpu, struct scratch *scratch) {
  if (gpu->numa < 0)
    return NULL;
  V1beta1__TopologyInfo *topology = scratch_make(scratch, &v1beta1__topology_info__descriptor);
  V1beta1__NUMANode **nodes = scratch_make_all(scratch, &v1beta1__numanode__descriptor, 1);
  if (!topology || !nodes)
    return NULL;
  nodes[0]->id = gpu->numa;
  topology->nodes = nodes;
  topology->n_nodes = 1;
  return topology;
}

static struct grpc_result list_devices(void *context, const ProtobufCMessage *request,
                                       struct scratch *scratch, ProtobufCMessage **answer) {
  const struct resource *resource = context;
  static char healthy[] = "Healthy", unhealthy[] = "Unhealthy";
  size_t count = resource->gpus->count * resource->shares;
  V1beta1__ListAndWatchResponse *response =
      scratch_make(scratch, &v1beta1__list_and_watch_response__descriptor);
  V1beta1__Device **devices = scratch_make_all(scratch, &v1beta1__device__descriptor, count);
  (void)request;
  if (!response || !devices)
    return rpc_no_memory;
  response->devices = devices;
  for (size_t i = 0; i < resource->gpus->count; i++) {
    const struct gpu *gpu = &resource->gpus->at[i];
    bool usable = *resource->daemon_answers && atomic_load(&gpu->healthy);
    V1beta1__TopologyInfo *topology = make_topology(gpu, scratch);
    for (unsigned share = 0; share < resource->shares; share++) {
      V1beta1__Device *device = devices[response->n_devices++];
      device->id = print_id(resource, i, share, scratch);
      device->health = usable ? healthy : unhealthy;
      device->topology = topology;
    }
  }
  *answer = &response->base;
  return rpc_done;
}

/* ---- GetPreferredAllocation: which of the free shares a container should get ----
 *
 * Several shares of a container are of one GPU if one has so many, else of as few as possible (or, if the
 * terms say `apart`, of as many as possible). Which GPU that is, is the placement's: the one with the most
 * shares free (spread) or with the fewest (pack). */

/* The free shares of a resource, and those that are taken from them. */
struct choice {
  const struct resource *resource;
  bool free[GPUS_MAX][RESOURCE_SHARES_MAX];
  unsigned free_count[GPUS_MAX];
  unsigned taken_count[GPUS_MAX];
};

/* False: it is not free. */
static bool choose(struct choice *choice, size_t gpu, unsigned share) {
  if (!choice->free[gpu][share])
    return false;
  choice->free[gpu][share] = false;
  choice->free_count[gpu]--;
  choice->taken_count[gpu]++;
  return true;
}

static int compare(unsigned a, unsigned b) { return a < b ? -1 : a > b; }

/* Of GPUs, a before b, if `needed` shares are wanted in the end. */
static bool comes_before(const struct choice *choice, size_t a, size_t b, unsigned needed) {
  const struct terms_of_use *terms = choice->resource->terms;
  unsigned free_a = choice->free_count[a], free_b = choice->free_count[b];
  int order = compare(choice->taken_count[b], choice->taken_count[a]);
  if (!terms->apart) {
    order = compare(choice->taken_count[a] > 0, choice->taken_count[b] > 0);
    if (order == 0)
      order = compare(free_a >= needed, free_b >= needed);
    if (order == 0 && free_a < needed)
      order = compare(free_a, free_b);
  }
  if (order == 0)
    order = terms->placement == PLACEMENT_PACK ? compare(free_b, free_a) : compare(free_a, free_b);
  return order > 0;
}

/* False: none is free. */
static bool choose_best(struct choice *choice, unsigned needed, size_t *gpu, unsigned *share) {
  *gpu = GPUS_MAX;
  for (size_t i = 0; i < choice->resource->gpus->count; i++)
    if (choice->free_count[i] > 0 && (*gpu == GPUS_MAX || comes_before(choice, i, *gpu, needed)))
      *gpu = i;
  if (*gpu == GPUS_MAX)
    return false;
  for (*share = 0; !choice->free[*gpu][*share]; ++*share)
    ;
  return choose(choice, *gpu, *share);
}

static struct grpc_result prefer(const struct resource *resource, const preferred_request *request,
                                 preferred_response *response, struct scratch *scratch) {
  size_t gpu, wanted = (size_t)request->allocation_size, required = request->n_must_include_deviceids;
  unsigned share;
  if (request->allocation_size < 0 || wanted > RESOURCE_DEVICES_MAX || required > wanted)
    return (struct grpc_result){GRPC_INVALID_ARGUMENT, "the number of devices is not possible"};
  struct choice *choice = scratch_take(scratch, 1, sizeof *choice);
  response->deviceids = scratch_take(scratch, wanted, sizeof *response->deviceids);
  if (!choice || !response->deviceids)
    return rpc_no_memory;
  choice->resource = resource;
  for (size_t i = 0; i < request->n_available_deviceids; i++)
    if (parse_id(resource, request->available_deviceids[i], &gpu, &share)) { /* else it has gone */
      choice->free_count[gpu] += !choice->free[gpu][share];
      choice->free[gpu][share] = true;
    }
  while (response->n_deviceids < required) {
    char *id = request->must_include_deviceids[response->n_deviceids];
    if (!parse_id(resource, id, &gpu, &share) || !choose(choice, gpu, share))
      return (struct grpc_result){GRPC_INVALID_ARGUMENT, "a device that must be included is not available"};
    response->deviceids[response->n_deviceids++] = id;
  }
  while (response->n_deviceids < wanted) {
    if (!choose_best(choice, (unsigned)(wanted - response->n_deviceids), &gpu, &share))
      return (struct grpc_result){GRPC_INVALID_ARGUMENT, "there are not so many devices available"};
    response->deviceids[response->n_deviceids++] = print_id(resource, gpu, share, scratch);
  }
  return rpc_done;
}

static struct grpc_result prefer_all(void *context, const ProtobufCMessage *request, struct scratch *scratch,
                                     ProtobufCMessage **answer) {
  const struct resource *resource = context;
  const V1beta1__PreferredAllocationRequest *asked = (const void *)request;
  size_t count = asked->n_container_requests;
  if (count > CONTAINERS_MAX)
    return too_many;
  V1beta1__PreferredAllocationResponse *response =
      scratch_make(scratch, &v1beta1__preferred_allocation_response__descriptor);
  preferred_response **containers =
      scratch_make_all(scratch, &v1beta1__container_preferred_allocation_response__descriptor, count);
  if (!response || !containers)
    return rpc_no_memory;
  response->container_responses = containers;
  response->n_container_responses = count;
  struct grpc_result result = rpc_done;
  for (size_t i = 0; i < count && result.status == GRPC_OK; i++)
    result = prefer(resource, asked->container_requests[i], containers[i], scratch);
  *answer = &response->base;
  return result;
}

/* ---- Allocate: what a container with these shares must have ---- */

/* A response in the making; and which GPUs its container gets, and how many shares of each. */
struct making {
  const struct resource *resource;
  struct scratch *scratch;
  allocate_response *response;
  unsigned shares[GPUS_MAX];
  size_t gpu_count;
};

static void add_env(struct making *making, const char *name, char *value) {
  V1beta1__Entry *entry = making->response->envs[making->response->n_envs++];
  entry->key = scratch_print(making->scratch, "%s", name);
  entry->value = value;
}

static void add_programs(struct making *making) {
  const struct container_needs needs = container_needs(making->resource->terms->container);
  for (size_t i = 0; i < needs.mount_count; i++) {
    V1beta1__Mount *mount = making->response->mounts[making->response->n_mounts++];
    mount->container_path = scratch_print(making->scratch, "%s", needs.mounts[i].container_path);
    mount->host_path = scratch_print(making->scratch, "%s", needs.mounts[i].host_path);
    mount->read_only = true;
  }
  for (size_t i = 0; i < needs.env_count; i++)
    add_env(making, needs.envs[i].name, scratch_print(making->scratch, "%s", needs.envs[i].value));
}

static void add_gpus(struct making *making) {
  const struct gpus *gpus = making->resource->gpus;
  allocate_response *response = making->response;
  bool by_cdi = making->resource->terms->visible_by_cdi;
  char *list = scratch_take(making->scratch, making->gpu_count, GS_UUID_TEXT_SIZE), *end = list;
  response->cdi_devices =
      scratch_make_all(making->scratch, &v1beta1__cdidevice__descriptor, making->gpu_count);
  if (!list || !response->cdi_devices)
    return;
  for (size_t i = 0; i < gpus->count; i++) {
    if (making->shares[i] == 0)
      continue;
    if (by_cdi) {
      response->cdi_devices[response->n_cdi_devices++]->name =
          scratch_print(making->scratch, "nvidia.com/gpu=%s", gpus->at[i].uuid);
      continue;
    }
    if (end > list)
      *end++ = ',';
    end = stpcpy(end, gpus->at[i].uuid);
  }
  if (!by_cdi)
    add_env(making, "NVIDIA_VISIBLE_DEVICES", list);
}

/* What several shares mean. The least of its GPUs': a program has one weight and one limit for all. */
static void add_terms(struct making *making) {
  const struct resource *resource = making->resource;
  unsigned shares = RESOURCE_SHARES_MAX;
  uint64_t least_bytes = UINT64_MAX;
  for (size_t i = 0; i < resource->gpus->count; i++) {
    uint64_t bytes = resource->gpus->at[i].memory_bytes / resource->shares * making->shares[i];
    if (making->shares[i] == 0)
      continue;
    shares = making->shares[i] < shares ? making->shares[i] : shares;
    least_bytes = bytes < least_bytes ? bytes : least_bytes;
  }
  if (resource->class)
    add_env(making, "GPUSHARE_CLASS", scratch_print(making->scratch, "%s", resource->class));
  if (shares > 1) {
    unsigned weight = shares < GS_WEIGHT_MAX / GS_WEIGHT_DEFAULT ? shares * GS_WEIGHT_DEFAULT : GS_WEIGHT_MAX;
    add_env(making, "GPUSHARE_WEIGHT", scratch_print(making->scratch, "%u", weight));
  }
  if (resource->terms->limit_memory && least_bytes > 0)
    add_env(making, "GPUSHARE_MEMORY_LIMIT",
            scratch_print(making->scratch, "%lu", (unsigned long)least_bytes));
}

static struct grpc_result allocate(const struct resource *resource, const allocate_request *request,
                                   allocate_response *response, struct scratch *scratch) {
  struct making making = {.resource = resource, .scratch = scratch, .response = response};
  size_t gpu;
  unsigned share;
  for (size_t i = 0; i < request->n_devices_ids; i++) {
    if (!parse_id(resource, request->devices_ids[i], &gpu, &share))
      return no_device;
    making.gpu_count += making.shares[gpu]++ == 0;
  }
  if (making.gpu_count == 0)
    return (struct grpc_result){GRPC_INVALID_ARGUMENT, "a container without devices"};
  response->envs = scratch_make_all(scratch, &v1beta1__entry__descriptor, ENVS_MAX);
  response->mounts = scratch_make_all(scratch, &v1beta1__mount__descriptor, CONTAINER_MOUNTS_MAX);
  if (!response->envs || !response->mounts)
    return rpc_no_memory;
  add_programs(&making);
  add_gpus(&making);
  add_terms(&making);
  return rpc_done;
}

static struct grpc_result allocate_all(void *context, const ProtobufCMessage *request,
                                       struct scratch *scratch, ProtobufCMessage **answer) {
  const struct resource *resource = context;
  const V1beta1__AllocateRequest *asked = (const void *)request;
  size_t count = asked->n_container_requests;
  if (count > CONTAINERS_MAX)
    return too_many;
  V1beta1__AllocateResponse *response = scratch_make(scratch, &v1beta1__allocate_response__descriptor);
  allocate_response **containers =
      scratch_make_all(scratch, &v1beta1__container_allocate_response__descriptor, count);
  if (!response || !containers)
    return rpc_no_memory;
  response->container_responses = containers;
  response->n_container_responses = count;
  struct grpc_result result = rpc_done;
  for (size_t i = 0; i < count && result.status == GRPC_OK; i++)
    result = allocate(resource, asked->container_requests[i], containers[i], scratch);
  *answer = &response->base;
  return result;
}

/* ---- the table ---- */

static const struct rpc_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", &v1beta1__empty__descriptor, get_options, false},
    {"/v1beta1.DevicePlugin/ListAndWatch", &v1beta1__empty__descriptor, list_devices, true},
    {"/v1beta1.DevicePlugin/GetPreferredAllocation", &v1beta1__preferred_allocation_request__descriptor,
     prefer_all, false},
    {"/v1beta1.DevicePlugin/Allocate", &v1beta1__allocate_request__descriptor, allocate_all, false},
    {"/v1beta1.DevicePlugin/PreStartContainer", &v1beta1__pre_start_container_request__descriptor, prestart,
     false},
};

struct rpc_service service_of(struct resource *resource) {
  return (struct rpc_service){methods, sizeof methods / sizeof *methods, resource};
}
