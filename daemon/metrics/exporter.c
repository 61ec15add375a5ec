/* exporter.c - the daemon's metrics over HTTP: texts, made in slices of the loop's time. */
#include "metrics/exporter.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "http/http_server.h"
#include "metrics/metrics.h"
#include "server/listen.h"

#define CONNECTIONS_MAX 16u
#define FRESH_NS (NS_PER_S / 5)  /* a text is given to all who ask within that time, */
#define COST_TIMES 20            /* or within so many times what it has cost */
#define SLICE_NS (NS_PER_MS / 4) /* of the loop's time */

struct page {
  struct MHD_Response *response; /* NULL: none yet */
  uint64_t begun_ns;
  uint64_t cost_ns;
};

struct exporter {
  struct daemon *daemon;
  struct http_server *http;
  struct listener listener;
  struct page pages[DIALECTS];
  struct page *made; /* the one in the making; NULL: none */
  struct metrics metrics;
  uint64_t slice_ns; /* when it goes on */
};

/* ---- pages ---- */

static const char *const content_types[DIALECTS] = {
    [DIALECT_PROMETHEUS] = "text/plain; version=0.0.4; charset=utf-8",
    [DIALECT_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8"};

static void drop_page(struct page *page) {
  http_drop(page->response);
  page->response = NULL;
}

static bool is_fresh(const struct page *page, uint64_t now_ns) {
  uint64_t lasts_ns = COST_TIMES * page->cost_ns;
  return page->response && now_ns - page->begun_ns < (lasts_ns > FRESH_NS ? lasts_ns : FRESH_NS);
}

/* Who waits does so for a dialect. */
static bool begin_page(struct exporter *exporter, uint64_t now_ns) {
  unsigned dialect;
  if (!http_is_awaited(exporter->http, &dialect))
    return false;
  struct page *page = &exporter->pages[dialect];
  drop_page(page);
  if (metrics_begin(&exporter->metrics, exporter->daemon, (enum dialect)dialect) < 0) {
    http_resume(exporter->http, dialect);
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
    page->response = http_page(exporter->http, text, size, content_types[dialect]);
  http_resume(exporter->http, dialect);
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

static enum dialect wanted_dialect(const struct http_request *request) {
  const char *accept = http_header_of(request, "Accept");
  return accept && strstr(accept, "application/openmetrics-text") ? DIALECT_OPENMETRICS : DIALECT_PROMETHEUS;
}

static int answer(void *context, const struct http_request *request) {
  struct exporter *exporter = context;
  if (strcmp(request->path, "/metrics") != 0)
    return http_say(exporter->http, request, 404, "gpushare's metrics are at /metrics\n");
  enum dialect dialect = wanted_dialect(request);
  const struct page *page = &exporter->pages[dialect];
  if (!request->waited && !is_fresh(page, clock_now_ns()))
    return http_wait(request, dialect);
  return page->response ? http_send(request, page->response)
                        : http_say(exporter->http, request, 503, "out of memory\n");
}

/* ---- from the beginning to the end ---- */

struct exporter *exporter_open(struct daemon *daemon, const char *address) {
  static const struct http_site site = {.what = "metrics", .places = CONNECTIONS_MAX, .answer = answer};
  struct exporter *exporter = calloc(1, sizeof *exporter);
  if (!exporter)
    return NULL;
  exporter->daemon = daemon;
  if (listener_open(&exporter->listener, address) == 0 &&
      !(exporter->http = http_open(&site, exporter, exporter->listener.fd)))
    listener_close(&exporter->listener);
  if (!exporter->http) {
    log_error("metrics = %s: there are none", address);
    free(exporter);
    return NULL;
  }
  log_info("metrics on %s", exporter->listener.shown);
  return exporter;
}

void exporter_close(struct exporter *exporter) {
  size_t size;
  http_close(exporter->http);
  exporter->listener.fd = -1;
  if (exporter->made)
    free(metrics_take(&exporter->metrics, &size));
  for (unsigned i = 0; i < DIALECTS; i++)
    drop_page(&exporter->pages[i]);
  listener_close(&exporter->listener);
  free(exporter);
}

const char *exporter_address(const struct exporter *exporter) { return exporter->listener.text; }

int exporter_fd(const struct exporter *exporter) { return http_fd(exporter->http); }

uint64_t exporter_deadline_ns(const struct exporter *exporter) {
  unsigned dialect;
  uint64_t next_ns = http_deadline_ns(exporter->http);
  bool works = exporter->made || http_is_awaited(exporter->http, &dialect);
  return works && exporter->slice_ns < next_ns ? exporter->slice_ns : next_ns;
}

void exporter_run(struct exporter *exporter, uint64_t now_ns) {
  http_run(exporter->http, now_ns);
  make_pages(exporter);
}
