/* endpoint.h - the socket in the kubelet's folder that answers for a resource, and the connections to it. */
#ifndef GS_PLUGIN_ENDPOINT_H
#define GS_PLUGIN_ENDPOINT_H

#include <sys/stat.h>
#include <sys/un.h>

#include "plugin/loop.h"
#include "plugin/resource.h"

#define ENDPOINT_CONNECTIONS_MAX 8

struct endpoint {
  struct source source;
  struct loop *loop;
  const struct resource *resource;
  struct sockaddr_un address;
  struct stat identity; /* of the file */
  struct list connections;
  unsigned connection_count;
  bool watched;                                  /* somebody is told of changes of the devices */
  void (*on_watched)(struct endpoint *endpoint); /* that has changed */
};

/* Listen on `path`, in place of what is there. on_watched is set. 0, or -errno after a line in the log. */
int endpoint_open(struct endpoint *endpoint, struct loop *loop, const struct resource *resource,
                  const char *path);

/* Listen again if somebody has removed the file, as a kubelet that starts does. 1: done; 0: it is there;
 * -errno as above. Connections stay. */
int endpoint_renew(struct endpoint *endpoint);

/* Devices have changed. */
void endpoint_refresh(struct endpoint *endpoint);

void endpoint_close(struct endpoint *endpoint);

#endif
