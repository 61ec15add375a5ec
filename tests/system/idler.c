/* idler.c - uses the GPU once, says "idle", keeps everything until its stdin ends, then verifies its memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "driver_table.h"
#include "sim/kernels.h"

#define WORDS (UINT64_C(1) << 20)

static int launch_on(const char *kernel, uint64_t address, uint64_t last) {
  uint64_t words = WORDS;
  return table_launch(kernel, WORDS / DEVICE_BLOCK_THREADS, (void *[]){&address, &words, &last});
}

static int verify(uint64_t address) {
  uint64_t *host = malloc(WORDS * sizeof *host), wrong = 0;
  int error = host ? table_to_host(host, address, WORDS * sizeof *host) : 1;
  for (uint64_t i = 0; !error && i < WORDS; i++)
    wrong += host[i] != gs_hash(7, i) + 1;
  free(host);
  return error || wrong;
}

int main(void) {
  static struct driver_table table;
  uint64_t address;
  char line[16];
#define X(field, function) table.field = function;
  DRIVER_FUNCTIONS(X)
#undef X
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (table_start(&table) || table_alloc(&address, WORDS * sizeof(uint64_t)) ||
      launch_on("gs_fill", address, 7) || table_finish())
    return 1;
  printf("idle\n");
  while (fgets(line, sizeof line, stdin))
    ;
  if (launch_on("gs_add", address, 1) || verify(address))
    return 1;
  printf("ok\n");
  return 0;
}
