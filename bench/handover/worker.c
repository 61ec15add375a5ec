/* worker.c - bench_handover's processes that use the card: what they have in common, and the small roles. */
#include "worker.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/parse.h"

#define RUSH "rush:" /* and how long each kernel takes */
#define TICKS "ticks:"

enum { SOCKET = 0 };

bool worker_say(const char *format, ...) {
  char text[WORKER_TEXT_SIZE];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof(text), format, list);
  va_end(list);
  return send(SOCKET, text, strlen(text), MSG_NOSIGNAL) >= 0;
}

bool worker_hear(char text[WORKER_TEXT_SIZE]) {
  ssize_t got = recv(SOCKET, text, WORKER_TEXT_SIZE - 1, 0);
  text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

bool worker_has_order(void) {
  struct pollfd order = {.fd = SOCKET, .events = POLLIN};
  return poll(&order, 1, 0) > 0;
}

/* The counter does not begin with 0: memory that has lost its contents must not look right. */
int64_t worker_mismatches(const struct probe *p, CUdeviceptr at, size_t bytes, uint64_t seed,
                          CUdeviceptr counter) {
  const uint64_t before = seed ^ UINT64_C(0x5a5a5a5a5a5a5a);
  uint64_t after = 0;
  if (TRY(cuMemcpyHtoD(counter, &before, sizeof(before))) ||
      TRY(launch_check(p, at, bytes, seed, counter, p->stream)) || TRY(cuStreamSynchronize(p->stream)) ||
      TRY(cuMemcpyDtoH(&after, counter, sizeof(after))))
    return -1;
  return (int64_t)((after - before) & INT64_MAX);
}

/* What there is on the card, and its name. */
static int card_tell(void) {
  struct probe p = {0};
  size_t unused, total;
  char name[64];
  if (!probe_open(&p) || TRY(cuMemGetInfo(&unused, &total)) ||
      TRY(cuDeviceGetName(name, sizeof(name), p.device)))
    return 1;
  return !worker_say("%zu %s", unused, name);
}

static int role_run(const char *role, uint64_t bytes) {
  uint64_t ns;
  if (strcmp(role, "card") == 0)
    return card_tell();
  if (strcmp(role, "copier") == 0)
    return copier_run(bytes);
  if (strcmp(role, "busy") == 0)
    return job_run(bytes);
  if (strcmp(role, "graphs") == 0)
    return graphs_run();
  if (strcmp(role, "copies") == 0)
    return copies_run(bytes);
  if (strcmp(role, "flood") == 0)
    return flood_run();
  if (strcmp(role, "bursts") == 0)
    return bursts_run();
  if (strcmp(role, "loops") == 0)
    return loops_run();
  if (strncmp(role, RUSH, strlen(RUSH)) == 0 && parse_duration_ns(role + strlen(RUSH), &ns) == 0)
    return rush_run(ns);
  if (strncmp(role, TICKS, strlen(TICKS)) == 0 && parse_duration_ns(role + strlen(TICKS), &ns) == 0)
    return ticks_run(ns);
  fprintf(stderr, "handover_worker: no role %s\n", role);
  return 2;
}

/* Standard output is for what has failed: the socket is for what has not. */
int main(int argc, char **argv) {
  uint64_t bytes = 0;
  if (argc < 2 || (argc > 2 && parse_bytes(argv[2], &bytes) != 0)) {
    fprintf(stderr, "handover_worker: a part of bench_handover, which starts it\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  return role_run(argv[1], bytes);
}
