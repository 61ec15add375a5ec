/* offer.c - keeps a resource registered: whatever the kubelet forgets of it, it is told again. */
#include "plugin/offer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "deviceplugin.pb-c.h"

#define PATIENCE_NS (60 * NS_PER_S) /* without an answered call, unless somebody watches */
/* A kubelet that is told again of a resource watches the new connection before or after it ends the old one.
 */
#define UNWATCHED_NS (5 * NS_PER_S)

#define API_VERSION "v1beta1"
#define CALL_PATIENCE_NS                                                                                     \
  (15 * NS_PER_S) /* the kubelet connects to us before it answers, for which it takes up to 10 s */
#define PAUSE_FIRST_NS (NS_PER_S / 2)
#define PAUSE_DOUBLINGS 6 /* up to 32 s */

/* ---- the registration: gRPC over HTTP/2, the side that asks; what is answered but the status does not
 * matter ----
 */

static void end_call(struct registration *registration) {
  loop_remove(registration->loop, &registration->source);
  nghttp2_session_del(registration->h2.session);
  registration->h2 = (struct h2){.fd = -1};
}

/* Later again. */
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

static void on_answer(struct source *source, uint32_t events) {
  struct registration *registration = list_entry(source, struct registration, source);
  (void)events;
  int err = h2_pump(&registration->h2);
  if (registration->ended && registration->status == GRPC_OK) {
    end_call(registration);
    registration->failures = 0;
    registration->timer.due_ns = LOOP_NEVER;
    log_info("%s is registered", registration->resource);
  } else if (registration->ended && registration->status > GRPC_OK) {
    fail(registration, "the kubelet refuses it", registration->text);
  } else if (err < 0 || registration->ended) {
    fail(registration, strerror(err < 0 ? -err : EPROTO), "");
  } else {
    loop_change(registration->loop, source, h2_events(&registration->h2));
  }
}

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *context) {
  struct registration *registration = context;
  size_t left = registration->size - registration->sent, now = left < room ? left : room;
  (void)session, (void)stream, (void)source;
  memcpy(to, registration->body + registration->sent, now);
  registration->sent += now;
  if (registration->sent == registration->size)
    *flags |= NGHTTP2_DATA_FLAG_EOF;
  return (ssize_t)now;
}

static void copy_value(char *to, size_t room, const uint8_t *value, size_t size) {
  size_t length = size < room ? size : room - 1;
  memcpy(to, value, length);
  to[length] = '\0';
}

/* Of headers and trailers alike. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
  struct registration *registration = context;
  char number[8];
  (void)session, (void)frame, (void)flags;
  copy_value(number, sizeof number, value, value_size);
  if (name_size == 11 && memcmp(name, "grpc-status", 11) == 0 &&
      parse_integer(number, 0, 9999, &registration->status) != 0)
    registration->status = -1;
  else if (name_size == 12 && memcmp(name, "grpc-message", 12) == 0)
    copy_value(registration->text, sizeof registration->text, value, value_size);
  return 0;
}

static int on_stream_closed(nghttp2_session *session, int32_t stream, uint32_t code, void *context) {
  (void)session, (void)stream, (void)code;
  ((struct registration *)context)->ended = true;
  return 0;
}

static int write_body(struct registration *registration) {
  static char version[] = API_VERSION;
  V1beta1__DevicePluginOptions options;
  V1beta1__RegisterRequest request;
  v1beta1__register_request__init(&request);
  v1beta1__device_plugin_options__init(&options);
  options.get_preferred_allocation_available = true;
  request.version = version;
  request.endpoint = (char *)(uintptr_t)registration->endpoint;
  request.resource_name = (char *)(uintptr_t)registration->resource;
  request.options = &options;
  size_t size = v1beta1__register_request__get_packed_size(&request);
  if (size > sizeof registration->body - GRPC_HEAD_SIZE)
    return -EMSGSIZE;
  grpc_write_head(registration->body, (uint32_t)size);
  v1beta1__register_request__pack(&request, registration->body + GRPC_HEAD_SIZE);
  registration->size = GRPC_HEAD_SIZE + size;
  return 0;
}

static int open_session(struct registration *registration) {
  nghttp2_session_callbacks *callbacks;
  if (nghttp2_session_callbacks_new(&callbacks) != 0)
    return -ENOMEM;
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_closed);
  int err = nghttp2_session_client_new(&registration->h2.session, callbacks, registration);
  nghttp2_session_callbacks_del(callbacks);
  if (err != 0)
    return -ENOMEM;
  nghttp2_nv headers[] = {
      H2_HEADER(":method", "POST"),
      H2_HEADER(":scheme", "http"),
      H2_HEADER(":path", "/" API_VERSION ".Registration/Register"),
      H2_HEADER(":authority", "localhost"),
      H2_HEADER("content-type", "application/grpc"),
      H2_HEADER("te", "trailers"),
      H2_HEADER("user-agent", "gpushare-device-plugin/" GPUSHARE_VERSION),
  };
  nghttp2_session *session = registration->h2.session;
  nghttp2_settings_entry no_push = {NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
  nghttp2_data_provider body = {.read_callback = read_body};
  if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &no_push, 1) != 0 ||
      nghttp2_submit_request(session, NULL, headers, sizeof headers / sizeof *headers, &body, NULL) < 0)
    return -ENOMEM;
  return 0;
}

/* The events come when the socket is writable. */
static int open_socket(struct registration *registration) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(registration->kubelet_socket) >= sizeof address.sun_path)
    return -ENAMETOOLONG;
  strcpy(address.sun_path, registration->kubelet_socket);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  registration->source.fd = registration->h2.fd = fd;
  if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
    return -errno;
  return loop_add(registration->loop, &registration->source, EPOLLOUT);
}

static void try_now(struct registration *registration) {
  end_call(registration);
  registration->status = -1;
  registration->ended = false;
  registration->sent = 0;
  *registration->text = '\0';
  int err = write_body(registration);
  if (err == 0)
    err = open_session(registration);
  if (err == 0)
    err = open_socket(registration);
  if (err < 0)
    fail(registration, "can't reach the kubelet", strerror(-err));
  else
    registration->timer.due_ns = clock_now_ns() + CALL_PATIENCE_NS;
}

static void on_try_due(struct timer *timer, uint64_t now_ns) {
  struct registration *registration = list_entry(timer, struct registration, timer);
  (void)now_ns;
  if (registration->h2.session)
    fail(registration, "the kubelet does not answer", "");
  else
    try_now(registration);
}

static void registration_open(struct registration *registration, struct loop *loop,
                              const char *kubelet_socket, const char *endpoint, const char *resource) {
  *registration = (struct registration){.loop = loop,
                                        .kubelet_socket = kubelet_socket,
                                        .endpoint = endpoint,
                                        .resource = resource,
                                        .source = {.fd = -1, .on_event = on_answer},
                                        .h2.fd = -1,
                                        .timer = {.due_ns = LOOP_NEVER, .on_due = on_try_due}};
  loop_add_timer(loop, &registration->timer);
}

static void registration_begin(struct registration *registration) {
  registration->failures = 0;
  try_now(registration);
}

static void registration_close(struct registration *registration) {
  loop_remove_timer(&registration->timer);
  end_call(registration);
}

/* ---- the offer ---- */

void offer_renew(struct offer *offer, bool kubelet) {
  int renewed = rpc_listener_renew(&offer->listener);
  if (renewed > 0 || (renewed == 0 && kubelet))
    registration_begin(&offer->registration);
}

/* The kubelet takes a resource that it does not watch for gone. */
static void on_watched(struct rpc_listener *listener) {
  struct offer *offer = list_entry(listener, struct offer, listener);
  offer->unwatched.due_ns = listener->watched ? LOOP_NEVER : clock_now_ns() + UNWATCHED_NS;
}

static void on_unwatched(struct timer *timer, uint64_t now_ns) {
  struct offer *offer = list_entry(timer, struct offer, unwatched);
  timer->due_ns = now_ns + UNWATCHED_NS;
  if (offer->registration.timer.due_ns != LOOP_NEVER)
    return; /* it is under way, or tried again later */
  log_warn("%s is not watched by the kubelet", offer->resource.name);
  offer_renew(offer, true);
}

void offer_refresh(struct offer *offer) { rpc_listener_refresh(&offer->listener); }

int offer_open(struct offer *offer, struct loop *loop, const char *folder, const char *kubelet_socket) {
  offer->listener = (struct rpc_listener){.loop = loop,
                                          .service = service_of(&offer->resource),
                                          .label = offer->resource.name,
                                          .patience_ns = PATIENCE_NS,
                                          .on_watched = on_watched};
  int err = rpc_listener_open(&offer->listener, folder, offer->socket_name);
  if (err < 0)
    return err;
  registration_open(&offer->registration, loop, kubelet_socket, offer->socket_name, offer->resource.name);
  offer->unwatched = (struct timer){.due_ns = clock_now_ns() + UNWATCHED_NS, .on_due = on_unwatched};
  loop_add_timer(loop, &offer->unwatched);
  offer_renew(offer, true);
  return 0;
}

void offer_close(struct offer *offer) {
  registration_close(&offer->registration);
  rpc_listener_close(&offer->listener);
  loop_remove_timer(&offer->unwatched);
}
