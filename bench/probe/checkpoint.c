/* checkpoint.c - the driver's own way to take a process off the card: is it there, how fast is it. */
#include "subject.h"

enum { ROUNDS = 3 };
static const size_t bytes = 4 * GIB;

/* One of the calls on the subject, with its time and what is free on the card after it. */
static bool step_print(const struct subject *s, enum subject_step step) {
  uint64_t start = clock_now_ns();
  CUresult result = subject_do(s, step);
  double ms = ms_since(start);
  size_t unused = 0, total = 0;
  cuMemGetInfo(&unused, &total);
  printf("  %s: %s, %.3f s (%.1f GB/s of its memory), state %d, card free %.2f GiB\n",
         subject_step_name(step), result_name(result), ms / 1e3, (double)bytes / ms / 1e6, subject_state(s),
         (double)unused / (double)GIB);
  return result == CUDA_SUCCESS;
}

static bool round_print(const struct subject *s) {
  for (enum subject_step step = 0; step < SUBJECT_STEPS; step++)
    if (!step_print(s, step))
      return false;
  return true;
}

static void rounds_print(const struct subject *s) {
  struct probe p = {0};
  if (!probe_open(&p) || !subject_calls_find())
    return;
  for (int i = 1; i <= ROUNDS; i++) {
    printf("  round %d, 4 GiB\n", i);
    if (!round_print(s))
      return;
    uint64_t start = clock_now_ns();
    bool right = subject_is_right(s);
    printf("  its memory is %s; asking took %.3f s\n", right ? "right" : "WRONG", ms_since(start) / 1e3);
  }
}

void probe_checkpoint(struct probe *p) {
  struct subject s;
  (void)p;
  if (subject_start(&s, bytes))
    rounds_print(&s);
  subject_end(&s);
}
