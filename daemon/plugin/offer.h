/* offer.h - a resource that is offered to the kubelet: its socket, its registration, and when to register
 * anew. */
#ifndef GS_PLUGIN_OFFER_H
#define GS_PLUGIN_OFFER_H

#include "plugin/endpoint.h"
#include "plugin/registration.h"

struct offer {
  struct resource resource;
  const char *socket_name; /* in the kubelet's folder */
  struct endpoint endpoint;
  struct registration registration;
  struct timer unwatched; /* due when the kubelet has not been told of devices for too long */
};

/* resource and socket_name are set; the kubelet's socket must live as long. 0, or -errno after a line in the
 * log. */
int offer_open(struct offer *offer, struct loop *loop, const char *folder, const char *kubelet_socket);
void offer_close(struct offer *offer);

/* A kubelet has come. */
void offer_register(struct offer *offer);

/* Files have gone from the kubelet's folder: ours may be among them. */
void offer_renew(struct offer *offer);

#endif
