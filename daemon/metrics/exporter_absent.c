/* exporter_absent.c - in place of exporter.c where there is no libmicrohttpd: none can be opened. */
#include "common/log.h"
#include "metrics/exporter.h"

struct exporter *exporter_open(struct daemon *daemon, const char *address) {
  (void)daemon;
  log_error("metrics = %s: there are none, as this daemon was built without libmicrohttpd", address);
  return NULL;
}

void exporter_close(struct exporter *exporter) { (void)exporter; }

const char *exporter_address(const struct exporter *exporter) {
  (void)exporter;
  return "";
}

int exporter_fd(const struct exporter *exporter) {
  (void)exporter;
  return -1;
}

uint64_t exporter_deadline_ns(const struct exporter *exporter) {
  (void)exporter;
  return EXPORTER_NEVER;
}

void exporter_run(struct exporter *exporter, uint64_t now_ns) { (void)exporter, (void)now_ns; }
