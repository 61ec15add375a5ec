/* handover.c - how fast one process's memory can leave the card while another's comes. */
#include "table.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SECONDS = 34 };

static int holder_start(atomic_size_t *freed_bytes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return -1;
  pid_t pid = child_fork();
  if (pid == 0) {
    close(ends[0]);
    holder_run(ends[1], freed_bytes);
    fflush(stdout);
    _exit(0);
  }
  close(ends[1]);
  return pid < 0 ? -1 : ends[0];
}

static bool table_open(struct table *t) {
  struct report reports[2];
  t->freed_bytes =
      mmap(NULL, sizeof(*t->freed_bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (t->freed_bytes == MAP_FAILED)
    return false;
  t->out = holder_start(t->freed_bytes);
  t->in = holder_start(t->freed_bytes);
  struct order open = {.op = HOLDER_OPEN};
  if (t->out < 0 || t->in < 0 || !both_do(t, open, open, reports))
    return false;
  t->bytes = reports[0].bytes < reports[1].bytes ? reports[0].bytes : reports[1].bytes;
  if (t->bytes < GIB) {
    printf("  skipped: not 2 GiB free on the card for the two processes\n");
    return false;
  }
  if (!slabs_make(t, reports))
    return false;
  printf("  two processes, %zu GiB each; touching and pinning that much host memory, both at once: %.1f s\n",
         t->bytes / GIB, (double)whole_ns(reports) / 1e9);
  return true;
}

static void ceiling_print(const struct table *t, const char *what, size_t out_bytes, size_t in_bytes) {
  double rate;
  for (int i = 0; i < 2; i++)
    if (one_copy(t->out, out_bytes, in_bytes, &rate))
      printf("  one process, %s: %.1f GB/s each way\n", what, rate);
}

/* One after the other, and both at once, with no memory made or given back. */
static bool ceilings_print(const struct table *t) {
  struct copies copies;
  if (!copies_prepare(t))
    return false;
  ceiling_print(t, "out", t->bytes, 0);
  ceiling_print(t, "in", 0, t->bytes);
  ceiling_print(t, "out and in on two streams", t->bytes / 2, t->bytes / 2);
  for (int i = 0; i < 2; i++)
    if (both_copy(t, &copies))
      printf("  two processes, one out %.1f GB/s, one in %.1f GB/s, bytes of one / whole time %.1f GB/s\n",
             copies.out, copies.in, copies.both);
  return true;
}

static void phases_print(const struct report reports[2]) {
  double ms[2][PHASES];
  for (int r = 0; r < 2; r++)
    for (int phase = 0; phase < PHASES; phase++)
      ms[r][phase] = (double)reports[r].spent_ns[phase] / 1e6;
  printf(" | ms out: copies %.0f unmap %.1f release %.1f | in: room %.0f copies %.0f create %.1f map %.1f "
         "access %.1f\n",
         ms[0][WAIT_COPY], ms[0][UNMAPPING], ms[0][RELEASING], ms[1][WAIT_ROOM], ms[1][WAIT_COPY],
         ms[1][CREATING], ms[1][MAPPING], ms[1][OPENING]);
}

/* The same pieces leave one process and come to the other, which may have no more than the first has freed.
 */
static bool handover_print(const struct table *t, size_t piece, int window) {
  struct order full = {.op = HOLDER_PREPARE, .piece = piece, .resident = true};
  struct order none = {.op = HOLDER_PREPARE, .piece = piece};
  struct order out = {.op = HOLDER_EVICT, .window = window}, in = {.op = HOLDER_RESTORE, .window = window};
  struct report reports[2];
  if (!both_do(t, full, none, reports))
    return false;
  atomic_store(t->freed_bytes, 0);
  if (!both_do(t, out, in, reports))
    return false;
  printf("  %3zu MiB W=%d: %.1f GB/s each way in %.0f ms (out alone %.1f)", piece / MIB, window,
         gb_per_s(t->bytes, whole_ns(reports)), (double)whole_ns(reports) / 1e6,
         gb_per_s(t->bytes, reports[0].end_ns - reports[0].start_ns));
  phases_print(reports);
  return true;
}

static void handovers_print(const struct table *t) {
  static const size_t sizes[] = {16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB};
  uint64_t start_ns = clock_now_ns();
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
    for (int window = 2; window <= 8; window *= 2) {
      if (ms_since(start_ns) > SECONDS * 1e3) {
        printf("  the rest is left out: %d s are over\n", SECONDS);
        return;
      }
      if (!handover_print(t, sizes[i], window))
        return;
    }
}

void probe_handover(struct probe *unused) {
  struct table t = {.out = -1};
  (void)unused;
  if (!table_open(&t) || !ceilings_print(&t))
    return;
  printf("  hand-over by the piece, W copies in flight on each side\n");
  handovers_print(&t);
}
