/* rpc_listener.c - listens, accepts, and ends connections of which nothing is to be expected. */
#include "kubelet/rpc_listener.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "kubelet/h2.h"
#include "kubelet/rpc_server.h"

#define CONNECTIONS_MAX 8
#define BACKLOG 16

struct connection {
  struct source source;
  struct timer timer;
  struct list link;
  struct rpc_listener *listener;
  struct h2 h2;
  struct rpc_server server;
  uint64_t calls_seen;
};

/* ---- connections ---- */

static void look_for_watchers(struct rpc_listener *listener) {
  bool watched = false;
  list_each(node, &listener->connections) {
    watched |= list_entry(node, struct connection, link)->server.watches > 0;
  }
  if (watched == listener->watched)
    return;
  listener->watched = watched;
  if (listener->on_watched)
    listener->on_watched(listener);
}

static void close_connection(struct connection *connection) {
  struct rpc_listener *listener = connection->listener;
  loop_remove_timer(&connection->timer);
  loop_remove(listener->loop, &connection->source);
  list_remove(&connection->link);
  listener->connection_count--;
  rpc_server_close(&connection->server);
  free(connection);
  look_for_watchers(listener);
}

static uint64_t due_ns(const struct rpc_listener *listener) {
  return listener->patience_ns == LOOP_NEVER ? LOOP_NEVER : clock_now_ns() + listener->patience_ns;
}

/* May end the connection. */
static void pump(struct connection *connection) {
  int err = h2_pump(&connection->h2);
  if (err < 0) {
    log_debug("%s: a connection ends: %s", connection->listener->label, strerror(-err));
    close_connection(connection);
    return;
  }
  loop_change(connection->listener->loop, &connection->source, h2_events(&connection->h2));
  if (connection->server.watches > 0) {
    connection->timer.due_ns = LOOP_NEVER;
  } else if (connection->timer.due_ns == LOOP_NEVER || connection->server.ended != connection->calls_seen) {
    connection->timer.due_ns = due_ns(connection->listener);
    connection->calls_seen = connection->server.ended;
  }
  look_for_watchers(connection->listener);
}

static void on_connection(struct source *source, uint32_t events) {
  (void)events;
  pump(list_entry(source, struct connection, source));
}

static void on_patience_over(struct timer *timer, uint64_t now_ns) {
  struct connection *connection = list_entry(timer, struct connection, timer);
  (void)now_ns;
  log_info("%s: a connection without calls is closed", connection->listener->label);
  close_connection(connection);
}

/* Takes the descriptor in any case. 0 or -errno. */
static int add_connection(struct rpc_listener *listener, int fd) {
  struct connection *connection =
      listener->connection_count < CONNECTIONS_MAX ? calloc(1, sizeof *connection) : NULL;
  int err = connection ? rpc_server_open(&connection->server, &listener->service) : -ENOMEM;
  if (err < 0) {
    free(connection);
    close(fd);
    return listener->connection_count < CONNECTIONS_MAX ? err : -EMFILE;
  }
  connection->listener = listener;
  connection->source = (struct source){.fd = fd, .on_event = on_connection};
  connection->h2 = (struct h2){.fd = fd, .session = connection->server.session};
  connection->timer = (struct timer){.due_ns = LOOP_NEVER, .on_due = on_patience_over};
  list_append(&listener->connections, &connection->link);
  loop_add_timer(listener->loop, &connection->timer);
  listener->connection_count++;
  err = loop_add(listener->loop, &connection->source, EPOLLIN);
  if (err < 0)
    close_connection(connection);
  else
    pump(connection);
  return err;
}

/* ---- the socket ---- */

static void on_listener(struct source *source, uint32_t events) {
  struct rpc_listener *listener = list_entry(source, struct rpc_listener, source);
  (void)events;
  int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  int err = fd < 0 ? 0 : add_connection(listener, fd);
  if (err < 0)
    log_warn("%s: a connection is refused: %s", listener->label, strerror(-err));
}

/* For root alone, as the kubelet's folder is. A kubelet that starts just now may remove the file at once:
 * then it is not in place, and the folder's event tells. */
static int try_listen(struct rpc_listener *listener) {
  const char *path = listener->address.sun_path;
  if (unlink(path) < 0 && errno != ENOENT)
    return -errno;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  mode_t before = umask(0077);
  int err = bind(fd, (const struct sockaddr *)&listener->address, sizeof listener->address) < 0 ? -errno : 0;
  umask(before);
  listener->identity = (struct stat){0};
  if (err == 0 && (listen(fd, BACKLOG) < 0 || (lstat(path, &listener->identity) < 0 && errno != ENOENT)))
    err = -errno;
  listener->source.fd = fd;
  if (err == 0)
    err = loop_add(listener->loop, &listener->source, EPOLLIN);
  if (err < 0)
    loop_remove(listener->loop, &listener->source);
  return err;
}

static int open_listener(struct rpc_listener *listener) {
  int err = try_listen(listener);
  if (err < 0)
    log_error("can't listen on %s: %s", listener->address.sun_path, strerror(-err));
  return err;
}

static bool is_in_place(const struct rpc_listener *listener) {
  struct stat now;
  return listener->source.fd >= 0 && lstat(listener->address.sun_path, &now) == 0 &&
         now.st_dev == listener->identity.st_dev && now.st_ino == listener->identity.st_ino;
}

int rpc_listener_renew(struct rpc_listener *listener) {
  if (is_in_place(listener))
    return 0;
  loop_remove(listener->loop, &listener->source);
  int err = open_listener(listener);
  return err < 0 ? err : 1;
}

void rpc_listener_refresh(struct rpc_listener *listener) {
  struct list *node = listener->connections.next, *next;
  for (; node != &listener->connections; node = next) {
    struct connection *connection = list_entry(node, struct connection, link);
    next = node->next;
    rpc_server_refresh(&connection->server);
    pump(connection);
  }
}

int rpc_listener_open(struct rpc_listener *listener, const char *folder, const char *name) {
  listener->address.sun_family = AF_UNIX;
  listener->source = (struct source){.fd = -1, .on_event = on_listener};
  list_init(&listener->connections);
  if (snprintf(listener->address.sun_path, sizeof listener->address.sun_path, "%s/%s", folder, name) >=
      (int)sizeof listener->address.sun_path) {
    log_error("can't listen in %s: its path is too long", folder);
    return -ENAMETOOLONG;
  }
  return open_listener(listener);
}

void rpc_listener_close(struct rpc_listener *listener) {
  while (!list_empty(&listener->connections))
    close_connection(list_entry(list_first(&listener->connections), struct connection, link));
  if (is_in_place(listener))
    unlink(listener->address.sun_path);
  loop_remove(listener->loop, &listener->source);
}
