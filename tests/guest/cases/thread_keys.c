/* thread_keys.c - a program that has all thread keys keeps all their values. */
#include "guest.h"

#include <limits.h>
#include <pthread.h>

static pthread_key_t keys[PTHREAD_KEYS_MAX];
static int count;
static struct gpu gpu;

static void set_all(void) {
  for (int i = 0; i < count; i++)
    pthread_setspecific(keys[i], &keys[i]);
}

static int changed(void) {
  int changes = 0;
  for (int i = 0; i < count; i++)
    changes += pthread_getspecific(keys[i]) != &keys[i];
  return changes;
}

static void *use(void *changes) {
  set_all();
  MUST(cuCtxSetCurrent(gpu.context));
  use_gpu(&gpu);
  *(int *)changes += changed();
  return NULL;
}

int main(void) {
  int in_threads = 0;
  while (count < PTHREAD_KEYS_MAX && pthread_key_create(&keys[count], NULL) == 0)
    count++;
  set_all();
  gpu_start(&gpu, 0);
  use_gpu(&gpu);
  say("%d keys, %d changed", count, changed());
  for (int i = 0; i < 200; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, &in_threads) == 0)
      pthread_join(thread, NULL);
  }
  say("%d changed in threads", in_threads);
  say("ok");
  return 0;
}
