/* registration.h - tells the kubelet of a resource, until it has understood. */
#ifndef GS_PLUGIN_REGISTRATION_H
#define GS_PLUGIN_REGISTRATION_H

#include "plugin/grpc.h"
#include "plugin/loop.h"

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

/* The strings must live as long. */
void registration_open(struct registration *registration, struct loop *loop, const char *kubelet_socket,
                       const char *endpoint, const char *resource);

/* Now, and again after each failure. */
void registration_begin(struct registration *registration);

void registration_close(struct registration *registration);

#endif
