/* rpc_method.h - what a service answers: a table of methods, and the way from a request's bytes to an
 * answer's. */
#ifndef GS_KUBELET_RPC_METHOD_H
#define GS_KUBELET_RPC_METHOD_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "kubelet/grpc.h"

/* ---- memory for one answer: taken piece by piece, given back all at once ---- */

struct scratch {
  struct scratch_piece *last;
  bool failed; /* some piece was not to be had: the answer is worth nothing */
};

/* Zeroed, for `count` things of `size` bytes (count may be 0). NULL: scratch->failed. */
void *scratch_take(struct scratch *scratch, size_t count, size_t size);

/* A text of at most SCRATCH_TEXT_SIZE - 1 bytes; more is cut. */
#define SCRATCH_TEXT_SIZE 512
__attribute__((format(printf, 2, 3))) char *scratch_print(struct scratch *scratch, const char *format, ...);

/* Empty messages of a type: one; or pointers to `count`. NULL likewise. */
void *scratch_make(struct scratch *scratch, const ProtobufCMessageDescriptor *type);
void *scratch_make_all(struct scratch *scratch, const ProtobufCMessageDescriptor *type, size_t count);

/* ---- methods ---- */

struct rpc_method {
  const char *path; /* "/v1beta1.DevicePlugin/Allocate" */
  const ProtobufCMessageDescriptor *request;
  /* *answer on GRPC_OK; it lives as long as the scratch memory, and the request. */
  struct grpc_result (*answer)(void *context, const ProtobufCMessage *request, struct scratch *scratch,
                               ProtobufCMessage **answer);
  bool lasts; /* its call does not end: what it answers is sent again whenever that changes */
};

struct rpc_service {
  const struct rpc_method *methods;
  size_t method_count;
  void *context; /* of the methods */
};

/* An answer: on GRPC_OK, the message with its head in front, from malloc. */
struct rpc_answer {
  struct grpc_result result;
  uint8_t *bytes;
  size_t size;
};

static const struct grpc_result rpc_done, rpc_no_memory = {GRPC_RESOURCE_EXHAUSTED, "out of memory"};

/* By its path; NULL: there is none. */
const struct rpc_method *rpc_find(const struct rpc_service *service, const char *path);

struct rpc_answer rpc_call(const struct rpc_service *service, const struct rpc_method *method,
                           const uint8_t *request, size_t size);

#endif
