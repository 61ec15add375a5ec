/* table.c - orders to holders, and the ceilings. */
#include "table.h"

#include <sys/socket.h>
#include <unistd.h>

bool order_send(int fd, struct order order) {
  return send(fd, &order, sizeof(order), MSG_NOSIGNAL) == sizeof(order);
}

bool report_get(int fd, struct report *report) {
  if (read(fd, report, sizeof(*report)) != sizeof(*report)) {
    fprintf(stderr, "  a holder is gone\n");
    return false;
  }
  if (report->result)
    fprintf(stderr, "  a holder failed: %d\n", (int)report->result);
  return report->result == CUDA_SUCCESS;
}

bool both_do(const struct table *t, struct order out, struct order in, struct report reports[2]) {
  if (!order_send(t->in, in) || !order_send(t->out, out))
    return false;
  bool out_ok = report_get(t->out, &reports[0]);
  return report_get(t->in, &reports[1]) && out_ok;
}

bool one_do(int fd, struct order order, struct report *report) {
  return order_send(fd, order) && report_get(fd, report);
}

uint64_t whole_ns(const struct report reports[2]) {
  uint64_t start = reports[0].start_ns < reports[1].start_ns ? reports[0].start_ns : reports[1].start_ns;
  uint64_t end = reports[0].end_ns > reports[1].end_ns ? reports[0].end_ns : reports[1].end_ns;
  return end - start;
}

bool slabs_make(const struct table *t, struct report reports[2]) {
  struct order slab = {.op = HOLDER_SLAB, .bytes = t->bytes};
  return both_do(t, slab, slab, reports);
}

bool copies_prepare(const struct table *t) {
  struct order ready = {.op = HOLDER_PREPARE, .piece = 32 * MIB, .resident = true};
  struct report reports[2];
  return both_do(t, ready, ready, reports);
}

static double rate_of(size_t bytes, const struct report *report) {
  return gb_per_s(bytes, report->end_ns - report->start_ns);
}

bool one_copy(int fd, size_t out_bytes, size_t in_bytes, double *rate) {
  struct order copy = {.op = HOLDER_COPY, .out_bytes = out_bytes, .in_bytes = in_bytes};
  struct report report;
  if (!one_do(fd, copy, &report))
    return false;
  *rate = rate_of(out_bytes ? out_bytes : in_bytes, &report);
  return true;
}

bool both_copy(const struct table *t, struct copies *copies) {
  struct order out = {.op = HOLDER_COPY, .out_bytes = t->bytes},
               in = {.op = HOLDER_COPY, .in_bytes = t->bytes};
  struct report reports[2];
  if (!both_do(t, out, in, reports))
    return false;
  copies->out = rate_of(t->bytes, &reports[0]);
  copies->in = rate_of(t->bytes, &reports[1]);
  copies->both = gb_per_s(t->bytes, whole_ns(reports));
  return true;
}
