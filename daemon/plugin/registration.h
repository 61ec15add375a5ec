/* registration.h - tells the kubelet of a resource, until it has understood. */
#ifndef GS_PLUGIN_REGISTRATION_H
#define GS_PLUGIN_REGISTRATION_H

#include "plugin/loop.h"

struct rpc_client;

struct registration {
  struct timer timer; /* of the next try, or of the present one's end */
  struct loop *loop;
  const char *kubelet_socket, *endpoint, *resource; /* the endpoint's file name in the kubelet's folder */
  struct rpc_client *call;                          /* NULL: none is under way */
  unsigned failures;                                /* in a row */
};

/* The strings must live as long. */
void registration_open(struct registration *registration, struct loop *loop, const char *kubelet_socket,
                       const char *endpoint, const char *resource);

/* Now, and again after each failure. */
void registration_begin(struct registration *registration);

void registration_close(struct registration *registration);

#endif
