/* rpc_server.h - one connection of the kubelet's, above the socket: HTTP/2 requests become calls of the
 * service. */
#ifndef GS_PLUGIN_RPC_SERVER_H
#define GS_PLUGIN_RPC_SERVER_H

#include <nghttp2/nghttp2.h>

#include "common/list.h"
#include "plugin/service.h"

#define RPC_CALLS_MAX 64                   /* at the same time */
#define RPC_WATCHES_MAX 4                  /* of them lasting */
#define RPC_BUFFERED_MAX ((size_t)2 << 20) /* bytes of requests that are not whole yet */

struct rpc_server {
  nghttp2_session *session;
  const struct resource *resource;
  struct list calls;
  unsigned call_count;
  size_t buffered_bytes;
  unsigned watches; /* calls that last */
  uint64_t ended;   /* calls so far */
};

/* 0 or -ENOMEM. The struct must stay where it is. */
int rpc_server_open(struct rpc_server *server, const struct resource *resource);

void rpc_server_close(struct rpc_server *server);

/* What lasting calls answer has changed: they answer again, as soon as what they have said is read. */
void rpc_server_refresh(struct rpc_server *server);

#endif
