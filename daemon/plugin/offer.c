/* offer.c - keeps a resource registered: whatever the kubelet forgets of it, it is told again. Listens,
 * accepts, and ends connections of which nothing is to be expected. */
#include "plugin/offer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "plugin/rpc_server.h"

#define CONNECTIONS_MAX 8
#define BACKLOG 16
#define PATIENCE_NS (60 * NS_PER_S) /* without an answered call, unless somebody watches */
/* A kubelet that is told again of a resource watches the new connection before or after it ends the old one.
 */
#define UNWATCHED_NS (5 * NS_PER_S)

struct connection {
  struct source source;
  struct timer timer;
  struct list link;
  struct offer *offer;
  struct h2 h2;
  struct rpc_server server;
  uint64_t calls_seen;
};

/* ---- connections ---- */

/* The kubelet takes a resource that it does not watch for gone. */
static void look_for_watchers(struct offer *offer) {
  bool watched = false;
  list_each(node, &offer->connections) {
    watched |= list_entry(node, struct connection, link)->server.watches > 0;
  }
  if (watched == offer->watched)
    return;
  offer->watched = watched;
  offer->unwatched.due_ns = watched ? LOOP_NEVER : clock_now_ns() + UNWATCHED_NS;
}

static void close_connection(struct connection *connection) {
  struct offer *offer = connection->offer;
  loop_remove_timer(&connection->timer);
  loop_remove(offer->loop, &connection->source);
  list_remove(&connection->link);
  offer->connection_count--;
  rpc_server_close(&connection->server);
  free(connection);
  look_for_watchers(offer);
}

/* May end the connection. */
static void pump(struct connection *connection) {
  int err = h2_pump(&connection->h2);
  if (err < 0) {
    log_debug("%s: a connection ends: %s", connection->offer->resource.name, strerror(-err));
    close_connection(connection);
    return;
  }
  loop_change(connection->offer->loop, &connection->source, h2_events(&connection->h2));
  if (connection->server.watches > 0) {
    connection->timer.due_ns = LOOP_NEVER;
  } else if (connection->timer.due_ns == LOOP_NEVER || connection->server.ended != connection->calls_seen) {
    connection->timer.due_ns = clock_now_ns() + PATIENCE_NS;
    connection->calls_seen = connection->server.ended;
  }
  look_for_watchers(connection->offer);
}

static void on_connection(struct source *source, uint32_t events) {
  (void)events;
  pump(list_entry(source, struct connection, source));
}

static void on_patience_over(struct timer *timer, uint64_t now_ns) {
  struct connection *connection = list_entry(timer, struct connection, timer);
  (void)now_ns;
  log_info("%s: a connection without calls is closed", connection->offer->resource.name);
  close_connection(connection);
}

/* Takes the descriptor in any case. 0 or -errno. */
static int add_connection(struct offer *offer, int fd) {
  struct connection *connection =
      offer->connection_count < CONNECTIONS_MAX ? calloc(1, sizeof *connection) : NULL;
  int err = connection ? rpc_server_open(&connection->server, &offer->resource) : -ENOMEM;
  if (err < 0) {
    free(connection);
    close(fd);
    return offer->connection_count < CONNECTIONS_MAX ? err : -EMFILE;
  }
  connection->offer = offer;
  connection->source = (struct source){.fd = fd, .on_event = on_connection};
  connection->h2 = (struct h2){.fd = fd, .session = connection->server.session};
  connection->timer = (struct timer){.due_ns = LOOP_NEVER, .on_due = on_patience_over};
  list_append(&offer->connections, &connection->link);
  loop_add_timer(offer->loop, &connection->timer);
  offer->connection_count++;
  err = loop_add(offer->loop, &connection->source, EPOLLIN);
  if (err < 0)
    close_connection(connection);
  else
    pump(connection);
  return err;
}

/* ---- the socket ---- */

static void on_listener(struct source *source, uint32_t events) {
  struct offer *offer = list_entry(source, struct offer, listener);
  (void)events;
  int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  int err = fd < 0 ? 0 : add_connection(offer, fd);
  if (err < 0)
    log_warn("%s: a connection is refused: %s", offer->resource.name, strerror(-err));
}

/* For root alone, as the kubelet's folder is. */
static int try_listen(struct offer *offer) {
  const char *path = offer->address.sun_path;
  if (unlink(path) < 0 && errno != ENOENT)
    return -errno;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  mode_t before = umask(0077);
  int err = bind(fd, (const struct sockaddr *)&offer->address, sizeof offer->address) < 0 ? -errno : 0;
  umask(before);
  if (err == 0 && (listen(fd, BACKLOG) < 0 || lstat(path, &offer->identity) < 0))
    err = -errno;
  offer->listener.fd = fd;
  if (err == 0)
    err = loop_add(offer->loop, &offer->listener, EPOLLIN);
  if (err < 0)
    loop_remove(offer->loop, &offer->listener);
  return err;
}

static int open_listener(struct offer *offer) {
  int err = try_listen(offer);
  if (err < 0)
    log_error("can't listen on %s: %s", offer->address.sun_path, strerror(-err));
  return err;
}

static bool is_in_place(const struct offer *offer) {
  struct stat now;
  return offer->listener.fd >= 0 && lstat(offer->address.sun_path, &now) == 0 &&
         now.st_dev == offer->identity.st_dev && now.st_ino == offer->identity.st_ino;
}

/* ---- the offer ---- */

/* Listens again if somebody has removed the file, as a kubelet that starts does. Connections stay. */
void offer_renew(struct offer *offer, bool kubelet) {
  bool in_place = is_in_place(offer);
  if (!in_place) {
    loop_remove(offer->loop, &offer->listener);
    if (open_listener(offer) < 0)
      return;
  }
  if (kubelet || !in_place)
    registration_begin(&offer->registration);
}

static void on_unwatched(struct timer *timer, uint64_t now_ns) {
  struct offer *offer = list_entry(timer, struct offer, unwatched);
  timer->due_ns = now_ns + UNWATCHED_NS;
  if (offer->registration.timer.due_ns != LOOP_NEVER)
    return; /* it is under way, or tried again later */
  log_warn("%s is not watched by the kubelet", offer->resource.name);
  offer_renew(offer, true);
}

void offer_refresh(struct offer *offer) {
  struct list *node = offer->connections.next, *next;
  for (; node != &offer->connections; node = next) {
    struct connection *connection = list_entry(node, struct connection, link);
    next = node->next;
    rpc_server_refresh(&connection->server);
    pump(connection);
  }
}

int offer_open(struct offer *offer, struct loop *loop, const char *folder, const char *kubelet_socket) {
  char *path = offer->address.sun_path;
  offer->loop = loop;
  offer->address.sun_family = AF_UNIX;
  offer->listener = (struct source){.fd = -1, .on_event = on_listener};
  list_init(&offer->connections);
  if (snprintf(path, sizeof offer->address.sun_path, "%s/%s", folder, offer->socket_name) >=
      (int)sizeof offer->address.sun_path)
    return -ENAMETOOLONG;
  int err = open_listener(offer);
  if (err < 0)
    return err;
  registration_open(&offer->registration, loop, kubelet_socket, offer->socket_name, offer->resource.name);
  offer->unwatched = (struct timer){.due_ns = clock_now_ns() + UNWATCHED_NS, .on_due = on_unwatched};
  loop_add_timer(loop, &offer->unwatched);
  offer_renew(offer, true);
  return 0;
}

void offer_close(struct offer *offer) {
  registration_close(&offer->registration);
  while (!list_empty(&offer->connections))
    close_connection(list_entry(list_first(&offer->connections), struct connection, link));
  if (is_in_place(offer))
    unlink(offer->address.sun_path);
  loop_remove(offer->loop, &offer->listener);
  loop_remove_timer(&offer->unwatched);
}
