/* leaver.c - uses the GPU, prints nothing, and leaves in the way it is told: exit, _exit, return, abort,
 * thread. usage: leaver HOW CODE */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver_table.h"

static struct driver_table table;
static int code;

static void use(void) {
  uint64_t address, words = 1 << 16, seed = 1;
#define X(field, function) table.field = function;
  DRIVER_FUNCTIONS(X)
#undef X
  if (table_start(&table) || table_alloc(&address, words * sizeof words) ||
      table_launch("gs_fill", 256, (void *[]){&address, &words, &seed}))
    abort();
}

static void *leave_by_exit(void *unused) {
  (void)unused;
  exit(code);
}

int main(int argc, char **argv) {
  pthread_t thread;
  if (argc != 3)
    return 2;
  code = atoi(argv[2]);
  use();
  if (strcmp(argv[1], "exit") == 0)
    exit(code);
  if (strcmp(argv[1], "_exit") == 0)
    _exit(code);
  if (strcmp(argv[1], "abort") == 0)
    abort();
  if (strcmp(argv[1], "thread") == 0 && pthread_create(&thread, NULL, leave_by_exit, NULL) == 0)
    pthread_join(thread, NULL);
  return code;
}
