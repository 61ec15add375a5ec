/* offer.h - a resource that is offered to the kubelet: the socket in its folder that answers for it, the
 * connections to that, its registration, and when to register anew. */
#ifndef GS_PLUGIN_OFFER_H
#define GS_PLUGIN_OFFER_H

#include "kubelet/h2.h"
#include "kubelet/rpc_listener.h"
#include "plugin/service.h"

/* Tells the kubelet of a resource, until it has understood: now, and again after each failure. */
struct registration {
  struct timer timer; /* of the next try, or of the present one's end */
  struct loop *loop;
  const char *kubelet_socket, *endpoint, *resource; /* the endpoint's file name in the kubelet's folder */
  unsigned failures;                                /* in a row */
  /* The call that is under way, if any, over a connection of its own: */
  struct source source;
  struct h2 h2;   /* session NULL: none */
  int64_t status; /* gRPC's; below 0: none has come */
  char text[160]; /* what the kubelet says to it */
  bool ended;
  uint8_t body[GRPC_HEAD_SIZE + 512];
  size_t size, sent; /* of the body */
};

struct offer {
  struct resource resource;
  const char *socket_name; /* in the kubelet's folder */
  struct rpc_listener listener;
  struct timer unwatched; /* due when the kubelet has not been told of devices for too long */
  struct registration registration;
};

/* resource and socket_name are set; the kubelet's socket must live as long. 0, or -errno after a line in the
 * log. */
int offer_open(struct offer *offer, struct loop *loop, const char *folder, const char *kubelet_socket);
void offer_close(struct offer *offer);

/* A kubelet has come; or else files have gone from its folder: ours may be among them. */
void offer_renew(struct offer *offer, bool kubelet);

/* Devices have changed. */
void offer_refresh(struct offer *offer);

#endif
