/* rpc_server.h - one connection of the kubelet's, above the socket: HTTP/2 requests become calls of the
 * service. */
#ifndef GS_KUBELET_RPC_SERVER_H
#define GS_KUBELET_RPC_SERVER_H

#include <nghttp2/nghttp2.h>

#include "common/list.h"
#include "kubelet/rpc_method.h"

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

/* ---- the connection ---- */

#define RPC_CALLS_MAX 64                   /* at the same time */
#define RPC_WATCHES_MAX 4                  /* of them lasting */
#define RPC_BUFFERED_MAX ((size_t)2 << 20) /* bytes of requests that are not whole yet */

struct rpc_server {
  nghttp2_session *session;
  const struct rpc_service *service;
  struct list calls;
  unsigned call_count;
  size_t buffered_bytes;
  unsigned watches; /* calls that last */
  uint64_t ended;   /* calls so far */
};

/* 0 or -ENOMEM. The struct must stay where it is. */
int rpc_server_open(struct rpc_server *server, const struct rpc_service *service);

void rpc_server_close(struct rpc_server *server);

/* What lasting calls answer has changed: they answer again, as soon as what they have said is read. */
void rpc_server_refresh(struct rpc_server *server);

#endif
