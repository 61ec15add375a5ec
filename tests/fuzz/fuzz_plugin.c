/*
 * fuzz_plugin.c - bytes as what a peer of gpushare-device-plugin sends: HTTP/2, gRPC's frames and requests.
 *
 * Input: records of a byte, a length of two bytes and so many bytes. The first byte's low bits say what
 * becomes of them: 0  they are sent as they are 1  they are the body of a new call, whose end is sent too
 * unless bit 7 is set 2  they are the message of a new call: a right head is put in front 3  the devices
 * change; nothing is sent and bits 2 to 5 which method is called. Each record is read by the server at once,
 * and all that it answers is looked at; a message that it answers must be one.
 *
 * Built with -fsanitize=fuzzer this is a libFuzzer target. Otherwise it has a main:
 *   fuzz_plugin FILE...              replays files
 *   fuzz_plugin --random SEED RUNS   random records; the seed of a failure is printed
 *   fuzz_plugin --corpus FOLDER      writes a small corpus to start fuzzing from
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/splitmix.h"
#include "deviceplugin.pb-c.h"
#include "fuzz_files.h"
#include "kubelet/grpc.h"
#include "kubelet/rpc_server.h"
#include "plugin/service.h"

#define HEAD_SIZE 3
#define FRAME_HEAD 9
#define FRAME_MAX 16384
#define FRAME_DATA 0
#define FRAME_HEADERS 1
#define END_STREAM 1
#define END_HEADERS 4

enum { SENT_RAW, SENT_BODY, SENT_MESSAGE, DEVICES_CHANGE };

static const char *const paths[] = {
    "/v1beta1.DevicePlugin/Allocate",          "/v1beta1.DevicePlugin/GetPreferredAllocation",
    "/v1beta1.DevicePlugin/ListAndWatch",      "/v1beta1.DevicePlugin/GetDevicePluginOptions",
    "/v1beta1.DevicePlugin/PreStartContainer", "/v1beta1.DevicePlugin/Nothing",
};
#define PATH_COUNT (sizeof paths / sizeof *paths)

static struct {
  struct gpus gpus;
  struct terms_of_use terms;
  struct container_terms container;
  struct resource resource;
  struct rpc_service service;
  bool daemon_answers;
  struct rpc_server server;
  bool broken; /* the connection */
  uint32_t next_stream;
} world;

static void require(bool right, const char *what) {
  if (right)
    return;
  fprintf(stderr, "broken: %s\n", what);
  abort();
}

/* ---- the connection ---- */

static void drain(void) {
  const uint8_t *bytes;
  ssize_t size;
  while ((size = nghttp2_session_mem_send(world.server.session, &bytes)) > 0)
    ;
  require(size == 0, "the server has nothing to say for an error");
}

static void feed(const uint8_t *bytes, size_t size) {
  if (world.broken)
    return;
  world.broken = nghttp2_session_mem_recv(world.server.session, bytes, size) < 0;
  if (!world.broken)
    drain();
  require(world.server.call_count <= RPC_CALLS_MAX && world.server.buffered_bytes <= RPC_BUFFERED_MAX &&
              world.server.watches <= RPC_WATCHES_MAX,
          "a bound is passed");
}

static void feed_frame(uint8_t type, uint8_t flags, uint32_t stream, const uint8_t *payload, size_t size) {
  uint8_t head[FRAME_HEAD] = {(uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size, type, flags};
  for (int i = 0; i < 4; i++)
    head[5 + i] = (uint8_t)(stream >> (24 - 8 * i));
  feed(head, sizeof head);
  feed(payload, size);
}

/* Headers as literals: nothing to be remembered by either side. */
static size_t add_header(uint8_t *to, const char *name, const char *value) {
  size_t name_size = strlen(name), value_size = strlen(value);
  to[0] = 0;
  to[1] = (uint8_t)name_size;
  memcpy(to + 2, name, name_size);
  to[2 + name_size] = (uint8_t)value_size;
  memcpy(to + 3 + name_size, value, value_size);
  return 3 + name_size + value_size;
}

static void begin_call(const char *path) {
  uint8_t block[512];
  size_t size = add_header(block, ":method", "POST");
  size += add_header(block + size, ":scheme", "http");
  size += add_header(block + size, ":path", path);
  size += add_header(block + size, ":authority", "localhost");
  size += add_header(block + size, "content-type", "application/grpc");
  feed_frame(FRAME_HEADERS, END_HEADERS, world.next_stream, block, size);
}

static void call(const char *path, const uint8_t *body, size_t size, bool headed, bool ends) {
  uint8_t head[GRPC_HEAD_SIZE];
  begin_call(path);
  grpc_write_head(head, (uint32_t)size);
  if (headed)
    feed_frame(FRAME_DATA, 0, world.next_stream, head, sizeof head);
  for (; size > FRAME_MAX; body += FRAME_MAX, size -= FRAME_MAX)
    feed_frame(FRAME_DATA, 0, world.next_stream, body, FRAME_MAX);
  feed_frame(FRAME_DATA, ends ? END_STREAM : 0, world.next_stream, body, size);
  world.next_stream += 2;
}

/* ---- the service ---- */

static void check_answer(const char *path, const uint8_t *message, size_t size) {
  const ProtobufCMessageDescriptor *type =
      strstr(path, "Allocate")       ? &v1beta1__allocate_response__descriptor
      : strstr(path, "Preferred")    ? &v1beta1__preferred_allocation_response__descriptor
      : strstr(path, "ListAndWatch") ? &v1beta1__list_and_watch_response__descriptor
                                     : &v1beta1__device_plugin_options__descriptor;
  ProtobufCMessage *read = protobuf_c_message_unpack(type, NULL, size, message);
  require(read, "an answer is not a message");
  protobuf_c_message_free_unpacked(read, NULL);
}

static void ask(const char *path, const uint8_t *message, size_t size) {
  const struct rpc_method *method = rpc_find(&world.service, path);
  if (!method)
    return;
  struct rpc_answer answer = rpc_call(&world.service, method, message, size);
  require(answer.result.status == GRPC_OK ? answer.size >= GRPC_HEAD_SIZE && answer.bytes
                                          : !answer.bytes && answer.result.text,
          "neither an answer nor a reason");
  if (answer.bytes)
    check_answer(path, answer.bytes + GRPC_HEAD_SIZE, answer.size - GRPC_HEAD_SIZE);
  free(answer.bytes);
}

/* ---- one input ---- */

static void begin(void) {
  static const uint8_t settings[FRAME_HEAD] = {0, 0, 0, 4};
  memset(&world, 0, sizeof world);
  log_setup("fuzz", LOG_LEVEL_ERROR);
  require(gpus_parse(
              &world.gpus,
              "GPU-00000000-0000-0000-0000-000000000001:80G,GPU-00000000-0000-0000-0000-000000000002") == 0,
          "GPUs are not understood");
  world.container =
      (struct container_terms){.socket = "/run/gpushare/daemon.sock", .library_folder = "/lib/gs"};
  world.terms = (struct terms_of_use){.container = &world.container, .limit_memory = true};
  world.resource = (struct resource){.name = "fuzz",
                                     .shares = 8,
                                     .class = "opportunistic",
                                     .gpus = &world.gpus,
                                     .terms = &world.terms,
                                     .daemon_answers = &world.daemon_answers};
  world.service = service_of(&world.resource);
  world.next_stream = 1;
  require(rpc_server_open(&world.server, &world.service) == 0, "no server");
  feed((const uint8_t *)NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
  feed(settings, sizeof settings);
  call("/v1beta1.DevicePlugin/GetDevicePluginOptions", NULL, 0, true, true);
  require(world.server.ended == 1, "a right call is not answered");
}

static void end(void) {
  rpc_server_close(&world.server);
  require(world.server.call_count == 0 && world.server.buffered_bytes == 0 && world.server.watches == 0,
          "something is left of a connection");
}

static void play(uint8_t how, const uint8_t *bytes, size_t size) {
  const char *path = paths[(how >> 2 & 15) % PATH_COUNT];
  switch (how & 3) {
  case SENT_RAW:
    feed(bytes, size);
    break;
  case SENT_BODY:
    call(path, bytes, size, false, !(how & 128));
    break;
  case SENT_MESSAGE:
    call(path, bytes, size, true, true);
    ask(path, bytes, size);
    break;
  default:
    world.daemon_answers = !world.daemon_answers;
    world.terms.apart = how & 4;
    world.terms.visible_by_cdi = how & 8;
    world.terms.placement = how & 16 ? PLACEMENT_PACK : PLACEMENT_SPREAD;
    rpc_server_refresh(&world.server);
    feed(NULL, 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  begin();
  while (size >= HEAD_SIZE) {
    size_t wanted = (size_t)data[1] << 8 | data[2], left = size - HEAD_SIZE,
           length = wanted < left ? wanted : left;
    play(data[0], data + HEAD_SIZE, length);
    data += HEAD_SIZE + length;
    size = left - length;
  }
  end();
  return 0;
}

#ifndef GS_LIBFUZZER

/* ---- without libFuzzer ---- */

#define INPUT_SIZE 8192

static uint64_t random_state;
static uint8_t input[INPUT_SIZE];

static unsigned random_below(unsigned bound) { return (unsigned)(splitmix_next(&random_state) % bound); }

/* Field 1 as text, of a message at `to`; some of them devices that there are. */
static size_t add_text(uint8_t *to) {
  int length = snprintf((char *)to + 2, 64, "GPU-00000000-0000-0000-0000-%012u.%u", 1 + random_below(3),
                        random_below(9));
  to[0] = (uint8_t)(0x0a + 8 * (random_below(4) == 0));
  to[1] = (uint8_t)length;
  return (size_t)length + 2;
}

/* A request with a container with devices; and an allocation size, which Allocate skips. */
static size_t make_request(uint8_t *to) {
  size_t size = 2;
  unsigned count = random_below(3);
  for (unsigned i = 0; i < count; i++)
    size += add_text(to + size);
  if (random_below(2)) {
    to[size++] = 0x18;
    to[size++] = (uint8_t)random_below(6);
  }
  to[0] = 0x0a;
  to[1] = (uint8_t)(size - 2);
  return size;
}

static size_t make_noise(uint8_t *to) {
  size_t size = random_below(60);
  for (size_t i = 0; i < size; i++)
    to[i] = (uint8_t)splitmix_next(&random_state);
  return size;
}

static size_t make_record(uint8_t *to) {
  uint8_t *bytes = to + HEAD_SIZE;
  unsigned kind = random_below(40); /* noise mostly ends the connection */
  uint8_t how = kind < 1 ? SENT_RAW : kind < 6 ? SENT_BODY : kind < 35 ? SENT_MESSAGE : DEVICES_CHANGE;
  to[0] = (uint8_t)(random_below(64) << 2 | how);
  size_t size = kind > 2 ? make_request(bytes) : make_noise(bytes);
  if (size > 0 && random_below(5) == 0)
    bytes[random_below((unsigned)size)] ^= (uint8_t)(1 << random_below(8));
  to[1] = (uint8_t)(size >> 8);
  to[2] = (uint8_t)size;
  return HEAD_SIZE + size;
}

static size_t make_input(void) {
  size_t size = 0;
  for (unsigned count = 1 + random_below(40); count > 0 && size + 512 < INPUT_SIZE; count--)
    size += make_record(input + size);
  return size;
}

static int run_random(uint64_t seed, uint64_t runs) {
  for (uint64_t i = 0; i < runs; i++) {
    random_state = seed + i;
    fprintf(stderr, "\rseed %llu ", (unsigned long long)random_state);
    LLVMFuzzerTestOneInput(input, make_input());
  }
  fprintf(stderr, "\n");
  return EXIT_SUCCESS;
}

static int write_corpus(const char *folder) {
  int result = EXIT_SUCCESS;
  for (unsigned i = 0; i < 64 && result == EXIT_SUCCESS; i++) {
    random_state = i;
    result = fuzz_write(folder, "calls", i, input, make_input());
  }
  return result;
}

int main(int argc, char **argv) { return fuzz_main(argc, argv, run_random, write_corpus); }

#endif
