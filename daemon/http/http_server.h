/*
 * http_server.h - an HTTP server for GET and HEAD, from within somebody's event loop. No thread: everything
 * that a reader can hold up is bounded: the number of connections, their memory, and how long each may last.
 * Each connection is for one request: so one that lasts is one that does not read.
 *
 * Of one thread. Times are those of clock_now_ns.
 */
#ifndef GS_HTTP_SERVER_H
#define GS_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_NEVER UINT64_MAX

struct http_server;
struct MHD_Connection;
struct MHD_Response; /* a page: what is sent, with its headers. Many may be reading it */

struct http_header {
  const char *name, *value;
};

/* A request, its method GET or HEAD; while `answer` runs. */
struct http_request {
  const char *path; /* decoded, without what follows a question mark */
  bool waited;      /* http_wait has been its answer before */
  struct http_guest *guest;
  struct MHD_Connection *connection;
};

/* What a server shows. It outlives the server. */
struct http_site {
  const char *what; /* "metrics": for the log, as subject of a sentence in the plural */
  unsigned places;  /* for connections. If all are taken, those of the origin that has most make way */
  const struct http_header *headers; /* of every page; a row without a name ends them; NULL: there are none */
  /* Ends with one of http_send, http_say and http_wait, and returns what that has returned. */
  int (*answer)(void *of, const struct http_request *request);
};

/* A listening, non-blocking socket becomes the server's. NULL, after a line in the log: there is none, and
 * the socket is as it was. */
struct http_server *http_open(const struct http_site *site, void *of, int listen_fd);

/* The socket is closed then. Caller must: drop its pages. */
void http_close(struct http_server *server);

/* A descriptor that becomes readable when there is something to do; it stays the server's. */
int http_fd(const struct http_server *server);

/* When there is something to do in any case; HTTP_NEVER. */
uint64_t http_deadline_ns(const struct http_server *server);

/* Do what there is to do. */
void http_run(struct http_server *server, uint64_t now_ns);

/* ---- requests ---- */

/* NULL: it has none. */
const char *http_header_of(const struct http_request *request, const char *name);
const char *http_argument_of(const struct http_request *request, const char *name);

/* 200, and this page, which stays the caller's. */
int http_send(const struct http_request *request, struct MHD_Response *page);

/* A status and a line. */
int http_say(const struct http_server *server, const struct http_request *request, unsigned status,
             const char *text);

/* Its answer is asked for again after http_resume of this number. */
int http_wait(const struct http_request *request, unsigned number);

/* All that wait for this number. Their answers are asked for when the server is run the next time. */
void http_resume(struct http_server *server, unsigned number);

/* Somebody waits; *number: that for which the first one does. */
bool http_is_awaited(const struct http_server *server, unsigned *number);

/* ---- pages ---- */

/* Of a text from malloc, which is the page's from now on. NULL: no memory, and the text is freed. */
struct MHD_Response *http_page(const struct http_server *server, char *text, size_t size,
                               const char *content_type);
bool http_set_header(struct MHD_Response *page, const char *name, const char *value);

/* It is freed once nobody reads it any more. NULL: there is none. */
void http_drop(struct MHD_Response *page);

#endif
