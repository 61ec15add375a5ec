/* retitled.c - moves its environment elsewhere and overwrites the original with a title, as servers do to be
 * told apart in ps, before it uses a GPU. Says "running", waits for a line, says "ok". */
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define WORDS (UINT64_C(1) << 16)

extern char **environ;

static char **copied(char **list) {
  size_t count = 0;
  while (list[count])
    count++;
  char **copy = calloc(count + 1, sizeof *copy);
  for (size_t i = 0; copy && i < count; i++)
    copy[i] = strdup(list[i]);
  return copy;
}

/* The strings of the environment follow each other in memory. */
static void overwrite_environment(void) {
  char *start = environ[0], *end = start;
  for (char **entry = environ; *entry; entry++)
    if (*entry == end)
      end += strlen(*entry) + 1;
  environ = copied(environ);
  memset(start, 't', (size_t)(end - start) - 1);
}

int main(void) {
  struct gpu gpu;
  if (!environ[0])
    return 2;
  overwrite_environment();
  gpu_start(&gpu, 0);
  CUdeviceptr at = gpu_alloc(WORDS);
  gpu_fill(&gpu, NULL, at, WORDS, 1);
  gpu_verify(at, WORDS, 1, 0);
  gpu_say("running");
  gpu_await_line();
  gpu_say("ok");
  return 0;
}
