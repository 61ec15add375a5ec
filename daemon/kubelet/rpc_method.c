/* rpc_method.c - unpacks a request, has it answered and packs the answer. */
#include "kubelet/rpc_method.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct scratch_piece {
  struct scratch_piece *before;
  max_align_t bytes[];
};

void *scratch_take(struct scratch *scratch, size_t count, size_t size) {
  struct scratch_piece *piece =
      count > (SIZE_MAX - sizeof *piece) / size ? NULL : calloc(1, sizeof *piece + count * size);
  scratch->failed |= !piece;
  if (!piece)
    return NULL;
  piece->before = scratch->last;
  scratch->last = piece;
  return piece->bytes;
}

char *scratch_print(struct scratch *scratch, const char *format, ...) {
  char text[SCRATCH_TEXT_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  char *copy = scratch_take(scratch, strlen(text) + 1, 1);
  return copy ? strcpy(copy, text) : NULL;
}

void *scratch_make(struct scratch *scratch, const ProtobufCMessageDescriptor *type) {
  void *message = scratch_take(scratch, 1, type->sizeof_message);
  if (message)
    protobuf_c_message_init(type, message);
  return message;
}

void *scratch_make_all(struct scratch *scratch, const ProtobufCMessageDescriptor *type, size_t count) {
  void **messages = scratch_take(scratch, count, sizeof *messages);
  for (size_t i = 0; messages && i < count; i++)
    if (!(messages[i] = scratch_make(scratch, type)))
      return NULL;
  return messages;
}

static void give_back(struct scratch *scratch) {
  for (struct scratch_piece *piece; (piece = scratch->last); free(piece))
    scratch->last = piece->before;
}

const struct rpc_method *rpc_find(const struct rpc_service *service, const char *path) {
  for (size_t i = 0; i < service->method_count; i++)
    if (strcmp(service->methods[i].path, path) == 0)
      return &service->methods[i];
  return NULL;
}

struct rpc_answer rpc_call(const struct rpc_service *service, const struct rpc_method *method,
                           const uint8_t *request, size_t size) {
  struct scratch scratch = {0};
  struct rpc_answer packed = {.result = {GRPC_INTERNAL, "the request is not understood"}};
  ProtobufCMessage *answer, *asked = protobuf_c_message_unpack(method->request, NULL, size, request);
  if (!asked)
    return packed;
  packed.result = method->answer(service->context, asked, &scratch, &answer);
  if (packed.result.status == GRPC_OK && scratch.failed)
    packed.result = rpc_no_memory;
  if (packed.result.status == GRPC_OK) {
    packed.size = GRPC_HEAD_SIZE + protobuf_c_message_get_packed_size(answer);
    packed.bytes = malloc(packed.size);
    if (packed.bytes) {
      grpc_write_head(packed.bytes, (uint32_t)(packed.size - GRPC_HEAD_SIZE));
      protobuf_c_message_pack(answer, packed.bytes + GRPC_HEAD_SIZE);
    } else {
      packed = (struct rpc_answer){.result = rpc_no_memory};
    }
  }
  give_back(&scratch);
  protobuf_c_message_free_unpacked(asked, NULL);
  return packed;
}
