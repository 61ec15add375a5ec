/* allocate.c - Allocate: what a container with these shares must have.
 *
 * The kubelet tells nothing about the pod, so everything follows from the resource, the GPUs and the number
 * of shares. What the pod's own specification sets in the environment counts more: the kubelet puts it last.
 */
#include <stdlib.h>
#include <string.h>

#include "deviceplugin.pb-c.h"
#include "gpushare/protocol.h"
#include "plugin/methods.h"

#define ENVS_MAX 6
#define MOUNTS_MAX 3

typedef V1beta1__ContainerAllocateRequest container_request;
typedef V1beta1__ContainerAllocateResponse container_response;

/* Which GPUs a container gets, and how many shares of each. */
struct portion {
  unsigned shares[GPUS_MAX];
  size_t gpu_count;
};

/* A response in the making. */
struct making {
  const struct resource *resource;
  struct scratch *scratch;
  container_response *response;
  bool short_of_memory;
};

/* ---- its parts ---- */

static char *copy_text(struct making *making, const char *text) {
  char *copy = scratch_print(making->scratch, "%s", text);
  making->short_of_memory |= !copy;
  return copy;
}

/* value may be NULL, after a lack of memory. */
static void add_env(struct making *making, const char *name, char *value) {
  V1beta1__Entry *entry = scratch_take(making->scratch, 1, sizeof *entry);
  making->short_of_memory |= !entry || !value;
  if (making->short_of_memory)
    return;
  v1beta1__entry__init(entry);
  entry->key = copy_text(making, name);
  entry->value = value;
  making->response->envs[making->response->n_envs++] = entry;
}

/* Read-only: a socket can be connected to all the same. */
static void add_mount(struct making *making, const char *container_path, char *host_path) {
  V1beta1__Mount *mount = scratch_take(making->scratch, 1, sizeof *mount);
  making->short_of_memory |= !mount || !host_path;
  if (making->short_of_memory)
    return;
  v1beta1__mount__init(mount);
  mount->container_path = copy_text(making, container_path);
  mount->host_path = host_path;
  mount->read_only = true;
  making->response->mounts[making->response->n_mounts++] = mount;
}

/* ---- the library and the daemon ---- */

/* The folder, not the socket: a daemon that is started anew makes a new one. */
static void add_daemon(struct making *making) {
  const char *socket = making->resource->terms->socket;
  char *folder = copy_text(making, socket);
  if (!folder)
    return;
  *strrchr(folder, '/') = '\0';
  add_mount(making, folder, folder);
  add_env(making, "GPUSHARE_SOCKET", copy_text(making, socket));
}

static void add_library(struct making *making) {
  const struct terms_of_use *terms = making->resource->terms;
  add_mount(making, terms->library_folder, copy_text(making, terms->library_folder));
  if (terms->preload_by_env)
    add_env(making, "LD_PRELOAD", scratch_print(making->scratch, "%s/libunified.so", terms->library_folder));
  else
    add_mount(making, "/etc/ld.so.preload",
              scratch_print(making->scratch, "%s/ld.so.preload", terms->library_folder));
}

/* ---- the GPUs ---- */

static void add_visible(struct making *making, const struct portion *portion) {
  const struct gpus *gpus = making->resource->gpus;
  char *list = scratch_take(making->scratch, portion->gpu_count, GS_UUID_TEXT_SIZE), *end = list;
  for (size_t i = 0; list && i < gpus->count; i++)
    if (portion->shares[i] > 0) {
      if (end > list)
        *end++ = ',';
      end = stpcpy(end, gpus->at[i].uuid);
    }
  add_env(making, "NVIDIA_VISIBLE_DEVICES", list);
}

static void add_cdi(struct making *making, const struct portion *portion) {
  const struct gpus *gpus = making->resource->gpus;
  container_response *response = making->response;
  V1beta1__CDIDevice *devices = scratch_take(making->scratch, portion->gpu_count, sizeof *devices);
  response->cdi_devices = scratch_take(making->scratch, portion->gpu_count, sizeof *response->cdi_devices);
  making->short_of_memory |= !devices || !response->cdi_devices;
  for (size_t i = 0; !making->short_of_memory && i < gpus->count; i++)
    if (portion->shares[i] > 0) {
      V1beta1__CDIDevice *device = &devices[response->n_cdi_devices];
      v1beta1__cdidevice__init(device);
      device->name = scratch_print(making->scratch, "nvidia.com/gpu=%s", gpus->at[i].uuid);
      making->short_of_memory = !device->name;
      response->cdi_devices[response->n_cdi_devices++] = device;
    }
}

/* ---- what several shares mean ---- */

/* The least of its GPUs': a program has one weight and one limit for all. */
static unsigned least_shares(const struct resource *resource, const struct portion *portion) {
  unsigned least = RESOURCE_SHARES_MAX;
  for (size_t i = 0; i < resource->gpus->count; i++)
    if (portion->shares[i] > 0 && portion->shares[i] < least)
      least = portion->shares[i];
  return least;
}

static uint64_t part_of_memory(const struct resource *resource, const struct portion *portion) {
  uint64_t least_bytes = UINT64_MAX;
  for (size_t i = 0; i < resource->gpus->count; i++) {
    uint64_t bytes = resource->gpus->at[i].memory_bytes / resource->shares * portion->shares[i];
    if (portion->shares[i] > 0 && bytes < least_bytes)
      least_bytes = bytes;
  }
  return least_bytes;
}

static void add_terms(struct making *making, const struct portion *portion) {
  const struct resource *resource = making->resource;
  unsigned shares = least_shares(resource, portion);
  uint64_t bytes = part_of_memory(resource, portion);
  if (resource->class)
    add_env(making, "GPUSHARE_CLASS", copy_text(making, resource->class));
  if (shares > 1) {
    unsigned weight = shares < GS_WEIGHT_MAX / GS_WEIGHT_DEFAULT ? shares * GS_WEIGHT_DEFAULT : GS_WEIGHT_MAX;
    add_env(making, "GPUSHARE_WEIGHT", scratch_print(making->scratch, "%u", weight));
  }
  if (resource->terms->limit_memory && bytes > 0)
    add_env(making, "GPUSHARE_MEMORY_LIMIT", scratch_print(making->scratch, "%lu", (unsigned long)bytes));
}

/* ---- the whole ---- */

static struct grpc_result read_portion(const struct resource *resource, const container_request *request,
                                       struct portion *portion) {
  size_t gpu;
  unsigned share;
  for (size_t i = 0; i < request->n_devices_ids; i++) {
    if (resource_parse_id(resource, request->devices_ids[i], &gpu, &share) != 0)
      return methods_no_device();
    portion->gpu_count += portion->shares[gpu]++ == 0;
  }
  if (portion->gpu_count > 0)
    return (struct grpc_result){0};
  return (struct grpc_result){GRPC_INVALID_ARGUMENT, "a container without devices"};
}

static struct grpc_result allocate(const struct resource *resource, const container_request *request,
                                   container_response *response, struct scratch *scratch) {
  struct portion portion = {0};
  struct making making = {.resource = resource, .scratch = scratch, .response = response};
  struct grpc_result result = read_portion(resource, request, &portion);
  if (result.status != GRPC_OK)
    return result;
  response->envs = scratch_take(scratch, ENVS_MAX, sizeof *response->envs);
  response->mounts = scratch_take(scratch, MOUNTS_MAX, sizeof *response->mounts);
  if (!response->envs || !response->mounts)
    return methods_no_memory();
  add_daemon(&making);
  add_library(&making);
  (resource->terms->visible_by_cdi ? add_cdi : add_visible)(&making, &portion);
  add_terms(&making, &portion);
  return making.short_of_memory ? methods_no_memory() : result;
}

struct grpc_result allocate_answer(const struct resource *resource, const ProtobufCMessage *request,
                                   struct scratch *scratch, ProtobufCMessage **answer) {
  const V1beta1__AllocateRequest *asked = (const void *)request;
  size_t count = asked->n_container_requests;
  if (count > METHODS_CONTAINERS_MAX)
    return (struct grpc_result){GRPC_INVALID_ARGUMENT, "too many containers"};
  V1beta1__AllocateResponse *response = scratch_take(scratch, 1, sizeof *response);
  container_response **pointers = scratch_take(scratch, count, sizeof *pointers);
  container_response *containers = scratch_take(scratch, count, sizeof *containers);
  if (!response || !pointers || !containers)
    return methods_no_memory();
  v1beta1__allocate_response__init(response);
  response->container_responses = pointers;
  response->n_container_responses = count;
  struct grpc_result result = {0};
  for (size_t i = 0; i < count && result.status == GRPC_OK; i++) {
    v1beta1__container_allocate_response__init(&containers[i]);
    pointers[i] = &containers[i];
    result = allocate(resource, asked->container_requests[i], &containers[i], scratch);
  }
  *answer = &response->base;
  return result;
}
