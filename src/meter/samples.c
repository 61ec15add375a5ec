/* samples.c - the events around what is measured. See samples.h. */
#include "meter/samples.h"

#include <pthread.h>
#include <stddef.h>

#include "common/clock.h"
#include "common/lock.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/limit.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "meter/costs.h"
#include "meter/page.h"

#define SAMPLES_MAX 16

/* A kind of work that has been measured less often is worth measuring. */
#define ENOUGH 3

enum state { FREE, SUBMITTING, RUNNING };

struct sample {
  enum state state;
  CUcontext context; /* of the events; NULL: there are none */
  CUevent begin, end;
  CUstream stream;
  const struct gate_slot *thread; /* whose per-thread stream it is; NULL: any other stream */
  struct cost_key key;
  bool is_kernel;
  bool undisturbed;
  bool interrupted;    /* stopped in its middle */
  uint64_t charged_ns; /* 0: nothing */
  uint64_t submitted_ns;
};

/* Protects all below. Never held over a call of the driver. Who submits a sample, and then who collects it,
 * needs no lock for its fields. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sample samples[SAMPLES_MAX];
static struct costs costs;
static struct samples_sums sums[GS_GPUS_PER_CLIENT];

/* Copies of about the same size are one kind. */
static struct cost_key key_of(CUdevice device, const struct meter_work *work) {
  uint64_t amount = work->amount.blocks;
  if (!work->amount.kernels && work->amount.bytes)
    amount = UINT64_C(1) << (63 - __builtin_clzll(work->amount.bytes));
  return (struct cost_key){.what = work->what, .amount = amount, .device = device};
}

uint64_t samples_cost_ns(CUdevice device, const struct meter_work *work) {
  struct cost_key key = key_of(device, work);
  lock_take(&lock);
  uint64_t cost_ns = costs_of(&costs, &key);
  lock_release(&lock);
  return cost_ns;
}

/* What the thread has been charged for last. */
static __thread struct cost_key charged __attribute__((tls_model("initial-exec")));

struct samples_charge samples_charge(CUdevice device, const struct meter_work *work) {
  struct cost_key key = key_of(device, work);
  lock_take(&lock);
  struct samples_charge charge = {costs_of(&costs, &key), costs_next(&costs, &key)};
  costs_follow(&costs, &charged, charge.ns);
  lock_release(&lock);
  charged = key;
  return charge;
}

uint64_t samples_mean_ns(void) {
  lock_take(&lock);
  uint64_t mean_ns = costs.mean_ns;
  lock_release(&lock);
  return mean_ns;
}

bool samples_lack(CUdevice device, const struct meter_work *work) {
  struct cost_key key = key_of(device, work);
  lock_take(&lock);
  const struct cost *cost = costs_find(&costs, &key);
  bool lack = !cost || cost->samples < ENOUGH;
  lock_release(&lock);
  return lack;
}

/* ---- submission ---- */

static const struct gate_slot *thread_of(CUstream stream) {
  return stream == CU_STREAM_PER_THREAD ? gate_slot : NULL;
}

static bool is_measured(CUcontext context, CUstream stream) {
  for (const struct sample *s = samples; s < samples + SAMPLES_MAX; s++)
    if (s->state != FREE && s->context == context && s->stream == stream && s->thread == thread_of(stream))
      return true;
  return false;
}

/* One with events of this context, else one without; else any. */
static struct sample *find_free(CUcontext context) {
  struct sample *best = NULL;
  for (struct sample *s = samples; s < samples + SAMPLES_MAX; s++) {
    if (s->state != FREE)
      continue;
    if (s->context == context)
      return s;
    if (!best || !s->context)
      best = s;
  }
  return best;
}

static struct sample *take(CUcontext context, CUstream stream) {
  lock_take(&lock);
  struct sample *sample = is_measured(context, stream) ? NULL : find_free(context);
  if (sample) {
    sample->state = SUBMITTING;
    sample->interrupted = false;
    sample->stream = stream;
    sample->thread = thread_of(stream);
  }
  lock_release(&lock);
  return sample;
}

static void set_state(struct sample *sample, enum state state) {
  lock_take(&lock);
  sample->state = sample->context ? state : FREE; /* the context may be gone */
  lock_release(&lock);
}

static void set_events(struct sample *sample, CUcontext context, CUevent begin, CUevent end) {
  lock_take(&lock);
  sample->context = context;
  sample->begin = begin;
  sample->end = end;
  lock_release(&lock);
}

static void destroy_events(struct sample *sample) {
  if (!sample->context)
    return;
  driver.cuEventDestroy_v2(sample->begin);
  driver.cuEventDestroy_v2(sample->end);
  set_events(sample, NULL, NULL, NULL);
}

/* The stream need not be of the context that is current. */
static bool make_events(struct sample *sample, CUcontext context) {
  CUevent begin = NULL, end = NULL;
  if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
    return false;
  bool made = driver.cuEventCreate(&begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
  made = made && driver.cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
  if (!made && begin)
    driver.cuEventDestroy_v2(begin);
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  if (made)
    set_events(sample, context, begin, end);
  return made;
}

static bool prepare(struct sample *sample, CUcontext context) {
  if (sample->context == context)
    return true;
  destroy_events(sample);
  return make_events(sample, context);
}

static void describe(struct sample *sample, CUdevice device, const struct meter_work *work) {
  struct gs_meter *page = page_of(device);
  sample->key = key_of(device, work);
  sample->is_kernel = work->amount.kernels > 0;
  sample->undisturbed = page && atomic_load(&page->undisturbed);
  sample->charged_ns = gate_is_limited(device) ? samples_cost_ns(device, work) : 0;
}

struct sample *sample_begin(CUdevice device, CUstream stream, const struct meter_work *work) {
  stream = stream == CU_STREAM_LEGACY ? NULL : stream;
  CUcontext context = capture_count() ? NULL : streams_context(stream);
  struct sample *sample = context ? take(context, stream) : NULL;
  if (!sample)
    return NULL;
  /* Should a capture begin just now, in another thread, our events must not break it. */
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  bool begun = prepare(sample, context) && driver.cuEventRecord(sample->begin, stream) == CUDA_SUCCESS;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  if (begun)
    describe(sample, device, work);
  else
    set_state(sample, FREE);
  return begun ? sample : NULL;
}

void sample_end(struct sample *sample, bool submitted) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  bool ended = submitted && driver.cuEventRecord(sample->end, sample->stream) == CUDA_SUCCESS;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  sample->submitted_ns = clock_now_ns();
  set_state(sample, ended ? RUNNING : FREE);
}

/* ---- collection ---- */

static void learn(const struct sample *sample, uint64_t took_ns) {
  CUdevice device = sample->key.device;
  struct gs_meter *page = page_of(device);
  bool undisturbed = sample->undisturbed && page && atomic_load(&page->undisturbed);
  lock_take(&lock);
  costs_learn(&costs, &sample->key, took_ns, undisturbed);
  uint64_t expected_ns = costs_find(&costs, &sample->key)->expected_ns;
  if (expected_ns && sample->is_kernel) {
    sums[device].count++;
    sums[device].sampled_ns += took_ns;
    sums[device].expected_ns += expected_ns;
  }
  lock_release(&lock);
  if (sample->charged_ns && gate_is_limited(device))
    limit_correct(device, (int64_t)took_ns - (int64_t)sample->charged_ns);
}

/* True once it is no longer running. */
static bool collect(const struct sample *sample) {
  float ms = 0;
  CUresult result = driver.cuEventQuery(sample->end);
  if (result == CUDA_ERROR_NOT_READY)
    return false;
  if (result == CUDA_SUCCESS)
    result = driver.cuEventElapsedTime(&ms, sample->begin, sample->end);
  if (result == CUDA_SUCCESS && ms >= 0 && !sample->interrupted)
    learn(sample, (uint64_t)((double)ms * (double)NS_PER_MS + 0.5));
  return true;
}

void samples_interrupted(CUdevice device) {
  lock_take(&lock);
  for (struct sample *s = samples; s < samples + SAMPLES_MAX; s++)
    s->interrupted |= s->state != FREE && s->key.device == device;
  lock_release(&lock);
}

struct collection {
  CUdevice device;
  uint64_t oldest_ns; /* submission that has not finished */
};

static bool is_running(const struct sample *sample, CUcontext context, CUdevice device) {
  lock_take(&lock);
  bool is = sample->state == RUNNING && sample->context == context && sample->key.device == device;
  lock_release(&lock);
  return is;
}

/* The context stays as long as it is visited, and the events with it. */
static bool collect_context(CUcontext context, void *argument) {
  struct collection *collection = argument;
  for (struct sample *s = samples; s < samples + SAMPLES_MAX; s++) {
    if (!is_running(s, context, collection->device))
      continue;
    if (collect(s))
      set_state(s, FREE);
    else if (s->submitted_ns < collection->oldest_ns)
      collection->oldest_ns = s->submitted_ns;
  }
  return true;
}

static bool is_any_running(CUdevice device) {
  bool any = false;
  lock_take(&lock);
  for (const struct sample *s = samples; s < samples + SAMPLES_MAX; s++)
    any |= s->state == RUNNING && s->key.device == device;
  lock_release(&lock);
  return any;
}

uint64_t samples_collect(CUdevice device) {
  if (!is_any_running(device))
    return 0;
  struct collection collection = {.device = device, .oldest_ns = UINT64_MAX};
  uint64_t now_ns = clock_now_ns();
  contexts_each(device, collect_context, &collection);
  return collection.oldest_ns < now_ns ? now_ns - collection.oldest_ns : 0;
}

struct samples_sums samples_sums(CUdevice device) {
  lock_take(&lock);
  struct samples_sums now = sums[device];
  lock_release(&lock);
  return now;
}

void samples_context_gone(CUcontext context) {
  lock_take(&lock);
  for (struct sample *s = samples; s < samples + SAMPLES_MAX; s++)
    if (s->context == context) {
      s->context = NULL;
      s->state = s->state == RUNNING ? FREE : s->state;
    }
  lock_release(&lock);
}

void samples_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  for (struct sample *s = samples; s < samples + SAMPLES_MAX; s++)
    *s = (struct sample){0};
}
