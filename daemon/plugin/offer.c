/* offer.c - keeps a resource registered: whatever the kubelet forgets of it, it is told again. */
#include "plugin/offer.h"

#include <errno.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"

/* A kubelet that is told again of a resource watches the new connection before or after it ends the old one.
 */
#define UNWATCHED_NS (5 * NS_PER_S)

/* The kubelet takes a resource that it does not watch for gone. */
static void on_watched(struct endpoint *endpoint) {
  struct offer *offer = list_entry(endpoint, struct offer, endpoint);
  offer->unwatched.due_ns = endpoint->watched ? LOOP_NEVER : clock_now_ns() + UNWATCHED_NS;
}

static void on_unwatched(struct timer *timer, uint64_t now_ns) {
  struct offer *offer = list_entry(timer, struct offer, unwatched);
  timer->due_ns = now_ns + UNWATCHED_NS;
  if (offer->registration.timer.due_ns != LOOP_NEVER)
    return; /* it is under way, or tried again later */
  log_warn("%s is not watched by the kubelet", offer->resource.name);
  offer_register(offer);
}

int offer_open(struct offer *offer, struct loop *loop, const char *folder, const char *kubelet_socket) {
  char path[sizeof offer->endpoint.address.sun_path];
  if (snprintf(path, sizeof path, "%s/%s", folder, offer->socket_name) >= (int)sizeof path)
    return -ENAMETOOLONG;
  offer->endpoint.on_watched = on_watched;
  int err = endpoint_open(&offer->endpoint, loop, &offer->resource, path);
  if (err < 0)
    return err;
  registration_open(&offer->registration, loop, kubelet_socket, offer->socket_name, offer->resource.name);
  offer->unwatched = (struct timer){.due_ns = clock_now_ns() + UNWATCHED_NS, .on_due = on_unwatched};
  loop_add_timer(loop, &offer->unwatched);
  offer_register(offer);
  return 0;
}

void offer_close(struct offer *offer) {
  registration_close(&offer->registration);
  endpoint_close(&offer->endpoint);
  loop_remove_timer(&offer->unwatched);
}

void offer_register(struct offer *offer) {
  if (endpoint_renew(&offer->endpoint) >= 0)
    registration_begin(&offer->registration);
}

void offer_renew(struct offer *offer) {
  if (endpoint_renew(&offer->endpoint) > 0)
    registration_begin(&offer->registration);
}
