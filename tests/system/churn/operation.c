/* operation.c - changes of memory: chosen, submitted in one of the driver's many ways, followed by the model.
 */
#include <string.h>

#include "worker.h"

enum { ROWS_MAX = 12, ROW_BYTES_MAX = 2048, UPLOAD_BYTES_MAX = 256 * 1024 };

struct range {
  uint64_t at, bytes;
};

/* The whole, or some part of it. */
static struct range range_random(struct worker *worker, uint64_t bytes) {
  if (one_in(worker, 5))
    return (struct range){0, bytes};
  uint64_t some = random_size(worker, bytes);
  return (struct range){random_below(worker, bytes - some + 1), some};
}

/* Whole words within; none if the range has none. */
static struct range range_words(struct range range) {
  uint64_t start = (range.at + 7) / 8 * 8, end = (range.at + range.bytes) / 8 * 8;
  return (struct range){start, end > start ? end - start : 0};
}

/* ---- choosing ---- */

uint64_t pattern_random(struct worker *worker, unsigned element) {
  uint64_t value = random_number(worker);
  if (element == 1)
    return (value & 0xff) * UINT64_C(0x0101010101010101);
  return element == 2 ? (value & 0xffff) * UINT64_C(0x0001000100010001)
                      : (value & 0xffffffff) * UINT64_C(0x0000000100000001);
}

static struct operation set_random(struct worker *worker, struct buffer *buffer) {
  struct range range = range_random(worker, buffer->bytes);
  unsigned element = 1u << random_below(worker, 3);
  uint64_t end = (range.at + range.bytes) / element * element;
  range.at = (range.at + element - 1) / element * element;
  if (end <= range.at) {
    element = 1;
    range = (struct range){0, buffer->bytes};
    end = range.bytes;
  }
  return (struct operation){.kind = OPERATION_SET,
                            .to = buffer,
                            .to_at = range.at,
                            .bytes = end - range.at,
                            .rows = 1,
                            .element = element,
                            .value = pattern_random(worker, element)};
}

/* Rows of a plane within a range: whole words everywhere, so that the model stays small. */
static bool rows_random(struct worker *worker, uint64_t bytes, uint64_t *width, uint64_t *rows,
                        uint64_t *pitch) {
  *width = (random_size(worker, ROW_BYTES_MAX) + 7) / 8 * 8;
  *pitch = *width + random_below(worker, 64) * 8;
  *rows = 2 + random_below(worker, ROWS_MAX - 1);
  return (*rows - 1) * *pitch + *width <= bytes;
}

static struct operation set_rows_random(struct worker *worker, struct buffer *buffer) {
  struct operation set = {.kind = OPERATION_SET, .to = buffer, .element = 1u << random_below(worker, 3)};
  if (!rows_random(worker, buffer->bytes, &set.bytes, &set.rows, &set.to_pitch))
    return set_random(worker, buffer);
  uint64_t span = (set.rows - 1) * set.to_pitch + set.bytes;
  set.to_at = random_below(worker, (buffer->bytes - span) / 8 + 1) * 8;
  set.value = pattern_random(worker, set.element);
  return set;
}

/* Within one buffer, source and target lie in different halves. */
static struct range half(const struct buffer *buffer, bool upper, bool shared) {
  uint64_t middle = buffer->bytes / 2;
  if (!shared)
    return (struct range){0, buffer->bytes};
  return upper ? (struct range){middle, buffer->bytes - middle} : (struct range){0, middle};
}

static struct operation copy_rows(struct worker *worker, struct operation copy, struct range to,
                                  struct range from) {
  uint64_t width, rows, pitches[2];
  if (!rows_random(worker, to.bytes, &width, &rows, &pitches[0]))
    return set_random(worker, copy.to);
  pitches[1] = width + random_below(worker, 64) * 8;
  uint64_t to_span = (rows - 1) * pitches[0] + width, from_span = (rows - 1) * pitches[1] + width;
  if (from_span + 8 > from.bytes || to_span + 8 > to.bytes)
    return set_random(worker, copy.to);
  copy.to_at = (to.at + random_below(worker, to.bytes - to_span - 7) + 7) / 8 * 8;
  copy.from_at = (from.at + random_below(worker, from.bytes - from_span - 7) + 7) / 8 * 8;
  copy.bytes = width;
  copy.rows = rows;
  copy.to_pitch = pitches[0];
  copy.from_pitch = pitches[1];
  return copy;
}

/* Any two places, if it is short; else of the same alignment, which the model needs. */
static struct operation copy_line(struct worker *worker, struct operation copy, struct range to,
                                  struct range from) {
  uint64_t most = to.bytes < from.bytes ? to.bytes : from.bytes;
  if (most < 16)
    return set_random(worker, copy.to);
  copy.bytes = one_in(worker, 5) ? most - 8 : random_size(worker, most - 8);
  copy.to_at = to.at + random_below(worker, to.bytes - copy.bytes - 7);
  copy.from_at = from.at + random_below(worker, from.bytes - copy.bytes - 7);
  if (copy.bytes > MODEL_LITERAL_BYTES)
    copy.from_at += (copy.to_at - copy.from_at) % 8;
  return copy;
}

static struct operation copy_between(struct worker *worker, struct buffer *to, struct buffer *from,
                                     bool plane) {
  const struct operation copy = {.kind = OPERATION_COPY, .to = to, .from = from, .rows = 1};
  bool upper = one_in(worker, 2), shared = to == from;
  struct range target = half(to, upper, shared), source = half(from, !upper, shared);
  return plane ? copy_rows(worker, copy, target, source) : copy_line(worker, copy, target, source);
}

static struct operation kernel_random(struct worker *worker, enum operation_kind kind,
                                      struct buffer *buffer) {
  struct range range = range_words(range_random(worker, buffer->bytes));
  if (range.bytes == 0)
    return set_random(worker, buffer);
  return (struct operation){.kind = kind,
                            .to = buffer,
                            .to_at = range.at,
                            .bytes = range.bytes,
                            .rows = 1,
                            .value = random_number(worker)};
}

struct operation operation_random(struct worker *worker) {
  struct buffer *buffer = buffer_random(worker);
  switch (random_below(worker, 12)) {
  case 0:
  case 1:
    return kernel_random(worker, OPERATION_FILL, buffer);
  case 2:
  case 3:
    return set_random(worker, buffer);
  case 4:
    return set_rows_random(worker, buffer);
  case 5:
  case 6:
    return copy_between(worker, buffer, buffer_random(worker), false);
  case 7:
    return copy_between(worker, buffer, buffer_random(worker), true);
  default:
    return kernel_random(worker, OPERATION_ADD, buffer);
  }
}

struct operation operation_like(struct worker *worker, const struct operation *operation) {
  return operation->kind == OPERATION_COPY ? copy_between(worker, operation->to, operation->from, false)
                                           : kernel_random(worker, operation->kind, operation->to);
}

/* ---- submitting ---- */

unsigned grid_of(uint64_t words) {
  uint64_t blocks = (words + BLOCK_THREADS - 1) / BLOCK_THREADS;
  return blocks > 4096 ? 4096 : (unsigned)blocks;
}

static void kernel_submit(struct worker *worker, const struct operation *operation, CUstream stream) {
  CUdeviceptr at = operation->to->at + operation->to_at;
  uint64_t words = operation->bytes / 8, value = operation->value;
  CUfunction function = operation->kind == OPERATION_FILL ? worker->place->fill : worker->place->add;
  MUST(cuLaunchKernel(function, grid_of(words), 1, 1, BLOCK_THREADS, 1, 1, 0, stream,
                      (void *[]){&at, &words, &value}, NULL));
}

/* Without a stream there are calls without one, too. */
static void set_line(const struct operation *set, CUstream stream, bool streamless) {
  CUdeviceptr at = set->to->at + set->to_at;
  uint64_t count = set->bytes / set->element;
  if (set->element == 1)
    MUST(streamless ? cuMemsetD8(at, (unsigned char)set->value, count)
                    : cuMemsetD8Async(at, (unsigned char)set->value, count, stream));
  else if (set->element == 2)
    MUST(streamless ? cuMemsetD16(at, (unsigned short)set->value, count)
                    : cuMemsetD16Async(at, (unsigned short)set->value, count, stream));
  else
    MUST(streamless ? cuMemsetD32(at, (unsigned)set->value, count)
                    : cuMemsetD32Async(at, (unsigned)set->value, count, stream));
}

static void set_plane(const struct operation *set, CUstream stream) {
  CUdeviceptr at = set->to->at + set->to_at;
  uint64_t width = set->bytes / set->element;
  if (set->element == 1)
    MUST(cuMemsetD2D8Async(at, set->to_pitch, (unsigned char)set->value, width, set->rows, stream));
  else if (set->element == 2)
    MUST(cuMemsetD2D16Async(at, set->to_pitch, (unsigned short)set->value, width, set->rows, stream));
  else
    MUST(cuMemsetD2D32Async(at, set->to_pitch, (unsigned)set->value, width, set->rows, stream));
}

static void copy_plane(const struct operation *copy, CUstream stream, bool streamless) {
  const CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = copy->from->at + copy->from_at,
                               .srcPitch = copy->from_pitch,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = copy->to->at + copy->to_at,
                               .dstPitch = copy->to_pitch,
                               .WidthInBytes = copy->bytes,
                               .Height = copy->rows};
  MUST(streamless ? cuMemcpy2DUnaligned(&plane) : cuMemcpy2DAsync(&plane, stream));
}

static void copy_submit(struct worker *worker, const struct operation *copy, CUstream stream,
                        bool streamless) {
  CUdeviceptr to = copy->to->at + copy->to_at, from = copy->from->at + copy->from_at;
  bool untyped = one_in(worker, 3);
  if (streamless)
    MUST(untyped ? cuMemcpy(to, from, copy->bytes) : cuMemcpyDtoD(to, from, copy->bytes));
  else
    MUST(untyped ? cuMemcpyAsync(to, from, copy->bytes, stream)
                 : cuMemcpyDtoDAsync(to, from, copy->bytes, stream));
}

void operation_submit(struct worker *worker, const struct operation *operation, CUstream stream) {
  bool streamless = stream == NULL && one_in(worker, 2);
  if (operation->kind == OPERATION_SET && operation->rows > 1)
    set_plane(operation, stream);
  else if (operation->kind == OPERATION_SET)
    set_line(operation, stream, streamless);
  else if (operation->kind == OPERATION_COPY && operation->rows > 1)
    copy_plane(operation, stream, streamless);
  else if (operation->kind == OPERATION_COPY)
    copy_submit(worker, operation, stream, streamless);
  else
    kernel_submit(worker, operation, stream);
}

void operation_apply(const struct operation *operation) {
  struct model *model = &operation->to->model;
  for (uint64_t row = 0; row < operation->rows; row++) {
    uint64_t at = operation->to_at + row * operation->to_pitch;
    if (operation->kind == OPERATION_FILL)
      model_fill(model, at / 8, operation->bytes / 8, operation->value);
    else if (operation->kind == OPERATION_ADD)
      model_add(model, at / 8, operation->bytes / 8, operation->value);
    else if (operation->kind == OPERATION_SET)
      model_set(model, at, operation->bytes, operation->value);
    else
      model_copy(model, at, &operation->from->model, operation->from_at + row * operation->from_pitch,
                 operation->bytes);
  }
}

void operation_do(struct worker *worker, const struct operation *operation) {
  enum lane_name lane = lane_random(worker);
  if (operation->from)
    lane_take(worker, lane, operation->from);
  lane_take(worker, lane, operation->to);
  operation_submit(worker, operation, worker->lanes[lane].stream);
  operation_apply(operation);
  worker->tally.operations++;
}

void buffer_fill_all(struct worker *worker, struct buffer *buffer) {
  uint64_t whole = buffer->bytes / 8 * 8;
  struct operation fill = {.kind = OPERATION_FILL, .to = buffer, .bytes = whole, .rows = 1};
  struct operation rest = {.kind = OPERATION_SET, .to = buffer, .rows = 1, .element = 1};
  fill.value = random_number(worker);
  rest.value = pattern_random(worker, 1);
  rest.to_at = one_in(worker, 4) ? 0 : whole;
  rest.bytes = buffer->bytes - rest.to_at;
  if (rest.to_at > 0)
    operation_do(worker, &fill);
  if (rest.bytes > 0)
    operation_do(worker, &rest);
}

/* ---- from the host ---- */

static void upload_words(struct worker *worker, struct buffer *buffer, struct range range, uint64_t seed) {
  enum lane_name lane = lane_random(worker);
  CUdeviceptr at = buffer->at + range.at;
  bool pinned = one_in(worker, 2);
  char *data = pinned ? worker->pinned : worker->pageable;
  for (uint64_t i = 0; i < range.bytes / 8; i++)
    ((uint64_t *)data)[i] = gs_hash(seed, i);
  lane_take(worker, lane, buffer);
  if (lane == LANE_LEGACY)
    MUST(cuMemcpyHtoD(at, data, range.bytes));
  else
    MUST(cuMemcpyHtoDAsync(at, data, range.bytes, worker->lanes[lane].stream));
  if (pinned || one_in(worker, 3))
    lane_wait(worker, lane);
  model_fill(&buffer->model, range.at / 8, range.bytes / 8, seed);
}

static void upload_bytes(struct worker *worker, struct buffer *buffer, struct range range) {
  unsigned char data[MODEL_LITERAL_BYTES];
  enum lane_name lane = lane_random(worker);
  for (uint64_t i = 0; i < range.bytes; i++)
    data[i] = (unsigned char)random_number(worker);
  lane_take(worker, lane, buffer);
  MUST(cuMemcpyHtoDAsync(buffer->at + range.at, data, range.bytes, worker->lanes[lane].stream));
  model_write(&buffer->model, range.at, range.bytes, data);
}

/* Pageable memory may be used again when the call returns; pinned memory when the copy is done. */
void buffer_upload(struct worker *worker, struct buffer *buffer) {
  struct range range = range_random(worker, buffer->bytes), words = range_words(range);
  if (words.bytes > UPLOAD_BYTES_MAX)
    words.bytes = UPLOAD_BYTES_MAX;
  if (words.bytes >= MODEL_LITERAL_BYTES || range.bytes > MODEL_LITERAL_BYTES)
    upload_words(worker, buffer, words, random_number(worker));
  else
    upload_bytes(worker, buffer, range);
  worker->tally.operations++;
}
