/* endpoint.c - listens, accepts, and ends connections of which nothing is to be expected. */
#include "plugin/endpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "plugin/h2.h"
#include "plugin/rpc_server.h"

#define BACKLOG 16
#define PATIENCE_NS (60 * NS_PER_S) /* without an answered call, unless somebody watches */

struct connection {
  struct source source;
  struct timer timer;
  struct list link;
  struct endpoint *endpoint;
  struct h2 h2;
  struct rpc_server server;
  uint64_t calls_seen;
};

/* ---- connections ---- */

static void look_for_watchers(struct endpoint *endpoint) {
  bool watched = false;
  list_each(node, &endpoint->connections) {
    watched |= list_entry(node, struct connection, link)->server.watches > 0;
  }
  if (watched == endpoint->watched)
    return;
  endpoint->watched = watched;
  endpoint->on_watched(endpoint);
}

static void close_connection(struct connection *connection) {
  struct endpoint *endpoint = connection->endpoint;
  loop_remove_timer(&connection->timer);
  loop_remove(endpoint->loop, &connection->source);
  list_remove(&connection->link);
  endpoint->connection_count--;
  rpc_server_close(&connection->server);
  free(connection);
  look_for_watchers(endpoint);
}

static void set_patience(struct connection *connection) {
  if (connection->server.watches > 0) {
    connection->timer.due_ns = LOOP_NEVER;
  } else if (connection->timer.due_ns == LOOP_NEVER || connection->server.ended != connection->calls_seen) {
    connection->timer.due_ns = clock_now_ns() + PATIENCE_NS;
    connection->calls_seen = connection->server.ended;
  }
}

/* May end the connection. */
static void pump(struct connection *connection) {
  int err = h2_pump(&connection->h2);
  if (err < 0) {
    log_debug("%s: a connection ends: %s", connection->endpoint->resource->name, strerror(-err));
    close_connection(connection);
    return;
  }
  loop_change(connection->endpoint->loop, &connection->source, h2_events(&connection->h2));
  set_patience(connection);
  look_for_watchers(connection->endpoint);
}

static void on_connection(struct source *source, uint32_t events) {
  (void)events;
  pump(list_entry(source, struct connection, source));
}

static void on_patience_over(struct timer *timer, uint64_t now_ns) {
  struct connection *connection = list_entry(timer, struct connection, timer);
  (void)now_ns;
  log_info("%s: a connection without calls is closed", connection->endpoint->resource->name);
  close_connection(connection);
}

/* Takes the descriptor in any case. 0 or -errno. */
static int add_connection(struct endpoint *endpoint, int fd) {
  struct connection *connection = calloc(1, sizeof *connection);
  int err = connection ? rpc_server_open(&connection->server, endpoint->resource) : -ENOMEM;
  if (err < 0) {
    free(connection);
    close(fd);
    return err;
  }
  connection->endpoint = endpoint;
  connection->source = (struct source){.fd = fd, .on_event = on_connection};
  connection->h2 = (struct h2){.fd = fd, .session = connection->server.session};
  connection->timer = (struct timer){.due_ns = LOOP_NEVER, .on_due = on_patience_over};
  list_append(&endpoint->connections, &connection->link);
  loop_add_timer(endpoint->loop, &connection->timer);
  endpoint->connection_count++;
  err = loop_add(endpoint->loop, &connection->source, EPOLLIN);
  if (err < 0)
    close_connection(connection);
  else
    pump(connection);
  return err;
}

static void on_listener(struct source *source, uint32_t events) {
  struct endpoint *endpoint = list_entry(source, struct endpoint, source);
  (void)events;
  int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0)
    return;
  int err = -EMFILE;
  if (endpoint->connection_count < ENDPOINT_CONNECTIONS_MAX)
    err = add_connection(endpoint, fd);
  else
    close(fd);
  if (err < 0)
    log_warn("%s: a connection is refused: %s", endpoint->resource->name, strerror(-err));
}

/* ---- the socket ---- */

/* The kubelet's folder is root's alone, so is the socket. */
static int bind_for_root(int fd, const struct sockaddr_un *address) {
  mode_t before = umask(0077);
  int err = bind(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? -errno : 0;
  umask(before);
  return err;
}

static int open_listener(struct endpoint *endpoint) {
  const char *path = endpoint->address.sun_path;
  if (unlink(path) < 0 && errno != ENOENT)
    return -errno;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int err = fd < 0 ? -errno : bind_for_root(fd, &endpoint->address);
  if (err == 0 && (listen(fd, BACKLOG) < 0 || lstat(path, &endpoint->identity) < 0))
    err = -errno;
  endpoint->source.fd = fd;
  if (err == 0)
    err = loop_add(endpoint->loop, &endpoint->source, EPOLLIN);
  if (err < 0)
    loop_remove(endpoint->loop, &endpoint->source);
  return err;
}

static int listen_or_complain(struct endpoint *endpoint) {
  int err = open_listener(endpoint);
  if (err < 0)
    log_error("can't listen on %s: %s", endpoint->address.sun_path, strerror(-err));
  return err;
}

int endpoint_open(struct endpoint *endpoint, struct loop *loop, const struct resource *resource,
                  const char *path) {
  endpoint->loop = loop;
  endpoint->resource = resource;
  endpoint->address.sun_family = AF_UNIX;
  endpoint->source = (struct source){.fd = -1, .on_event = on_listener};
  endpoint->connection_count = 0;
  endpoint->watched = false;
  list_init(&endpoint->connections);
  if (strlen(path) >= sizeof endpoint->address.sun_path) {
    log_error("the path of the socket is too long: %s", path);
    return -ENAMETOOLONG;
  }
  strcpy(endpoint->address.sun_path, path);
  return listen_or_complain(endpoint);
}

static bool is_in_place(const struct endpoint *endpoint) {
  struct stat now;
  return endpoint->source.fd >= 0 && lstat(endpoint->address.sun_path, &now) == 0 &&
         now.st_dev == endpoint->identity.st_dev && now.st_ino == endpoint->identity.st_ino;
}

int endpoint_renew(struct endpoint *endpoint) {
  if (is_in_place(endpoint))
    return 0;
  loop_remove(endpoint->loop, &endpoint->source);
  int err = listen_or_complain(endpoint);
  return err < 0 ? err : 1;
}

void endpoint_refresh(struct endpoint *endpoint) {
  struct list *node = endpoint->connections.next, *next;
  for (; node != &endpoint->connections; node = next) {
    struct connection *connection = list_entry(node, struct connection, link);
    next = node->next;
    rpc_server_refresh(&connection->server);
    pump(connection);
  }
}

void endpoint_close(struct endpoint *endpoint) {
  while (!list_empty(&endpoint->connections))
    close_connection(list_entry(list_first(&endpoint->connections), struct connection, link));
  if (is_in_place(endpoint))
    unlink(endpoint->address.sun_path);
  loop_remove(endpoint->loop, &endpoint->source);
}
