/* preferred.c - GetPreferredAllocation: choices, as messages. */
#include "deviceplugin.pb-c.h"
#include "plugin/choice.h"
#include "plugin/methods.h"

typedef V1beta1__ContainerPreferredAllocationRequest container_request;
typedef V1beta1__ContainerPreferredAllocationResponse container_response;

static struct grpc_result invalid(const char *text) {
  return (struct grpc_result){GRPC_INVALID_ARGUMENT, text};
}

/* Devices that are not known any more cannot be chosen. */
static void add_available(struct choice *choice, const container_request *request) {
  size_t gpu;
  unsigned share;
  for (size_t i = 0; i < request->n_available_deviceids; i++)
    if (resource_parse_id(choice->resource, request->available_deviceids[i], &gpu, &share) == 0)
      choice_add_free(choice, gpu, share);
}

/* NULL without memory. */
static char *print_id(const struct resource *resource, size_t gpu, unsigned share, struct scratch *scratch) {
  char *id = scratch_take(scratch, 1, RESOURCE_ID_SIZE);
  if (id)
    resource_format_id(resource, gpu, share, id);
  return id;
}

static struct grpc_result add_required(struct choice *choice, const container_request *request,
                                       container_response *response) {
  size_t gpu;
  unsigned share;
  for (size_t i = 0; i < request->n_must_include_deviceids; i++) {
    char *id = request->must_include_deviceids[i];
    if (resource_parse_id(choice->resource, id, &gpu, &share) != 0 || choice_take(choice, gpu, share) != 0)
      return invalid("a device that must be included is not available");
    response->deviceids[response->n_deviceids++] = id;
  }
  return (struct grpc_result){0};
}

static struct grpc_result add_best(struct choice *choice, size_t wanted, container_response *response,
                                   struct scratch *scratch) {
  size_t gpu;
  unsigned share;
  while (response->n_deviceids < wanted) {
    if (choice_take_best(choice, (unsigned)(wanted - response->n_deviceids), &gpu, &share) != 0)
      return invalid("there are not so many devices available");
    char *id = print_id(choice->resource, gpu, share, scratch);
    if (!id)
      return methods_no_memory();
    response->deviceids[response->n_deviceids++] = id;
  }
  return (struct grpc_result){0};
}

static struct grpc_result prefer(const struct resource *resource, const container_request *request,
                                 container_response *response, struct scratch *scratch) {
  struct choice *choice = scratch_take(scratch, 1, sizeof *choice);
  if (request->allocation_size < 0 || request->allocation_size > RESOURCE_DEVICES_MAX ||
      request->n_must_include_deviceids > (size_t)request->allocation_size)
    return invalid("the number of devices is not possible");
  size_t wanted = (size_t)request->allocation_size;
  response->deviceids = scratch_take(scratch, wanted, sizeof *response->deviceids);
  if (!choice || !response->deviceids)
    return methods_no_memory();
  choice->resource = resource;
  add_available(choice, request);
  struct grpc_result result = add_required(choice, request, response);
  return result.status == GRPC_OK ? add_best(choice, wanted, response, scratch) : result;
}

struct grpc_result preferred_answer(const struct resource *resource, const ProtobufCMessage *request,
                                    struct scratch *scratch, ProtobufCMessage **answer) {
  const V1beta1__PreferredAllocationRequest *asked = (const void *)request;
  size_t count = asked->n_container_requests;
  if (count > METHODS_CONTAINERS_MAX)
    return invalid("too many containers");
  V1beta1__PreferredAllocationResponse *response = scratch_take(scratch, 1, sizeof *response);
  container_response **pointers = scratch_take(scratch, count, sizeof *pointers);
  container_response *containers = scratch_take(scratch, count, sizeof *containers);
  if (!response || !pointers || !containers)
    return methods_no_memory();
  v1beta1__preferred_allocation_response__init(response);
  response->container_responses = pointers;
  response->n_container_responses = count;
  struct grpc_result result = {0};
  for (size_t i = 0; i < count && result.status == GRPC_OK; i++) {
    v1beta1__container_preferred_allocation_response__init(&containers[i]);
    pointers[i] = &containers[i];
    result = prefer(resource, asked->container_requests[i], &containers[i], scratch);
  }
  *answer = &response->base;
  return result;
}
