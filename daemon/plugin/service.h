/* service.h - the methods of the device plugin API: requests in, answers out, as bytes. Pure. */
#ifndef GS_PLUGIN_SERVICE_H
#define GS_PLUGIN_SERVICE_H

#include "plugin/grpc.h"
#include "plugin/resource.h"

/* An answer: on GRPC_OK, the message with its head in front, from malloc. */
struct service_answer {
  struct grpc_result result;
  uint8_t *bytes;
  size_t size;
};

struct service_method;

/* By its path, "/v1beta1.DevicePlugin/Allocate"; NULL: there is none. */
const struct service_method *service_find(const char *path);

/* Its call does not end: what it answers is sent again whenever that changes. */
bool service_lasts(const struct service_method *method);

struct service_answer service_call(const struct service_method *method, const struct resource *resource,
                                   const uint8_t *request, size_t size);

#endif
