/* holder.c - evicts and restores memory by the piece, a window of copies in flight, and tells what that took.
 */
#include "holder.h"

#include <sched.h>
#include <unistd.h>

enum { WINDOW_MAX = 16, THREADS = 4, ROOM_SECONDS = 10 };

struct holder {
  struct probe p;
  atomic_size_t *freed_bytes; /* by the one that leaves, for the one that comes */
  struct pieces pieces;
  char *slab;
  size_t bytes;
  CUstream back; /* the second stream */
  CUevent done[WINDOW_MAX];
  struct report report; /* of the order at hand */
};

/* Charges the time since *mark to a phase; the next begins. */
static void phase_end(struct holder *h, enum phase phase, uint64_t *mark) {
  uint64_t now = clock_now_ns();
  h->report.spent_ns[phase] += now - *mark;
  *mark = now;
}

static CUresult holder_open(struct holder *h) {
  size_t unused = 0, total = 0;
  if (!probe_open(&h->p) || TRY(cuStreamCreate(&h->back, CU_STREAM_NON_BLOCKING)) ||
      TRY(cuMemGetInfo(&unused, &total)))
    return CUDA_ERROR_UNKNOWN;
  for (int i = 0; i < WINDOW_MAX; i++)
    if (TRY(cuEventCreate(&h->done[i], CU_EVENT_DISABLE_TIMING)))
      return CUDA_ERROR_UNKNOWN;
  h->report.bytes = 8 * GIB;
  while (h->report.bytes >= GIB && 2 * h->report.bytes + 2 * GIB > unused)
    h->report.bytes /= 2;
  return CUDA_SUCCESS;
}

static CUresult holder_slab(struct holder *h, size_t bytes) {
  h->bytes = bytes;
  h->slab = slab_map(bytes, THREADS);
  if (!h->slab)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return TRY(cuMemHostRegister(h->slab, bytes, CU_MEMHOSTREGISTER_PORTABLE));
}

static CUresult holder_prepare(struct holder *h, size_t piece, bool resident) {
  pieces_drop(&h->pieces);
  CUresult result = pieces_reserve(&h->pieces, &h->p, piece, h->bytes);
  if (!result && resident)
    result = pieces_fill(&h->pieces);
  if (!result && resident)
    result = TRY(launch_fill(&h->p, h->pieces.at, h->bytes, h->p.stream));
  return result ? result : TRY(cuCtxSynchronize());
}

static CUresult piece_out(struct holder *h, size_t i, CUstream stream) {
  size_t size = h->pieces.size;
  return TRY(cuMemcpyDtoHAsync(h->slab + i * size, piece_at(&h->pieces, i), size, stream));
}

static CUresult piece_in(struct holder *h, size_t i, CUstream stream) {
  size_t size = h->pieces.size;
  return TRY(cuMemcpyHtoDAsync(piece_at(&h->pieces, i), h->slab + i * size, size, stream));
}

/* Out from the front, in from the back: the two never meet. */
static CUresult holder_copy(struct holder *h, size_t out_bytes, size_t in_bytes) {
  size_t count = h->pieces.count, out = out_bytes / h->pieces.size, in = in_bytes / h->pieces.size;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; i++) {
    if (i < out)
      result = piece_out(h, i, h->p.stream);
    if (i < in && !result)
      result = piece_in(h, count - 1 - i, h->back);
  }
  return result ? result : TRY(cuCtxSynchronize());
}

/* The oldest copy out has to end; then its piece goes and the other process may take the room. */
static CUresult oldest_free(struct holder *h, size_t i, int window) {
  uint64_t mark = clock_now_ns();
  CUresult result = TRY(cuEventSynchronize(h->done[i % (size_t)window]));
  phase_end(h, WAIT_COPY, &mark);
  result = result ? result : piece_unmap(&h->pieces, i, 1);
  phase_end(h, UNMAPPING, &mark);
  result = result ? result : piece_release(&h->pieces, i);
  phase_end(h, RELEASING, &mark);
  atomic_fetch_add(h->freed_bytes, h->pieces.size);
  return result;
}

static CUresult holder_evict(struct holder *h, int window) {
  size_t count = h->pieces.count, ahead = (size_t)window;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count + ahead && !result; i++) {
    if (i >= ahead)
      result = oldest_free(h, i - ahead, window);
    if (i < count && !result)
      result = piece_out(h, i, h->p.stream);
    if (i < count && !result)
      result = TRY(cuEventRecord(h->done[i % ahead], h->p.stream));
  }
  return result;
}

static CUresult room_wait(struct holder *h, size_t bytes) {
  uint64_t end = clock_now_ns() + ROOM_SECONDS * NS_PER_S;
  while (atomic_load(h->freed_bytes) < bytes) {
    if (clock_now_ns() > end)
      return CUDA_ERROR_TIMEOUT;
    sched_yield();
  }
  return CUDA_SUCCESS;
}

static CUresult piece_make(struct holder *h, size_t i) {
  uint64_t mark = clock_now_ns();
  CUresult result = piece_create(&h->pieces, i);
  phase_end(h, CREATING, &mark);
  result = result ? result : piece_map(&h->pieces, i);
  phase_end(h, MAPPING, &mark);
  result = result ? result : piece_access(&h->pieces, i, 1);
  phase_end(h, OPENING, &mark);
  return result;
}

static CUresult holder_restore(struct holder *h, int window) {
  size_t count = h->pieces.count, ahead = (size_t)window;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; i++) {
    uint64_t mark = clock_now_ns();
    result = room_wait(h, (i + 1) * h->pieces.size);
    phase_end(h, WAIT_ROOM, &mark);
    if (i >= ahead && !result)
      result = TRY(cuEventSynchronize(h->done[i % ahead]));
    phase_end(h, WAIT_COPY, &mark);
    result = result ? result : piece_make(h, i);
    result = result ? result : piece_in(h, i, h->p.stream);
    result = result ? result : TRY(cuEventRecord(h->done[i % ahead], h->p.stream));
  }
  uint64_t mark = clock_now_ns();
  result = result ? result : TRY(cuStreamSynchronize(h->p.stream));
  phase_end(h, WAIT_COPY, &mark);
  return result;
}

static CUresult order_obey(struct holder *h, const struct order *order) {
  switch (order->op) {
  case HOLDER_OPEN:
    return holder_open(h);
  case HOLDER_SLAB:
    return holder_slab(h, order->bytes);
  case HOLDER_PREPARE:
    return holder_prepare(h, order->piece, order->resident);
  case HOLDER_COPY:
    return holder_copy(h, order->out_bytes, order->in_bytes);
  case HOLDER_EVICT:
    return holder_evict(h, order->window);
  default:
    return holder_restore(h, order->window);
  }
}

void holder_run(int fd, atomic_size_t *freed_bytes) {
  struct holder h = {.freed_bytes = freed_bytes};
  struct order order;
  while (read(fd, &order, sizeof(order)) == sizeof(order)) {
    h.report = (struct report){.start_ns = clock_now_ns()};
    h.report.result = order_obey(&h, &order);
    h.report.end_ns = clock_now_ns();
    if (write(fd, &h.report, sizeof(h.report)) != sizeof(h.report))
      break;
  }
}
