/* test_plugin_service.c - the device plugin's answers, as bytes: what a kubelet that is played does not see.
 */
#include <stdlib.h>
#include <string.h>

#include "deviceplugin.pb-c.h"
#include "kubelet/rpc_server.h"
#include "plugin/service.h"
#include "suite.h"

static struct gpus gpus;
static struct terms_of_use terms;
static bool daemon_answers;
static const struct container_terms container = {.socket = "/run/gs/daemon.sock",
                                                 .library_folder = "/lib/gs"};
static struct resource resource;

static void set_up(void) {
  ck_assert_int_eq(gpus_parse(&gpus, "GPU-00000000-0000-0000-0000-000000000001,"
                                     "00000000-0000-0000-0000-00000000000A:80G:/dev/null"),
                   0);
  terms = (struct terms_of_use){.container = &container};
  daemon_answers = true;
  resource = (struct resource){
      .name = "test", .shares = 2, .gpus = &gpus, .terms = &terms, .daemon_answers = &daemon_answers};
}

static void tear_down(void) {}

static struct rpc_answer call(const char *path, const uint8_t *bytes, size_t size) {
  struct rpc_service service = service_of(&resource);
  return rpc_call(&service, rpc_find(&service, path), bytes, size);
}

static V1beta1__ListAndWatchResponse *list_devices(void) {
  struct rpc_answer answer = call("/v1beta1.DevicePlugin/ListAndWatch", NULL, 0);
  ck_assert_int_eq(answer.result.status, GRPC_OK);
  V1beta1__ListAndWatchResponse *list = v1beta1__list_and_watch_response__unpack(
      NULL, answer.size - GRPC_HEAD_SIZE, answer.bytes + GRPC_HEAD_SIZE);
  ck_assert_ptr_nonnull(list);
  free(answer.bytes);
  return list;
}

START_TEST(devices_tell_what_memory_is_near) {
  gpus.at[1].numa = 1;
  V1beta1__ListAndWatchResponse *list = list_devices();
  ck_assert_uint_eq(list->n_devices, 4);
  for (size_t i = 0; i < 2; i++)
    ck_assert_ptr_null(list->devices[i]->topology);
  for (size_t i = 2; i < 4; i++) {
    ck_assert_uint_eq(list->devices[i]->topology->n_nodes, 1);
    ck_assert_int_eq(list->devices[i]->topology->nodes[0]->id, 1);
  }
  v1beta1__list_and_watch_response__free_unpacked(list, NULL);
}
END_TEST

START_TEST(a_uuid_is_written_in_one_way) {
  V1beta1__ListAndWatchResponse *list = list_devices();
  ck_assert_str_eq(list->devices[3]->id, "GPU-00000000-0000-0000-0000-00000000000a.1");
  v1beta1__list_and_watch_response__free_unpacked(list, NULL);
}
END_TEST

START_TEST(gpus_are_named_once_and_rightly) {
  static const char *const wrong[] = {
      "",
      ",",
      "GPU-1",
      "GPU-00000000-0000-0000-0000-000000000001:much",
      "GPU-00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000001",
  };
  struct gpus others;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(gpus_parse(&others, wrong[i]) != 0, "%s", wrong[i]);
  ck_assert_int_eq(gpus_parse(&others, "GPU-00000000-0000-0000-0000-000000000001::/dev/null"), 0);
}
END_TEST

START_TEST(health_is_the_gpus_and_the_daemons) {
  for (int gpu_lives = 0; gpu_lives < 2; gpu_lives++)
    for (int daemon_lives = 0; daemon_lives < 2; daemon_lives++) {
      atomic_store(&gpus.at[0].healthy, gpu_lives);
      daemon_answers = daemon_lives;
      V1beta1__ListAndWatchResponse *list = list_devices();
      ck_assert_str_eq(list->devices[0]->health, gpu_lives && daemon_lives ? "Healthy" : "Unhealthy");
      ck_assert_str_eq(list->devices[2]->health, daemon_lives ? "Healthy" : "Unhealthy");
      v1beta1__list_and_watch_response__free_unpacked(list, NULL);
    }
}
END_TEST

START_TEST(memory_grows_with_what_comes_not_with_what_is_announced) {
  static uint8_t part[1000];
  struct grpc_reader reader = {0};
  uint8_t head[GRPC_HEAD_SIZE];
  grpc_write_head(head, GRPC_MESSAGE_MAX);
  ck_assert_int_eq(grpc_reader_add(&reader, head, sizeof head).status, GRPC_OK);
  ck_assert_uint_eq(reader.room, 0);
  ck_assert_int_eq(grpc_reader_add(&reader, part, sizeof part).status, GRPC_OK);
  ck_assert_uint_le(reader.room, 2 * sizeof part);
  ck_assert_int_eq(grpc_reader_end(&reader).status, GRPC_INTERNAL);
  grpc_reader_free(&reader);
}
END_TEST

START_TEST(what_comes_behind_a_message_is_refused) {
  struct grpc_reader reader = {0};
  uint8_t head[GRPC_HEAD_SIZE];
  grpc_write_head(head, 1);
  ck_assert_int_eq(grpc_reader_add(&reader, head, sizeof head).status, GRPC_OK);
  ck_assert_int_eq(grpc_reader_add(&reader, head, 1).status, GRPC_OK);
  ck_assert_int_eq(grpc_reader_end(&reader).status, GRPC_OK);
  ck_assert_int_eq(grpc_reader_add(&reader, head, 1).status, GRPC_INTERNAL);
  grpc_reader_free(&reader);
}
END_TEST

START_TEST(a_share_has_one_name) {
#define UUID "GPU-00000000-0000-0000-0000-000000000001"
  static char ids[][64] = {UUID ".1", UUID ".01", UUID ".2", UUID ".-0", UUID, "GPU-1.1", ""};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    V1beta1__PreStartContainerRequest request;
    uint8_t bytes[128];
    char *id = ids[i];
    v1beta1__pre_start_container_request__init(&request);
    request.devices_ids = &id;
    request.n_devices_ids = 1;
    size_t size = v1beta1__pre_start_container_request__pack(&request, bytes);
    struct rpc_answer answer = call("/v1beta1.DevicePlugin/PreStartContainer", bytes, size);
    ck_assert_msg(answer.result.status == (i == 0 ? GRPC_OK : GRPC_INVALID_ARGUMENT), "%s", id);
    free(answer.bytes);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {devices_tell_what_memory_is_near,
                                a_uuid_is_written_in_one_way,
                                gpus_are_named_once_and_rightly,
                                health_is_the_gpus_and_the_daemons,
                                memory_grows_with_what_comes_not_with_what_is_announced,
                                what_comes_behind_a_message_is_refused,
                                a_share_has_one_name,
                                NULL};
  return suite_main("plugin_service", tests, set_up, tear_down);
}
