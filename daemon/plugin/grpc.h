/* grpc.h - gRPC, as far as both sides need it: status codes, the framing of messages within HTTP/2 bodies,
 * and an HTTP/2 session over a socket. */
#ifndef GS_PLUGIN_GRPC_H
#define GS_PLUGIN_GRPC_H

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

/* ---- writing ---- */

#define GRPC_HEAD_SIZE 5

/* In front of a message of `size` bytes, not compressed. */
void grpc_write_head(uint8_t head[GRPC_HEAD_SIZE], uint32_t size);

/* ---- reading: bodies that consist of one message, as of all methods here ---- */

/* Of one message. More than the kubelet ever asks: 4096 devices by name. */
#define GRPC_MESSAGE_MAX ((size_t)512 << 10)

/* Begins zeroed. The memory grows with what has come, whatever length is announced. */
struct grpc_reader {
  uint8_t head[GRPC_HEAD_SIZE];
  size_t head_size;
  uint8_t *message;
  size_t size; /* of it has come */
  size_t room;
};

/* Take the next bytes of the body. After a result other than GRPC_OK nothing more may be added. */
struct grpc_result grpc_reader_add(struct grpc_reader *reader, const uint8_t *bytes, size_t size);

/* The body has ended: GRPC_OK if reader->message is whole. */
struct grpc_result grpc_reader_end(const struct grpc_reader *reader);

void grpc_reader_free(struct grpc_reader *reader);

/* A header with a name and a value that live as long as the submission. */
#define H2_HEADER(name_text, value_text)                                                                     \
  ((nghttp2_nv){.name = (uint8_t *)(uintptr_t)(name_text),                                                   \
                .namelen = strlen(name_text),                                                                \
                .value = (uint8_t *)(uintptr_t)(value_text),                                                 \
                .valuelen = strlen(value_text),                                                              \
                .flags = NGHTTP2_NV_FLAG_NONE})

#endif
