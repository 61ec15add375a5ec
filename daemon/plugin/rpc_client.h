/* rpc_client.h - one call of one method over a connection of its own, asynchronously. */
#ifndef GS_PLUGIN_RPC_CLIENT_H
#define GS_PLUGIN_RPC_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/loop.h"

struct rpc_client;

#define RPC_CLIENT_TEXT_SIZE 160

/* How it ended: a gRPC status, or -errno, and what the other side says to it, which is the call's. The call
 * is still there: rpc_client_close ends it. */
typedef void rpc_client_done(void *owner, int result, const char *text);

/* Call `path` at the socket with `message`, whose bytes are copied. The call, or NULL and -errno in *err. */
struct rpc_client *rpc_client_open(struct loop *loop, const char *socket, const char *path,
                                   const uint8_t *message, size_t size, rpc_client_done *done, void *owner,
                                   int *err);

/* End it, done or not. */
void rpc_client_close(struct rpc_client *client);

#endif
