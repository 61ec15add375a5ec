/* registration.c - Registration/Register, with a deadline, and again later if it fails. */
#include "plugin/registration.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "deviceplugin.pb-c.h"
#include "plugin/grpc.h"
#include "plugin/rpc_client.h"

#define API_VERSION "v1beta1"
#define PATIENCE_NS                                                                                          \
  (15 * NS_PER_S) /* the kubelet connects to us before it answers, for which it takes up to 10 s */
#define PAUSE_FIRST_NS (NS_PER_S / 2)
#define PAUSE_DOUBLINGS 6 /* up to 32 s */

static void end_call(struct registration *registration) {
  if (registration->call)
    rpc_client_close(registration->call);
  registration->call = NULL;
}

/* Later again. text may be the call's. */
static void fail(struct registration *registration, const char *why, const char *text) {
  const char *gap = *text ? ": " : "";
  if (registration->failures == 0)
    log_warn("%s is not registered yet: %s%s%s", registration->resource, why, gap, text);
  else
    log_debug("%s is still not registered: %s%s%s", registration->resource, why, gap, text);
  end_call(registration);
  registration->timer.due_ns = clock_now_ns() + (PAUSE_FIRST_NS << registration->failures);
  registration->failures += registration->failures < PAUSE_DOUBLINGS;
}

static void on_done(void *owner, int result, const char *text) {
  struct registration *registration = owner;
  if (result < 0) {
    fail(registration, strerror(-result), "");
  } else if (result != GRPC_OK) {
    fail(registration, "the kubelet refuses it", text);
  } else {
    end_call(registration);
    registration->failures = 0;
    registration->timer.due_ns = LOOP_NEVER;
    log_info("%s is registered", registration->resource);
  }
}

static V1beta1__RegisterRequest make_request(const struct registration *registration,
                                             V1beta1__DevicePluginOptions *options) {
  static char version[] = API_VERSION;
  V1beta1__RegisterRequest request;
  v1beta1__register_request__init(&request);
  v1beta1__device_plugin_options__init(options);
  options->get_preferred_allocation_available = true;
  request.version = version;
  request.endpoint = (char *)(uintptr_t)registration->endpoint;
  request.resource_name = (char *)(uintptr_t)registration->resource;
  request.options = options;
  return request;
}

static void try_now(struct registration *registration) {
  uint8_t packed[512];
  V1beta1__DevicePluginOptions options;
  V1beta1__RegisterRequest request = make_request(registration, &options);
  int err = -EMSGSIZE;
  end_call(registration);
  if (v1beta1__register_request__get_packed_size(&request) <= sizeof packed)
    registration->call = rpc_client_open(
        registration->loop, registration->kubelet_socket, "/" API_VERSION ".Registration/Register", packed,
        v1beta1__register_request__pack(&request, packed), on_done, registration, &err);
  if (registration->call)
    registration->timer.due_ns = clock_now_ns() + PATIENCE_NS;
  else
    fail(registration, "can't reach the kubelet", strerror(-err));
}

static void on_due(struct timer *timer, uint64_t now_ns) {
  struct registration *registration = list_entry(timer, struct registration, timer);
  (void)now_ns;
  if (registration->call)
    fail(registration, "the kubelet does not answer", "");
  else
    try_now(registration);
}

void registration_open(struct registration *registration, struct loop *loop, const char *kubelet_socket,
                       const char *endpoint, const char *resource) {
  *registration = (struct registration){
      .loop = loop, .kubelet_socket = kubelet_socket, .endpoint = endpoint, .resource = resource};
  registration->timer = (struct timer){.due_ns = LOOP_NEVER, .on_due = on_due};
  loop_add_timer(loop, &registration->timer);
}

void registration_begin(struct registration *registration) {
  registration->failures = 0;
  try_now(registration);
}

void registration_close(struct registration *registration) {
  loop_remove_timer(&registration->timer);
  end_call(registration);
}
