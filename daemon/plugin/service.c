/* service.c - the table of methods, and the way from bytes to bytes. */
#include "plugin/service.h"

#include <stdlib.h>
#include <string.h>

#include "deviceplugin.pb-c.h"
#include "plugin/methods.h"

struct service_method {
  const char *path;
  const ProtobufCMessageDescriptor *request;
  method_answer *answer;
  bool lasts;
};

static const struct service_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", &v1beta1__empty__descriptor, options_answer, false},
    {"/v1beta1.DevicePlugin/ListAndWatch", &v1beta1__empty__descriptor, devices_answer, true},
    {"/v1beta1.DevicePlugin/GetPreferredAllocation", &v1beta1__preferred_allocation_request__descriptor,
     preferred_answer, false},
    {"/v1beta1.DevicePlugin/Allocate", &v1beta1__allocate_request__descriptor, allocate_answer, false},
    {"/v1beta1.DevicePlugin/PreStartContainer", &v1beta1__pre_start_container_request__descriptor,
     prestart_answer, false},
};

const struct service_method *service_find(const char *path) {
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strcmp(methods[i].path, path) == 0)
      return &methods[i];
  return NULL;
}

bool service_lasts(const struct service_method *method) { return method->lasts; }

static struct service_answer pack(const ProtobufCMessage *message) {
  struct service_answer answer = {.size = GRPC_HEAD_SIZE + protobuf_c_message_get_packed_size(message)};
  answer.bytes = malloc(answer.size);
  if (!answer.bytes)
    return (struct service_answer){.result = methods_no_memory()};
  grpc_write_head(answer.bytes, (uint32_t)(answer.size - GRPC_HEAD_SIZE));
  protobuf_c_message_pack(message, answer.bytes + GRPC_HEAD_SIZE);
  return answer;
}

struct service_answer service_call(const struct service_method *method, const struct resource *resource,
                                   const uint8_t *request, size_t size) {
  struct scratch scratch = {0};
  ProtobufCMessage *answer;
  ProtobufCMessage *asked = protobuf_c_message_unpack(method->request, NULL, size, request);
  if (!asked)
    return (struct service_answer){.result = {GRPC_INTERNAL, "the request is not understood"}};
  struct grpc_result result = method->answer(resource, asked, &scratch, &answer);
  struct service_answer packed =
      result.status == GRPC_OK ? pack(answer) : (struct service_answer){.result = result};
  scratch_free(&scratch);
  protobuf_c_message_free_unpacked(asked, NULL);
  return packed;
}
