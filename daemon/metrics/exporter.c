/* exporter.c - the daemon's metrics over HTTP, by libmicrohttpd. */
#include "metrics/exporter.h"

#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "metrics/metrics.h"
#include "server/config.h"
#include "server/daemon_log.h"
#include "server/listen.h"

#define CONNECTIONS_MAX 16u
#define CONNECTIONS_MORE 8u /* that come while others are closed for them */
#define GUESTS_MAX (CONNECTIONS_MAX + CONNECTIONS_MORE)
#define CONNECTION_BYTES ((size_t)16 << 10) /* for a request, and the head of its answer */
#define PATIENCE_NS (10 * NS_PER_S)         /* with a connection, from its first to its last byte */
#define FRESH_NS (NS_PER_S / 5)             /* a text is given to all who ask within that time, */
#define COST_TIMES 20                       /* or within so many times what it has cost */
#define SLICE_NS (NS_PER_MS / 4)            /* of the loop's time */

/* ---- libmicrohttpd, loaded when metrics are asked for ----
 *
 * It brings a TLS library and eight others along, which a daemon without metrics should neither need nor have
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
} functions, *library; /* NULL until there has been an exporter */

/* False, after a line in the log. It stays loaded. */
static bool load(void) {
  static const char *const names[] = {
#define X(name) "MHD_" #name,
      MICROHTTPD_FUNCTIONS(X)
#undef X
  };
  void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found[sizeof names / sizeof *names];
  _Static_assert(sizeof found == sizeof functions, "a name for each function");
  if (!handle) {
    log_error("metrics need " LIBRARY " (Debian, Ubuntu: libmicrohttpd12): %s", dlerror());
    return false;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(found[i] = dlsym(handle, names[i]))) {
      log_error("metrics need another version of " LIBRARY);
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

struct guest {
  int fd; /* -1: none */
  uint64_t due_ns, since_ns;
  struct origin_key origin;
  struct MHD_Connection *waits; /* suspended, until there is a text in this dialect; NULL: it is not */
  enum dialect dialect;
};

struct page {
  struct MHD_Response *response; /* NULL: none yet */
  uint64_t begun_ns;
  uint64_t cost_ns;
};

struct exporter {
  struct daemon *daemon;
  struct MHD_Daemon *http;
  char text[ADDRESS_TEXT_SIZE];
  struct address address;
  struct stat identity; /* of the socket file */
  uint64_t next_ns;
  bool again; /* a connection has ended: only when it is run the next time libmicrohttpd accepts others */
  struct guest guests[GUESTS_MAX];
  struct page pages[DIALECTS];
  struct page *made; /* the one in the making; NULL: none */
  struct metrics metrics;
  uint64_t slice_ns; /* when it goes on */
};

/* ---- pages ---- */

static const char *const content_types[DIALECTS] = {
    [DIALECT_PROMETHEUS] = "text/plain; version=0.0.4; charset=utf-8",
    [DIALECT_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8"};

/* Each connection is for one request: so one that lasts is one that does not read. */
static void set_headers(struct MHD_Response *response, const char *content_type) {
  library->add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  library->add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
}

static void drop_page(struct page *page) {
  if (page->response)
    library->destroy_response(page->response); /* not before those who read it are done */
  page->response = NULL;
}

static bool is_fresh(const struct page *page, uint64_t now_ns) {
  uint64_t lasts_ns = COST_TIMES * page->cost_ns;
  return page->response && now_ns - page->begun_ns < (lasts_ns > FRESH_NS ? lasts_ns : FRESH_NS);
}

static struct guest *first_waiting(struct exporter *exporter) {
  struct guest *first = NULL;
  for (struct guest *guest = exporter->guests; guest < exporter->guests + GUESTS_MAX; guest++)
    if (guest->fd >= 0 && guest->waits && (!first || guest->since_ns < first->since_ns))
      first = guest;
  return first;
}

/* They are answered when libmicrohttpd is run the next time. */
static void resume(struct exporter *exporter, enum dialect dialect) {
  for (struct guest *guest = exporter->guests; guest < exporter->guests + GUESTS_MAX; guest++) {
    if (guest->fd < 0 || !guest->waits || guest->dialect != dialect)
      continue;
    library->resume_connection(guest->waits);
    guest->waits = NULL;
    exporter->again = true;
  }
}

static bool begin_page(struct exporter *exporter, uint64_t now_ns) {
  const struct guest *first = first_waiting(exporter);
  if (!first)
    return false;
  struct page *page = &exporter->pages[first->dialect];
  drop_page(page);
  if (metrics_begin(&exporter->metrics, exporter->daemon, first->dialect) < 0) {
    resume(exporter, first->dialect);
    return false;
  }
  page->begun_ns = now_ns;
  page->cost_ns = 0;
  exporter->made = page;
  return true;
}

static void finish_page(struct exporter *exporter) {
  size_t size;
  struct page *page = exporter->made;
  enum dialect dialect = (enum dialect)(page - exporter->pages);
  char *text = metrics_take(&exporter->metrics, &size);
  exporter->made = NULL;
  if (text)
    page->response = library->create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
  if (page->response)
    set_headers(page->response, content_types[dialect]);
  else
    free(text);
  resume(exporter, dialect);
}

/* A slice, and after it a pause as long as it was. */
static void make_pages(struct exporter *exporter) {
  uint64_t begin_ns = clock_now_ns();
  if (begin_ns < exporter->slice_ns || (!exporter->made && !begin_page(exporter, begin_ns)))
    return;
  bool complete = metrics_go_on(&exporter->metrics, begin_ns, begin_ns + SLICE_NS);
  uint64_t now_ns = clock_now_ns();
  exporter->made->cost_ns += now_ns - begin_ns;
  exporter->slice_ns = now_ns + (now_ns - begin_ns);
  if (complete)
    finish_page(exporter);
}

static enum dialect wanted_dialect(struct MHD_Connection *connection) {
  const char *accept = library->lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
  return accept && strstr(accept, "application/openmetrics-text") ? DIALECT_OPENMETRICS : DIALECT_PROMETHEUS;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned status, char *text) {
  struct MHD_Response *response =
      library->create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
  if (!response)
    return MHD_NO;
  set_headers(response, "text/plain; charset=utf-8");
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
    library->add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  enum MHD_Result result = library->queue_response(connection, status, response);
  library->destroy_response(response);
  return result;
}

/* For libmicrohttpd: a request has come, at least its head; or the connection was resumed. */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **request) {
  struct exporter *exporter = context;
  (void)version, (void)upload, (void)upload_size;
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
    return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "there is nothing but to GET /metrics\n");
  if (strcmp(url, "/metrics") != 0)
    return say(connection, MHD_HTTP_NOT_FOUND, "gpushare's metrics are at /metrics\n");
  enum dialect dialect = wanted_dialect(connection);
  const struct page *page = &exporter->pages[dialect];
  struct guest *guest =
      library->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  bool waited = *request;
  if (!waited && guest && !is_fresh(page, clock_now_ns())) {
    *request = guest;
    guest->waits = connection;
    guest->dialect = dialect;
    library->suspend_connection(connection);
    return MHD_YES;
  }
  return page->response ? library->queue_response(connection, MHD_HTTP_OK, page->response)
                        : say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
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

static bool stays(const struct guest *guest) { return guest->fd >= 0 && guest->due_ns != EXPORTER_NEVER; }

static unsigned count_of_origin(const struct exporter *exporter, const struct origin_key *origin) {
  unsigned count = 0;
  for (unsigned i = 0; i < GUESTS_MAX; i++)
    count += stays(&exporter->guests[i]) && memcmp(&exporter->guests[i].origin, origin, sizeof *origin) == 0;
  return count;
}

/* libmicrohttpd sees it, and closes the connection. */
static void expire(struct guest *guest) {
  log_for(LOG_NOBODY, LOG_LEVEL_DEBUG, "metrics: a reader is too slow");
  shutdown(guest->fd, SHUT_RDWR);
  guest->due_ns = EXPORTER_NEVER;
}

/* All places are taken: of those who have the most, the oldest one goes. So whoever is slow keeps out nobody.
 */
static void make_place(struct exporter *exporter) {
  struct guest *oldest = NULL;
  unsigned most = 0, count = 0;
  for (struct guest *guest = exporter->guests; guest < exporter->guests + GUESTS_MAX; guest++) {
    if (!stays(guest))
      continue;
    unsigned of_origin = count_of_origin(exporter, &guest->origin);
    count++;
    if (of_origin > most || (of_origin == most && guest->since_ns < oldest->since_ns)) {
      most = of_origin;
      oldest = guest;
    }
  }
  if (count > CONNECTIONS_MAX)
    expire(oldest);
}

/* For libmicrohttpd: a connection begins or ends. */
static void on_connection(void *context, struct MHD_Connection *connection, void **data,
                          enum MHD_ConnectionNotificationCode what) {
  struct exporter *exporter = context;
  struct guest *guest = *data;
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
    if (guest) {
      guest->fd = -1;
      guest->waits = NULL;
    }
    exporter->again = true;
    return;
  }
  for (guest = exporter->guests; guest < exporter->guests + GUESTS_MAX && guest->fd >= 0; guest++)
    ;
  if (guest == exporter->guests + GUESTS_MAX)
    return;
  guest->fd = library->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  guest->since_ns = clock_now_ns();
  guest->due_ns = guest->since_ns + PATIENCE_NS;
  guest->origin = find_origin(guest->fd);
  *data = guest;
  make_place(exporter);
}

/* ---- from the beginning to the end ---- */

static int open_listener(struct exporter *exporter) {
  struct address *address = &exporter->address;
  int err = address_parse(exporter->text, address);
  if (err < 0)
    return err;
  return address->any.sa_family == AF_UNIX
             ? listen_open(address->file.sun_path, SOCK_STREAM, &exporter->identity)
             : listen_open_inet(&address->any, &address->size);
}

static void start(struct exporter *exporter, int fd) {
  exporter->http = library->start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, answer, exporter, MHD_OPTION_LISTEN_SOCKET, fd,
      MHD_OPTION_CONNECTION_LIMIT, GUESTS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES,
      MHD_OPTION_NOTIFY_CONNECTION, on_connection, exporter, MHD_OPTION_END);
}

static void remove_file(const struct exporter *exporter) {
  if (exporter->address.any.sa_family == AF_UNIX)
    listen_remove(exporter->address.file.sun_path, &exporter->identity);
}

struct exporter *exporter_open(struct daemon *daemon, const char *address) {
  struct exporter *exporter = calloc(1, sizeof *exporter);
  if (!exporter)
    return NULL;
  exporter->daemon = daemon;
  exporter->next_ns = EXPORTER_NEVER;
  strncpy(exporter->text, address, sizeof exporter->text - 1);
  for (unsigned i = 0; i < GUESTS_MAX; i++)
    exporter->guests[i].fd = -1;
  int fd = library || load() ? open_listener(exporter) : -ENOENT;
  if (fd >= 0)
    start(exporter, fd);
  if (!exporter->http) {
    log_error("metrics = %s: there are none", address);
    if (fd >= 0)
      remove_file(exporter);
    free(exporter);
    return NULL;
  }
  char where[ADDRESS_TEXT_SIZE];
  address_format(&exporter->address, where);
  log_info("metrics on %s", where);
  return exporter;
}

void exporter_close(struct exporter *exporter) {
  size_t size;
  for (unsigned i = 0; i < DIALECTS; i++)
    resume(exporter, (enum dialect)i);
  library->stop_daemon(exporter->http);
  if (exporter->made)
    free(metrics_take(&exporter->metrics, &size));
  for (unsigned i = 0; i < DIALECTS; i++)
    drop_page(&exporter->pages[i]);
  remove_file(exporter);
  free(exporter);
}

const char *exporter_address(const struct exporter *exporter) { return exporter->text; }

int exporter_fd(const struct exporter *exporter) {
  return library->get_daemon_info(exporter->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

uint64_t exporter_deadline_ns(const struct exporter *exporter) {
  uint64_t next_ns = exporter->next_ns;
  for (unsigned i = 0; i < GUESTS_MAX; i++)
    if (exporter->guests[i].fd >= 0 && exporter->guests[i].due_ns < next_ns)
      next_ns = exporter->guests[i].due_ns;
  return next_ns;
}

void exporter_run(struct exporter *exporter, uint64_t now_ns) {
  MHD_UNSIGNED_LONG_LONG wait_ms;
  for (unsigned i = 0; i < GUESTS_MAX; i++)
    if (exporter->guests[i].fd >= 0 && now_ns >= exporter->guests[i].due_ns)
      expire(&exporter->guests[i]);
  exporter->again = false;
  library->run(exporter->http);
  make_pages(exporter);
  bool waits = library->get_timeout(exporter->http, &wait_ms) == MHD_YES;
  exporter->next_ns = exporter->again ? now_ns : waits ? now_ns + wait_ms * NS_PER_MS : EXPORTER_NEVER;
  if ((exporter->made || first_waiting(exporter)) && exporter->slice_ns < exporter->next_ns)
    exporter->next_ns = exporter->slice_ns;
}
