/*
 * churn.c - a program that does to its memory whatever programs do, at random, and knows at every moment what
 * each byte of it should be: allocations of all kinds and sizes, kernels, copies, sets, graphs, streams,
 * threads. It knows nothing of gpushare. On the simulated driver, and on a real one.
 *
 * usage: churn [options]
 *   --bytes SIZE     memory of all threads together (64M)    --max SIZE       of one allocation (a half of a
 *   --threads N      each with its own memory (2)                             thread's memory)
 *   --seconds N      end after so long                       --operations N   or when each thread has done so
 * many;
 *   --seed N         repeats what each thread does                            neither: when stdin ends
 *   --contexts N     spread the threads over so many (1)     --wait           after "ready", wait for a line
 *   --progress       say "on" now and then
 *
 * Says on stdout: seed, ready, sums, ok; or "mismatch ..." and "error ..." and exits with 1.
 */
#include <getopt.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "system/kernel_image.h"
#include "worker.h"

enum { THREADS_MAX = 16, CONTEXTS_MAX = 4, PAUSE_NS_MAX = 50000000 };

static struct {
  uint64_t bytes, largest_bytes, seconds, operations, seed;
  int threads, contexts, wait, progress;
} options = {.bytes = 64 << 20, .threads = 2, .contexts = 1};

static struct worker workers[THREADS_MAX];
static struct place places[CONTEXTS_MAX];
static pthread_barrier_t started;
static uint64_t end_ns;
static atomic_bool stopped;
pthread_rwlock_t capture_lock = PTHREAD_RWLOCK_INITIALIZER;

/* ---- ends ---- */

static void print_sums(void) {
  struct tally sum = {0};
  for (int i = 0; i < options.threads; i++) {
    const struct tally *own = &workers[i].tally;
    sum.operations += own->operations;
    sum.allocations += own->allocations;
    sum.frees += own->frees;
    sum.refused += own->refused;
    sum.recordings += own->recordings;
    sum.launches += own->launches;
    sum.checks += own->checks;
    sum.checked_bytes += own->checked_bytes;
  }
  printf("operations %llu allocations %llu frees %llu refused %llu graphs %llu launches %llu checks %llu "
         "bytes %llu\n",
         (unsigned long long)sum.operations, (unsigned long long)sum.allocations,
         (unsigned long long)sum.frees, (unsigned long long)sum.refused, (unsigned long long)sum.recordings,
         (unsigned long long)sum.launches, (unsigned long long)sum.checks,
         (unsigned long long)sum.checked_bytes);
}

/* Other threads may be inside the driver. */
_Noreturn void give_up(void) {
  printf("seed %llu\n", (unsigned long long)options.seed);
  print_sums();
  fflush(stdout);
  _Exit(1);
}

void must(CUresult result, const char *call) {
  const char *name = "?";
  if (result == CUDA_SUCCESS)
    return;
  cuGetErrorName(result, &name);
  printf("error %.100s: %s (%d)\n", call, name, (int)result);
  give_up();
}

/* ---- chance ---- */

uint64_t random_number(struct worker *worker) {
  worker->random ^= worker->random >> 12;
  worker->random ^= worker->random << 25;
  worker->random ^= worker->random >> 27;
  return worker->random * UINT64_C(0x2545f4914f6cdd1d);
}

uint64_t random_below(struct worker *worker, uint64_t limit) { return (random_number(worker) >> 16) % limit; }

bool one_in(struct worker *worker, uint64_t cases) { return random_below(worker, cases) == 0; }

uint64_t random_size(struct worker *worker, uint64_t most) {
  unsigned bits = 0;
  while (most >> bits > 1)
    bits++;
  uint64_t limit = UINT64_C(1) << random_below(worker, bits + 1);
  uint64_t size = limit + random_below(worker, limit);
  return size < most ? size : most;
}

/* ---- one step ---- */

/* A model in many pieces slows everything down: so much has been done to this buffer that it starts afresh.
 */
static void settle(struct worker *worker) {
  for (int i = 0; i < worker->count; i++)
    if (worker->buffers[i]->model.count > RUNS_MAX) {
      check_buffer(worker, worker->buffers[i]);
      buffer_fill_all(worker, worker->buffers[i]);
    }
}

static void allocate(struct worker *worker) {
  struct buffer *buffer = buffer_create(worker);
  if (buffer)
    buffer_fill_all(worker, buffer);
}

static void release(struct worker *worker) {
  struct buffer *buffer = buffer_random(worker);
  if (one_in(worker, 4))
    check_buffer(worker, buffer);
  buffer_destroy(worker, buffer);
}

static bool is_full(const struct worker *worker) {
  return worker->count == BUFFERS_MAX || worker->used_bytes > worker->share_bytes - worker->share_bytes / 16;
}

/* As a program that loads its data, or waits for its user; others may have the GPU when it goes on. */
static void pause_somewhat(struct worker *worker) {
  nanosleep(&(struct timespec){.tv_nsec = (long)random_size(worker, PAUSE_NS_MAX)}, NULL);
}

static void change_something(struct worker *worker) {
  const struct operation operation = operation_random(worker);
  operation_do(worker, &operation);
}

static void step(struct worker *worker) {
  uint64_t dice = random_below(worker, 100);
  if (worker->count == 0 || (dice < 6 && !is_full(worker)))
    allocate(worker);
  else if (dice < 6 || (dice < 8 && worker->count > 1))
    release(worker);
  else if (dice < 52)
    change_something(worker);
  else if (dice < 60)
    buffer_upload(worker, buffer_random(worker));
  else if (dice < 68)
    check_something(worker);
  else if (dice < 72)
    recording_make(worker);
  else if (dice < 84)
    recording_launch(worker);
  else if (dice < 90)
    buffer_check_address(worker, buffer_random(worker));
  else if (dice < 97)
    lanes_wait_somehow(worker);
  else if (dice < 98 && one_in(worker, 6))
    check_all(worker);
  else
    pause_somewhat(worker);
  settle(worker);
}

/* ---- threads ---- */

static void start_worker(struct worker *worker) {
  MUST(cuCtxSetCurrent(worker->place->context));
  lanes_open(worker);
  MUST(cuMemAllocHost((void **)&worker->pinned, CHUNK_BYTES));
  MUST(cuMemAlloc(&worker->counter, sizeof(uint64_t)));
  worker->pageable = malloc(CHUNK_BYTES);
  worker->expected = malloc(CHUNK_BYTES + 16);
  if (!worker->pageable || !worker->expected)
    abort();
}

static void end_worker(struct worker *worker) {
  check_all(worker);
  recordings_drop(worker, NULL);
  while (worker->count)
    buffer_destroy(worker, worker->buffers[0]);
  MUST(cuMemFree(worker->counter));
  MUST(cuMemFreeHost(worker->pinned));
  lanes_close(worker);
  free(worker->pageable);
  free(worker->expected);
}

static bool goes_on(const struct worker *worker) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  if (options.operations)
    return worker->tally.operations < options.operations;
  if (options.seconds)
    return clock_now_ns() < end_ns;
  if (worker->index == 0 && poll(&input, 1, 0) > 0)
    atomic_store(&stopped, true);
  return !atomic_load(&stopped);
}

static void *work(void *argument) {
  struct worker *worker = argument;
  start_worker(worker);
  pthread_barrier_wait(&started); /* "ready" */
  pthread_barrier_wait(&started); /* go */
  for (unsigned steps = 1; goes_on(worker); steps++) {
    step(worker);
    if (options.progress && steps % 16 == 0)
      printf("on\n");
  }
  end_worker(worker);
  return NULL;
}

static void make_context(CUcontext *context, int index) {
  if (index == 0) {
    MUST(cuDevicePrimaryCtxRetain(context, 0));
    MUST(cuCtxSetCurrent(*context));
    return;
  }
#if CUDA_VERSION >= 13000
  MUST(cuCtxCreate(context, NULL, 0, 0));
#else
  MUST(cuCtxCreate(context, 0, 0));
#endif
}

static void make_place(struct place *place, int index) {
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  cuuint64_t keep = options.bytes / 16;
  CUmodule module;
  MUST(cuDeviceGet(&place->device, 0));
  make_context(&place->context, index);
  MUST(cuModuleLoadData(&module, kernel_image()));
  MUST(cuModuleGetFunction(&place->fill, module, "gs_fill"));
  MUST(cuModuleGetFunction(&place->add, module, "gs_add"));
  MUST(cuModuleGetFunction(&place->check, module, "gs_check"));
  MUST(cuModuleGetFunction(&place->spin, module, "gs_spin"));
  MUST(cuMemPoolCreate(&place->pool, &props));
  if (index == 0) /* some of what is freed stays with this one */
    MUST(cuMemPoolSetAttribute(place->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

static void start_threads(void) {
  pthread_barrier_init(&started, NULL, (unsigned)options.threads + 1);
  for (int i = 0; i < options.threads; i++) {
    struct worker *worker = &workers[i];
    worker->index = i;
    worker->place = &places[i % options.contexts];
    worker->random = gs_hash(options.seed, (uint64_t)i) | 1;
    worker->share_bytes = options.bytes / (uint64_t)options.threads;
    worker->largest_bytes = options.largest_bytes ? options.largest_bytes : worker->share_bytes / 2;
    pthread_create(&worker->thread, NULL, work, worker);
  }
}

/* ---- options ---- */

static uint64_t number_within(const char *text, uint64_t least, uint64_t most) {
  char *end;
  uint64_t number = strtoull(text, &end, 0);
  if (*end || number < least || number > most) {
    fprintf(stderr, "churn: %s is not within %llu..%llu\n", text, (unsigned long long)least,
            (unsigned long long)most);
    exit(2);
  }
  return number;
}

static void parse_options(int argc, char **argv) {
  static const struct option list[] = {
      {"bytes", 1, NULL, 'b'},    {"max", 1, NULL, 'm'},         {"threads", 1, NULL, 't'},
      {"seconds", 1, NULL, 's'},  {"operations", 1, NULL, 'o'},  {"seed", 1, NULL, 'r'},
      {"contexts", 1, NULL, 'c'}, {"wait", 0, &options.wait, 1}, {"progress", 0, &options.progress, 1},
      {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
    if (option == '?' || (option == 'b' && parse_bytes(optarg, &options.bytes) != 0) ||
        (option == 'm' && parse_bytes(optarg, &options.largest_bytes) != 0))
      exit(2);
    if (option == 't')
      options.threads = (int)number_within(optarg, 1, THREADS_MAX);
    else if (option == 'c')
      options.contexts = (int)number_within(optarg, 1, CONTEXTS_MAX);
    else if (option == 's')
      options.seconds = number_within(optarg, 1, 86400);
    else if (option == 'o')
      options.operations = number_within(optarg, 1, UINT64_MAX);
    else if (option == 'r')
      options.seed = number_within(optarg, 1, UINT64_MAX);
  }
  if (options.seed == 0)
    options.seed = (clock_now_ns() ^ (uint64_t)getpid() << 32) | 1;
}

static void wait_for_line(void) {
  char line[64];
  if (!fgets(line, sizeof line, stdin))
    exit(3);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  parse_options(argc, argv);
  printf("seed %llu\n", (unsigned long long)options.seed);
  must(cuInit(0), "cuInit");
  for (int i = 0; i < options.contexts; i++)
    make_place(&places[i], i);
  start_threads();
  pthread_barrier_wait(&started);
  printf("ready\n");
  if (options.wait)
    wait_for_line();
  end_ns = clock_now_ns() + options.seconds * NS_PER_S;
  pthread_barrier_wait(&started);
  for (int i = 0; i < options.threads; i++)
    pthread_join(workers[i].thread, NULL);
  print_sums();
  printf("ok\n");
  return 0;
}
