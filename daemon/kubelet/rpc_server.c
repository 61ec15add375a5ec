/* rpc_server.c - gRPC over HTTP/2, the side that answers.
 *
 * A call is a stream: headers, a body of one message, then headers, messages and trailers back. What is wrong
 * with a call ends that call, with the status that gRPC has for it; what is wrong with the connection,
 * nghttp2 notices. */
#include "kubelet/rpc_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_SIZE 80
#define HEADER_LIST_MAX 16384
#define ROOM_FIRST 256 /* of a message */

/* ---- a body of one message, as of all methods here ---- */

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

/* ---- calls ---- */

struct call {
  struct list link;
  struct rpc_server *server;
  int32_t stream;
  char path[PATH_MAX_SIZE];
  bool posted, is_grpc; /* as the headers say */
  bool answered;        /* its answer has begun */
  bool watching;        /* and will go on: */
  bool fresh;           /* is to be made anew */
  const struct rpc_method *method;
  struct grpc_reader request;
  struct rpc_answer answer;
  size_t sent; /* of the answer's bytes */
};

/* ---- answering ---- */

static int fail_session(int err) { return err == NGHTTP2_ERR_NOMEM ? NGHTTP2_ERR_CALLBACK_FAILURE : 0; }

static int refuse_http(struct call *call, const char *status) {
  nghttp2_nv headers[] = {H2_HEADER(":status", status)};
  call->answered = true;
  return fail_session(nghttp2_submit_response(call->server->session, call->stream, headers, 1, NULL));
}

/* An answer that consists of nothing else. */
static int refuse(struct call *call, struct grpc_result result) {
  char status[12];
  snprintf(status, sizeof status, "%d", result.status);
  nghttp2_nv headers[] = {H2_HEADER(":status", "200"), H2_HEADER("content-type", "application/grpc"),
                          H2_HEADER("grpc-status", status), H2_HEADER("grpc-message", result.text)};
  call->answered = true;
  return fail_session(nghttp2_submit_response(call->server->session, call->stream, headers, 4, NULL));
}

static void drop_answer(struct call *call) {
  free(call->answer.bytes);
  call->answer = (struct rpc_answer){0};
  call->sent = 0;
}

static struct grpc_result make_answer(struct call *call) {
  call->fresh = false;
  call->answer = rpc_call(call->server->service, call->method, call->request.message, call->request.size);
  return call->answer.result;
}

/* nghttp2 asks for the next bytes of the body. */
static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *context) {
  struct call *call = source->ptr;
  (void)session, (void)stream, (void)context;
  if (call->sent == call->answer.size)
    drop_answer(call);
  if (call->answer.size == 0 && call->fresh && make_answer(call).status != GRPC_OK)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  size_t left = call->answer.size - call->sent, now = left < room ? left : room;
  if (now == 0)
    return NGHTTP2_ERR_DEFERRED;
  memcpy(to, call->answer.bytes + call->sent, now);
  call->sent += now;
  if (call->sent < call->answer.size || call->watching)
    return (ssize_t)now;
  *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
  nghttp2_nv trailers[] = {H2_HEADER("grpc-status", "0")};
  int err = nghttp2_submit_trailer(call->server->session, call->stream, trailers, 1);
  return err < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : (ssize_t)now;
}

static int answer(struct call *call) {
  nghttp2_nv headers[] = {H2_HEADER(":status", "200"), H2_HEADER("content-type", "application/grpc")};
  nghttp2_data_provider body = {.source.ptr = call, .read_callback = read_answer};
  call->answered = true;
  call->watching = call->method->lasts;
  call->server->watches += call->watching;
  return fail_session(nghttp2_submit_response(call->server->session, call->stream, headers, 2, &body));
}

/* ---- asking ---- */

static int on_headers(struct call *call) {
  if (!call->posted)
    return refuse_http(call, "405");
  if (!call->is_grpc)
    return refuse_http(call, "415");
  call->method = rpc_find(call->server->service, call->path);
  return call->method ? 0 : refuse(call, (struct grpc_result){GRPC_UNIMPLEMENTED, "unknown method"});
}

static void drop_request(struct call *call) {
  call->server->buffered_bytes -= call->request.size;
  grpc_reader_free(&call->request);
}

/* It is whole, or will never be. */
static int on_request(struct call *call) {
  struct grpc_result result = grpc_reader_end(&call->request);
  if (call->method->lasts && call->server->watches == RPC_WATCHES_MAX)
    result = (struct grpc_result){GRPC_RESOURCE_EXHAUSTED, "too many of these at the same time"};
  if (result.status == GRPC_OK)
    result = make_answer(call);
  drop_request(call); /* that of a lasting call is empty */
  return result.status == GRPC_OK ? answer(call) : refuse(call, result);
}

/* ---- what nghttp2 tells ---- */

static struct call *call_of(nghttp2_session *session, int32_t stream) {
  return nghttp2_session_get_stream_user_data(session, stream);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  struct rpc_server *server = context;
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
    return 0;
  struct call *call = server->call_count < RPC_CALLS_MAX ? calloc(1, sizeof *call) : NULL;
  if (!call)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  call->server = server;
  call->stream = frame->hd.stream_id;
  list_append(&server->calls, &call->link);
  server->call_count++;
  return nghttp2_session_set_stream_user_data(session, call->stream, call);
}

static bool begins(const uint8_t *bytes, size_t size, const char *text) {
  return size >= strlen(text) && memcmp(bytes, text, strlen(text)) == 0;
}

static bool is(const uint8_t *bytes, size_t size, const char *text) {
  return size == strlen(text) && begins(bytes, size, text);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
  struct call *call = call_of(session, frame->hd.stream_id);
  (void)flags, (void)context;
  if (!call || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
    return 0;
  if (is(name, name_size, ":method"))
    call->posted = is(value, value_size, "POST");
  else if (is(name, name_size, "content-type"))
    call->is_grpc = begins(value, value_size, "application/grpc");
  else if (is(name, name_size, ":path") && value_size < sizeof call->path)
    memcpy(call->path, value, value_size); /* a longer one stays empty: unknown */
  return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t size,
                   void *context) {
  struct call *call = call_of(session, stream);
  (void)flags, (void)context;
  if (!call || call->answered)
    return 0;
  struct rpc_server *server = call->server;
  size_t before = call->request.size;
  struct grpc_result result = {GRPC_RESOURCE_EXHAUSTED, "too many requests at the same time"};
  if (size <= RPC_BUFFERED_MAX - server->buffered_bytes)
    result = grpc_reader_add(&call->request, bytes, size);
  server->buffered_bytes += call->request.size - before;
  if (result.status == GRPC_OK)
    return 0;
  drop_request(call);
  return refuse(call, result);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  struct call *call = call_of(session, frame->hd.stream_id);
  int result = 0;
  (void)context;
  if (!call || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
    return 0;
  if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
    result = on_headers(call);
  if (result == 0 && !call->answered && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
    result = on_request(call);
  return result;
}

/* Who goes on sending after the end of the answer is told that nobody listens. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
  (void)context;
  if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
      (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
    return 0;
  if (nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) != 0)
    return 0;
  return fail_session(
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR));
}

static void end_call(struct call *call) {
  struct rpc_server *server = call->server;
  server->watches -= call->watching;
  server->call_count--;
  server->ended++;
  list_remove(&call->link);
  drop_request(call);
  drop_answer(call);
  free(call);
}

static int on_stream_closed(nghttp2_session *session, int32_t stream, uint32_t code, void *context) {
  struct call *call = call_of(session, stream);
  (void)code, (void)context;
  if (call)
    end_call(call);
  return 0;
}

/* ---- the session ---- */

/* Kubelets before 1.26 say the socket's path for :authority, which is none; nghttp2 would refuse that, so it
 * leaves all headers to us. */
int rpc_server_open(struct rpc_server *server, const struct rpc_service *service) {
  static const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, RPC_CALLS_MAX},
                                                    {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_MAX},
                                                    {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
  nghttp2_session_callbacks *callbacks = NULL;
  nghttp2_option *option = NULL;
  *server = (struct rpc_server){.service = service};
  list_init(&server->calls);
  int err = nghttp2_session_callbacks_new(&callbacks);
  if (err == 0)
    err = nghttp2_option_new(&option);
  if (err == 0) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_closed);
    nghttp2_option_set_no_http_messaging(option, 1);
    err = nghttp2_session_server_new2(&server->session, callbacks, server, option);
  }
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  if (err == 0 && (err = nghttp2_submit_settings(server->session, NGHTTP2_FLAG_NONE, settings, 3)) != 0)
    nghttp2_session_del(server->session);
  return err == 0 ? 0 : -ENOMEM;
}

void rpc_server_close(struct rpc_server *server) {
  nghttp2_session_del(server->session);
  while (!list_empty(&server->calls))
    end_call(list_entry(list_first(&server->calls), struct call, link));
}

void rpc_server_refresh(struct rpc_server *server) {
  list_each(node, &server->calls) {
    struct call *call = list_entry(node, struct call, link);
    if (!call->watching)
      continue;
    call->fresh = true;
    nghttp2_session_resume_data(server->session, call->stream);
  }
}
