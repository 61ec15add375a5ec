/* grpc.h - gRPC, as far as both sides need it: status codes, and the head of a message within an HTTP/2 body.
 */
#ifndef GS_KUBELET_GRPC_H
#define GS_KUBELET_GRPC_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum grpc_status {
  GRPC_OK = 0,
  GRPC_INVALID_ARGUMENT = 3,
  GRPC_RESOURCE_EXHAUSTED = 8,
  GRPC_UNIMPLEMENTED = 12,
  GRPC_INTERNAL = 13,
};

/* How a call has ended. text is ASCII without control characters and '%', and is nobody's to free; NULL:
 * none. */
struct grpc_result {
  enum grpc_status status;
  const char *text;
};

/* In front of a message of `size` bytes: whether it is compressed, which it is not, and its length. */
#define GRPC_HEAD_SIZE 5
static inline void grpc_write_head(uint8_t head[GRPC_HEAD_SIZE], uint32_t size) {
  head[0] = 0;
  for (int i = 0; i < 4; i++)
    head[1 + i] = (uint8_t)(size >> (24 - 8 * i));
}

/* A header with a name and a value that live as long as the submission. */
#define H2_HEADER(name_text, value_text)                                                                     \
  ((nghttp2_nv){.name = (uint8_t *)(uintptr_t)(name_text),                                                   \
                .namelen = strlen(name_text),                                                                \
                .value = (uint8_t *)(uintptr_t)(value_text),                                                 \
                .valuelen = strlen(value_text),                                                              \
                .flags = NGHTTP2_NV_FLAG_NONE})

#endif
