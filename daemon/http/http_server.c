/* http_server.c - see http_server.h: by libmicrohttpd. */
#include "http/http_server.h"

#include <dlfcn.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/log.h"

#define PLACES_MORE 8u                      /* for connections that come while others are closed for them */
#define CONNECTION_BYTES ((size_t)16 << 10) /* for a request, and the head of its answer */
#define PATIENCE_NS (10 * NS_PER_S)         /* with a connection, from its first to its last byte */

/* ---- libmicrohttpd, loaded when a server is opened for the first time ----
 *
 * It brings a TLS library and eight others along, which a daemon without one should neither need nor have
 * in its memory. */

#define LIBRARY "libmicrohttpd.so.12"

/* X(name after MHD_) */
#define MICROHTTPD_FUNCTIONS(X)                                                                              \
  X(start_daemon)                                                                                            \
  X(stop_daemon)                                                                                             \
  X(run)                                                                                                     \
  X(get_timeout)                                                                                             \
  X(get_daemon_info)                                                                                         \
  X(get_connection_info)                                                                                     \
  X(lookup_connection_value)                                                                                 \
  X(create_response_from_buffer)                                                                             \
  X(add_response_header)                                                                                     \
  X(queue_response)                                                                                          \
  X(suspend_connection)                                                                                      \
  X(resume_connection)                                                                                       \
  X(destroy_response)

static struct {
#define X(name) __typeof__(&MHD_##name) name;
  MICROHTTPD_FUNCTIONS(X)
#undef X
} functions, *library; /* NULL until there has been a server */

/* False, after a line in the log. It stays loaded. */
static bool load(const char *what) {
  static const char *const names[] = {
#define X(name) "MHD_" #name,
      MICROHTTPD_FUNCTIONS(X)
#undef X
  };
  void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found[sizeof names / sizeof *names];
  _Static_assert(sizeof found == sizeof functions, "a name for each function");
  if (!handle) {
    log_error("%s need " LIBRARY " (Debian, Ubuntu: libmicrohttpd12): %s", what, dlerror());
    return false;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(found[i] = dlsym(handle, names[i]))) {
      log_error("%s need another version of " LIBRARY, what);
      dlclose(handle);
      return false;
    }
  memcpy(&functions, found, sizeof functions);
  library = &functions;
  return true;
}

/* ---- what there is ---- */

/* Whose connections count together: an address of IPv4, a network of IPv6 (whoever has one address has all of
 * it), or, on a socket file, a user. */
struct origin_key {
  uint8_t bytes[8];
};

struct http_guest {
  int fd; /* -1: none */
  uint64_t due_ns, since_ns;
  struct origin_key origin;
  struct MHD_Connection *waits; /* suspended; NULL: it is not */
  unsigned number;              /* for which it waits */
};

struct http_server {
  const struct http_site *site;
  void *of;
  struct MHD_Daemon *http;
  uint64_t next_ns;
  bool again; /* a connection has ended: only when it is run the next time libmicrohttpd accepts others */
  unsigned guest_count;
  struct http_guest guests[];
};

/* ---- pages ---- */

static void set_headers(const struct http_server *server, struct MHD_Response *page,
                        const char *content_type) {
  library->add_response_header(page, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  library->add_response_header(page, MHD_HTTP_HEADER_CONNECTION, "close");
  for (const struct http_header *header = server->site->headers; header && header->name; header++)
    library->add_response_header(page, header->name, header->value);
}

struct MHD_Response *http_page(const struct http_server *server, char *text, size_t size,
                               const char *content_type) {
  struct MHD_Response *page = library->create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
  if (page)
    set_headers(server, page, content_type);
  else
    free(text);
  return page;
}

bool http_set_header(struct MHD_Response *page, const char *name, const char *value) {
  return library->add_response_header(page, name, value) == MHD_YES;
}

void http_drop(struct MHD_Response *page) {
  if (page)
    library->destroy_response(page); /* not before those who read it are done */
}

/* ---- requests ---- */

static const char *value_of(const struct http_request *request, enum MHD_ValueKind kind, const char *name) {
  return library->lookup_connection_value(request->connection, kind, name);
}

const char *http_header_of(const struct http_request *request, const char *name) {
  return value_of(request, MHD_HEADER_KIND, name);
}

const char *http_argument_of(const struct http_request *request, const char *name) {
  return value_of(request, MHD_GET_ARGUMENT_KIND, name);
}

int http_send(const struct http_request *request, struct MHD_Response *page) {
  return (int)library->queue_response(request->connection, MHD_HTTP_OK, page);
}

int http_say(const struct http_server *server, const struct http_request *request, unsigned status,
             const char *text) {
  struct MHD_Response *page =
      library->create_response_from_buffer(strlen(text), (char *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
  if (!page)
    return MHD_NO;
  set_headers(server, page, "text/plain; charset=utf-8");
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
    library->add_response_header(page, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  enum MHD_Result result = library->queue_response(request->connection, status, page);
  library->destroy_response(page);
  return (int)result;
}

int http_wait(const struct http_request *request, unsigned number) {
  request->guest->waits = request->connection;
  request->guest->number = number;
  library->suspend_connection(request->connection);
  return MHD_YES;
}

void http_resume(struct http_server *server, unsigned number) {
  for (unsigned i = 0; i < server->guest_count; i++) {
    struct http_guest *guest = &server->guests[i];
    if (guest->fd < 0 || !guest->waits || guest->number != number)
      continue;
    library->resume_connection(guest->waits);
    guest->waits = NULL;
    server->again = true;
  }
}

bool http_is_awaited(const struct http_server *server, unsigned *number) {
  const struct http_guest *first = NULL;
  for (unsigned i = 0; i < server->guest_count; i++) {
    const struct http_guest *guest = &server->guests[i];
    if (guest->fd >= 0 && guest->waits && (!first || guest->since_ns < first->since_ns))
      first = guest;
  }
  if (first)
    *number = first->number;
  return first;
}

/* For libmicrohttpd: a request has come, at least its head; or the connection was resumed. */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **data) {
  struct http_server *server = context;
  struct http_request request = {.path = path, .waited = *data, .connection = connection};
  (void)version, (void)upload, (void)upload_size;
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
    return (enum MHD_Result)http_say(server, &request, MHD_HTTP_METHOD_NOT_ALLOWED,
                                     "only GET and HEAD are answered here\n");
  request.guest =
      library->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  if (!request.guest) /* more than there are places for */
    return MHD_NO;
  *data = request.guest;
  return (enum MHD_Result)server->site->answer(server->of, &request);
}

/* ---- connections ---- */

static struct origin_key find_origin(int fd) {
  struct origin_key key = {0};
  struct ucred credentials;
  struct sockaddr_storage address = {0};
  socklen_t size = sizeof address, credentials_size = sizeof credentials;
  if (getpeername(fd, (struct sockaddr *)&address, &size) < 0)
    return key;
  if (address.ss_family == AF_INET)
    memcpy(key.bytes, &((const struct sockaddr_in *)&address)->sin_addr, 4);
  else if (address.ss_family == AF_INET6)
    memcpy(key.bytes, &((const struct sockaddr_in6 *)&address)->sin6_addr, sizeof key.bytes);
  else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_size) == 0)
    memcpy(key.bytes, &credentials.uid, sizeof credentials.uid);
  return key;
}

static bool stays(const struct http_guest *guest) { return guest->fd >= 0 && guest->due_ns != HTTP_NEVER; }

static struct http_guest *guests_end(struct http_server *server) {
  return server->guests + server->guest_count;
}

static unsigned count_of_origin(const struct http_server *server, const struct origin_key *origin) {
  unsigned count = 0;
  for (unsigned i = 0; i < server->guest_count; i++)
    count += stays(&server->guests[i]) && memcmp(&server->guests[i].origin, origin, sizeof *origin) == 0;
  return count;
}

/* libmicrohttpd sees it, and closes the connection. */
static void expire(const struct http_server *server, struct http_guest *guest) {
  log_debug("%s: a reader is too slow", server->site->what);
  shutdown(guest->fd, SHUT_RDWR);
  guest->due_ns = HTTP_NEVER;
}

/* All places are taken: of those who have the most, the oldest one goes. So whoever is slow keeps out nobody.
 */
static void make_place(struct http_server *server) {
  struct http_guest *oldest = NULL;
  unsigned most = 0, count = 0;
  for (struct http_guest *guest = server->guests; guest < guests_end(server); guest++) {
    if (!stays(guest))
      continue;
    unsigned of_origin = count_of_origin(server, &guest->origin);
    count++;
    if (of_origin > most || (of_origin == most && guest->since_ns < oldest->since_ns)) {
      most = of_origin;
      oldest = guest;
    }
  }
  if (count > server->site->places)
    expire(server, oldest);
}

/* For libmicrohttpd: a connection begins or ends. */
static void on_connection(void *context, struct MHD_Connection *connection, void **data,
                          enum MHD_ConnectionNotificationCode what) {
  struct http_server *server = context;
  struct http_guest *guest = *data;
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
    if (guest) {
      guest->fd = -1;
      guest->waits = NULL;
    }
    server->again = true;
    return;
  }
  for (guest = server->guests; guest < guests_end(server) && guest->fd >= 0; guest++)
    ;
  if (guest == guests_end(server))
    return;
  guest->fd = library->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  guest->since_ns = clock_now_ns();
  guest->due_ns = guest->since_ns + PATIENCE_NS;
  guest->origin = find_origin(guest->fd);
  *data = guest;
  make_place(server);
}

/* ---- from the beginning to the end ---- */

struct http_server *http_open(const struct http_site *site, void *of, int listen_fd) {
  unsigned count = site->places + PLACES_MORE;
  if (!library && !load(site->what))
    return NULL;
  struct http_server *server = calloc(1, sizeof *server + count * sizeof *server->guests);
  if (!server)
    return NULL;
  *server = (struct http_server){.site = site, .of = of, .next_ns = HTTP_NEVER, .guest_count = count};
  for (unsigned i = 0; i < count; i++)
    server->guests[i].fd = -1;
  server->http = library->start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, answer, server, MHD_OPTION_LISTEN_SOCKET,
      listen_fd, MHD_OPTION_CONNECTION_LIMIT, count, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES,
      MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_END);
  if (server->http)
    return server;
  free(server);
  return NULL;
}

void http_close(struct http_server *server) {
  unsigned number;
  while (http_is_awaited(server, &number))
    http_resume(server, number);
  library->stop_daemon(server->http);
  free(server);
}

int http_fd(const struct http_server *server) {
  return library->get_daemon_info(server->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

uint64_t http_deadline_ns(const struct http_server *server) {
  uint64_t next_ns = server->again ? 0 : server->next_ns;
  for (unsigned i = 0; i < server->guest_count; i++)
    if (server->guests[i].fd >= 0 && server->guests[i].due_ns < next_ns)
      next_ns = server->guests[i].due_ns;
  return next_ns;
}

void http_run(struct http_server *server, uint64_t now_ns) {
  MHD_UNSIGNED_LONG_LONG wait_ms;
  for (unsigned i = 0; i < server->guest_count; i++)
    if (server->guests[i].fd >= 0 && now_ns >= server->guests[i].due_ns)
      expire(server, &server->guests[i]);
  server->again = false;
  library->run(server->http);
  bool waits = library->get_timeout(server->http, &wait_ms) == MHD_YES;
  server->next_ns = waits ? now_ns + wait_ms * NS_PER_MS : HTTP_NEVER;
}
