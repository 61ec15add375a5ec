/* workload.c - the work that every linking mode does: fill, add, check on the device, verify on the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "sim/kernels.h"

static const struct device *device;

static int failed(const char *what, int error) {
  if (error)
    printf("error %s: %d\n", what, error);
  return error;
}

static uint64_t sum_of_deltas(int rounds) { return (uint64_t)rounds * ((uint64_t)rounds + 1) / 2; }

static int run_rounds(uint64_t address, uint64_t words, int rounds) {
  int error = 0;
  unsigned blocks = (unsigned)((words + DEVICE_BLOCK_THREADS - 1) / DEVICE_BLOCK_THREADS);
  for (uint64_t delta = 1; !error && delta <= (uint64_t)rounds; delta++) {
    error = device->launch("gs_add", blocks, (void *[]){&address, &words, &delta});
    if (!error && delta % 4 == 0)
      error = device->finish();
  }
  return error ? error : device->finish();
}

/* The device's own check, after a fill: how many words differ. */
static int check_on_device(uint64_t address, uint64_t words, uint64_t seed, uint64_t *mismatches) {
  uint64_t counter = 0, zero = 0;
  unsigned blocks = (unsigned)((words + DEVICE_BLOCK_THREADS - 1) / DEVICE_BLOCK_THREADS);
  int error = device->alloc(&counter, sizeof zero);
  if (!error)
    error = device->to_device(counter, &zero, sizeof zero);
  if (!error)
    error = device->launch("gs_check", blocks, (void *[]){&address, &words, &seed, &counter});
  if (!error)
    error = device->to_host(mismatches, counter, sizeof *mismatches);
  return error ? error : device->release(counter);
}

static int verify_on_host(uint64_t address, uint64_t words, uint64_t seed, uint64_t added) {
  uint64_t *host = malloc(words * sizeof *host);
  int error = host ? device->to_host(host, address, words * sizeof *host) : 1;
  uint64_t wrong = 0;
  for (uint64_t i = 0; !error && i < words; i++)
    wrong += host[i] != gs_hash(seed, i) + added;
  free(host);
  if (wrong)
    printf("error: %llu words are wrong\n", (unsigned long long)wrong);
  return error || wrong;
}

static int run(uint64_t bytes, int rounds) {
  uint64_t address = 0, mismatches = 1, seed = (uint64_t)getpid(), words = bytes / sizeof(uint64_t);
  unsigned blocks = (unsigned)((words + DEVICE_BLOCK_THREADS - 1) / DEVICE_BLOCK_THREADS);
  char line[16];
  if (failed("alloc", device->alloc(&address, bytes)))
    return 1;
  printf("ready\n");
  if (!fgets(line, sizeof line, stdin))
    return 1;
  if (failed("fill", device->launch("gs_fill", blocks, (void *[]){&address, &words, &seed})) ||
      failed("check", check_on_device(address, words, seed, &mismatches)) ||
      failed("mismatches", (int)mismatches) || failed("rounds", run_rounds(address, words, rounds)) ||
      failed("verify", verify_on_host(address, words, seed, sum_of_deltas(rounds))))
    return 1;
  return failed("release", device->release(address));
}

int workload_main(const struct device *implementation, int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  device = implementation;
  if (argc != 3 || failed("start", device->start()) || run(strtoull(argv[1], NULL, 0), atoi(argv[2])) != 0)
    return 1;
  printf("ok\n");
  return 0;
}
