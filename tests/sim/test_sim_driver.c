/* test_sim_driver.c - look-up of functions, devices, contexts, and settings of the card. */
#include <dlfcn.h>

#include "test_sim.h"

static void *driver;

static void *look_up(const char *name, int version, cuuint64_t flags) {
  void *found = (void *)1;
  CUdriverProcAddressQueryResult status;
  OK(cuGetProcAddress(name, &found, version, flags, &status));
  CHECK_EQ(status == CU_GET_PROC_ADDRESS_SUCCESS, found != NULL);
  return found;
}

static void *symbol(const char *name) {
  void *found = dlsym(driver, name);
  if (found == NULL)
    fprintf(stderr, "no symbol %s\n", name);
  CHECK(found != NULL);
  return found;
}

static void test_look_up(void) {
  const cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                   own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CUdriverProcAddressQueryResult status;
  void *found = NULL;
  driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(driver != NULL);
  CHECK(look_up("cuMemAlloc", 12000, 0) == symbol("cuMemAlloc_v2"));
  CHECK(look_up("cuMemAlloc", 3010, 0) == symbol("cuMemAlloc"));
  CHECK(look_up("cuMemcpyHtoD", 12000, legacy) == symbol("cuMemcpyHtoD_v2"));
  CHECK(look_up("cuMemcpyHtoD", 12000, own) == symbol("cuMemcpyHtoD_v2_ptds"));
  CHECK(look_up("cuLaunchKernel", 12000, own) == symbol("cuLaunchKernel_ptsz"));
  CHECK(look_up("cuMemAlloc", 12000, own) == symbol("cuMemAlloc_v2"));
  CHECK(look_up("cuGetProcAddress", 11030, 0) == symbol("cuGetProcAddress"));
  CHECK(look_up("cuGetProcAddress", 12000, 0) == symbol("cuGetProcAddress_v2"));
  CHECK(look_up("cuMemAlloc_v2", 12000, 0) == NULL); /* not a base name */
  CHECK(look_up("cuNoSuchThing", 12000, 0) == NULL);
  OK(cuGetProcAddress("cuNoSuchThing", &found, 12000, 0, NULL));
  OK(cuGetProcAddress("cuMemAllocAsync", &found, 11010, 0, &status));
  CHECK(found == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK_EQ(cuGetProcAddress("cuInit", &found, 99000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

/* A driver of CUDA 12.1 has no cuMemAdvise of CUDA 12.2. */
static void old_driver(int fd) {
  int version;
  (void)fd;
  setenv("GPUSHARE_SIM_CARD", "small,driver_version=12010", 1);
  OK(cuDriverGetVersion(&version));
  CHECK_EQ(version, CUDA_VERSION < 12010 ? CUDA_VERSION : 12010);
  driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(look_up("cuMemAdvise", 12000, 0) == symbol("cuMemAdvise"));
  CHECK(look_up("cuStreamGetDevice", version, 0) == NULL);
}

static void test_unsupported(void) {
  CUtexObject texture;
  CHECK_EQ(cuTexObjectCreate(&texture, NULL, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- devices ---- */

static void two_cards(int fd) {
  CUuuid uuids[2];
  int count;
  CUdevice device;
  CUdeviceptr at;
  CUcontext second;
  size_t free_bytes, total;
  (void)fd;
  setenv("GPUSHARE_SIM_CARD", "small,gpus=2,capacity=64 MiB", 1);
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  CHECK_EQ(count, 2);
  OK(cuDeviceGetUuid(&uuids[0], 0));
  OK(cuDeviceGetUuid(&uuids[1], 1));
  CHECK(memcmp(&uuids[0], &uuids[1], sizeof(uuids[0])) != 0);
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  OK(cuCtxPushCurrent(second));
  OK(cuCtxGetDevice(&device));
  CHECK_EQ(device, 1);
  OK(cuMemAlloc(&at, 60 * MIB));
  OK(cuMemGetInfo(&free_bytes, &total));
  CHECK_EQ(total, 64 * MIB);
  CHECK_EQ(free_bytes, 4 * MIB);
  struct gs_sim_card card;
  CHECK_EQ(gs_sim_card_read(NULL, 0, &card), 0);
  CHECK_EQ(card.pinned_bytes, 0);
  CHECK_EQ(gs_sim_card_read(NULL, 1, &card), 0);
  CHECK_EQ(card.pinned_bytes, 60 * MIB);
  OK(cuDevicePrimaryCtxRelease(1));
  CHECK_EQ(gs_sim_card_read(NULL, 1, &card), 0);
  CHECK_EQ(card.pinned_bytes, 0);
}

static void one_of_two(int fd) {
  char name[32];
  int count;
  (void)fd;
  setenv("GPUSHARE_SIM_CARD", "small,gpus=2,capacity=64 MiB", 1);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  CHECK_EQ(count, 1);
  OK(cuDeviceGetPCIBusId(name, sizeof(name), 0));
  CHECK(strcmp(name, "0000:02:00.0") == 0);
}

static void no_card(int fd) {
  (void)fd;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

/* ---- contexts ---- */

static void *none_current(void *argument) {
  CUcontext context = (CUcontext)1;
  CUdevice device;
  (void)argument;
  OK(cuCtxGetCurrent(&context));
  CHECK(context == NULL);
  CHECK_EQ(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
  return NULL;
}

static CUresult context_create(CUcontext *context) {
#if CUDA_VERSION >= 13000
  return cuCtxCreate(context, NULL, 0, 0);
#else
  return cuCtxCreate(context, 0, 0);
#endif
}

static void contexts(int fd) {
  CUcontext primary, made, now;
  CUdeviceptr at;
  CUstream stream;
  pthread_t thread;
  struct gpu gpu;
  (void)fd;
  gpu_open(&gpu);
  primary = gpu.context;
  OK(context_create(&made));
  OK(cuCtxGetCurrent(&now));
  CHECK(now == made && made != primary);
  OK(cuMemAlloc(&at, MIB));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(spin(&gpu, stream, 20 * NS_PER_MS));
  OK(cuCtxPopCurrent(&now));
  CHECK(now == made);
  OK(cuCtxGetCurrent(&now));
  CHECK(now == primary);
  OK(cuCtxSynchronize()); /* only the primary's work */
  CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  CHECK_EQ(pthread_create(&thread, NULL, none_current, NULL), 0);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  OK(cuCtxDestroy(made));
  CHECK_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxPushCurrent(made));
  CHECK_EQ(cuMemAlloc(&at, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  OK(cuCtxPopCurrent(&now));
  gpu_close(&gpu);
}

/* The primary context's synchronisation includes green contexts, theirs does not include it. */
static void green_context(int fd) {
#if CUDA_VERSION >= 12050
  struct gpu gpu;
  CUdevResource all;
  CUdevResourceDesc description;
  CUgreenCtx green;
  CUcontext context, found;
  CUstream stream;
  gpu_open(&gpu);
  OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuDevResourceGenerateDesc(&description, &all, 1));
  OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuCtxFromGreenCtx(&context, green));
  OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  OK(cuStreamGetCtx(stream, &found));
  CHECK(found == context && context != gpu.context);
  OK(spin(&gpu, NULL, 30 * NS_PER_MS));
  OK(cuCtxPushCurrent(context));
  OK(cuCtxSynchronize());
  OK(cuCtxPopCurrent(&found));
  CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
  OK(spin(&gpu, stream, 30 * NS_PER_MS));
  OK(cuCtxSynchronize());
  OK(cuStreamQuery(stream));
  OK(cuStreamDestroy(stream));
  OK(cuGreenCtxDestroy(green));
  gpu_close(&gpu);
#endif
  (void)fd;
}

/* Work of a process that is stopped must not keep others from the card. */
static void spins_for_long(int fd) {
  struct gpu gpu;
  gpu_open(&gpu);
  OK(spin(&gpu, NULL, 60 * NS_PER_S));
  token_send(fd);
  pause();
}

static void test_stopped_process(void) {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  pid_t stopped = child_start(spins_for_long, ends[1]);
  token_receive(ends[0]);
  CHECK_EQ(kill(stopped, SIGSTOP), 0);
  CHECK_EQ(child_status(child_start(contexts, -1)), 0);
  CHECK_EQ(kill(stopped, SIGKILL), 0);
  child_status(stopped);
}

static void run(void (*test)(int fd)) { CHECK_EQ(child_status(child_start(test, -1)), 0); }

int main(void) {
  use_card("small");
  run(old_driver); /* first: a process never sees the version change */
  test_look_up();
  run(contexts);
  run(green_context);
  test_unsupported();
  test_stopped_process();
  unlink(state_path);
  run(two_cards);
  run(one_of_two);
  unlink(state_path);
  run(no_card);
  return 0;
}
