/* grpc.c - gRPC's framing: one byte that says whether a message is compressed, four of length, the message.
 */
#include "plugin/grpc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 256

void grpc_write_head(uint8_t head[GRPC_HEAD_SIZE], uint32_t size) {
  head[0] = 0;
  for (int i = 0; i < 4; i++)
    head[1 + i] = (uint8_t)(size >> (24 - 8 * i));
}

static size_t announced_size(const struct grpc_reader *reader) {
  size_t size = 0;
  for (int i = 0; i < 4; i++)
    size = size << 8 | reader->head[1 + i];
  return size;
}

static struct grpc_result check_head(const struct grpc_reader *reader) {
  if (reader->head[0] == 1)
    return (struct grpc_result){GRPC_UNIMPLEMENTED, "compressed messages are not taken"};
  if (reader->head[0] != 0)
    return (struct grpc_result){GRPC_INTERNAL, "not a gRPC message"};
  if (announced_size(reader) > GRPC_MESSAGE_MAX)
    return (struct grpc_result){GRPC_RESOURCE_EXHAUSTED, "the message is too long"};
  return (struct grpc_result){0};
}

/* False: no memory. */
static bool make_room(struct grpc_reader *reader, size_t more) {
  size_t room = reader->room ? reader->room : ROOM_FIRST;
  while (room < reader->size + more)
    room *= 2;
  uint8_t *grown = room == reader->room ? reader->message : realloc(reader->message, room);
  if (!grown)
    return false;
  reader->message = grown;
  reader->room = room;
  return true;
}

struct grpc_result grpc_reader_add(struct grpc_reader *reader, const uint8_t *bytes, size_t size) {
  if (size == 0)
    return (struct grpc_result){0};
  size_t lacking = GRPC_HEAD_SIZE - reader->head_size, taken = size < lacking ? size : lacking;
  memcpy(reader->head + reader->head_size, bytes, taken);
  reader->head_size += taken;
  bytes += taken;
  size -= taken;
  if (reader->head_size < GRPC_HEAD_SIZE)
    return (struct grpc_result){0};
  struct grpc_result result = check_head(reader);
  if (result.status != GRPC_OK)
    return result;
  if (size > announced_size(reader) - reader->size)
    return (struct grpc_result){GRPC_INTERNAL, "more than one message"};
  if (size == 0)
    return (struct grpc_result){0};
  if (!make_room(reader, size))
    return (struct grpc_result){GRPC_RESOURCE_EXHAUSTED, "out of memory"};
  memcpy(reader->message + reader->size, bytes, size);
  reader->size += size;
  return (struct grpc_result){0};
}

struct grpc_result grpc_reader_end(const struct grpc_reader *reader) {
  if (reader->head_size < GRPC_HEAD_SIZE || reader->size < announced_size(reader))
    return (struct grpc_result){GRPC_INTERNAL, "the message is not whole"};
  return (struct grpc_result){0};
}

void grpc_reader_free(struct grpc_reader *reader) {
  free(reader->message);
  *reader = (struct grpc_reader){0};
}
