/* scheduling.c - a thread with one processor and a policy of its own makes the first context: threads that it
 * did not start have nothing of that. Those of the simulated driver do, so the policy is not a real-time one:
 * a driver's thread that waits for another one of them would take its processor from everybody. */
#include "guest.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Threads by name, with what the first one has. */
static int inherited(const cpu_set_t *one, const cpu_set_t *all) {
  int count = 0;
  struct dirent *entry;
  DIR *tasks = opendir("/proc/self/task");
  while ((entry = readdir(tasks))) {
    char path[300], name[32] = "";
    pid_t tid = atoi(entry->d_name);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
    FILE *file = tid ? fopen(path, "r") : NULL;
    if (!file)
      continue;
    if (fgets(name, sizeof name, file) && strncmp(name, "gpushare", 8) == 0) {
      cpu_set_t set;
      CPU_ZERO(&set); /* as the thread may have ended meanwhile */
      sched_getaffinity(tid, sizeof set, &set);
      count += sched_getscheduler(tid) == SCHED_BATCH || (CPU_EQUAL(&set, one) && !CPU_EQUAL(&set, all));
    }
    fclose(file);
  }
  closedir(tasks);
  return count;
}

int main(void) {
  struct gpu gpu;
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &all))
      CPU_SET(i, &one);
  sched_setaffinity(0, sizeof one, &one);
  int may = sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){.sched_priority = 0}) == 0;
  gpu_start(&gpu, 0);
  use_gpu(&gpu);
  say("of 2 processors or more: %d, batch: %d", CPU_COUNT(&all) > 1, may);
  say("%d threads have it, too", inherited(&one, &all));
  say_thread();
  say("ok");
  return 0;
}
