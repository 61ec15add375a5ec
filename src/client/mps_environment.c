/* mps_environment.c - see mps_environment.h. */
#include "client/mps_environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIPES "CUDA_MPS_PIPE_DIRECTORY"
#define PRIORITY "CUDA_MPS_CLIENT_PRIORITY"
#define PERCENT "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

/* "PRIORITY PERCENT PIPES": what has been set; "-": that was not. */
#define MARK "GPUSHARE_MPS_SET"
#define VALUE_SIZE 16

static bool is_given(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

bool mps_environment_is_given(void) { return is_given(PIPES); }

/* What is to be set; "-": nothing. */
static void choose(const char *name, uint32_t number, char value[VALUE_SIZE]) {
  strcpy(value, "-");
  if (number != 0 && !is_given(name))
    snprintf(value, VALUE_SIZE, "%u", number);
}

static bool set(const char *name, const char *value) {
  return strcmp(value, "-") == 0 || setenv(name, value, 1) == 0;
}

/* The mark first: nothing is ours without it. */
bool mps_environment_set(const char *pipes, uint32_t priority, uint32_t percent) {
  char priority_text[VALUE_SIZE], percent_text[VALUE_SIZE], mark[256];
  choose(PRIORITY, priority, priority_text);
  choose(PERCENT, percent, percent_text);
  snprintf(mark, sizeof mark, "%s %s %s", priority_text, percent_text, pipes);
  bool done =
      set(MARK, mark) && set(PIPES, pipes) && set(PRIORITY, priority_text) && set(PERCENT, percent_text);
  if (!done)
    mps_environment_forget();
  return done;
}

/* Unless somebody has set it anew. */
static void forget(const char *name, const char *was) {
  const char *value = getenv(name);
  if (value && strcmp(value, was) == 0)
    unsetenv(name);
}

void mps_environment_forget(void) {
  const char *mark = getenv(MARK);
  char priority[VALUE_SIZE], percent[VALUE_SIZE];
  int pipes = 0;
  if (!mark)
    return;
  if (sscanf(mark, "%15s %15s %n", priority, percent, &pipes) == 2 && pipes > 0) {
    forget(PRIORITY, priority);
    forget(PERCENT, percent);
    forget(PIPES, mark + pipes);
  }
  unsetenv(MARK);
}
