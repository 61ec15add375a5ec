/*
 * bench_lookout.c - what it costs to look whether a process has a device open, by how many descriptors it
 * has: where the device is the first one that is not standard, as GPUs are, and where it is not there at all.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/clock.h"
#include "quantile.h"
#include "report.h"
#include "server/lookout.h"

#define ROUNDS 51

static double median_look_us(int found) {
  double took_us[ROUNDS];
  const struct lookout_question question = {.id = 1, .pid = getpid(), .major = 1, .minor = 3};
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t begun_ns = clock_now_ns();
    struct lookout_answer answer = lookout_look(&question);
    took_us[i] = (double)(clock_now_ns() - begun_ns) / 1e3;
    if (answer.found != found) {
      fprintf(stderr, "found %d, not %d, after %u\n", answer.found, found, answer.looked_at);
      exit(1);
    }
  }
  return median(took_us, ROUNDS);
}

int main(void) {
  static const int counts[] = {100, 10000};
  char folder[] = "/tmp/gpushare-bench-XXXXXX", device[64];
  struct rlimit limit = {.rlim_cur = 20000, .rlim_max = 20000};
  setrlimit(RLIMIT_NOFILE, &limit);
  if (!mkdtemp(folder))
    return 1;
  snprintf(device, sizeof device, "%s/nvidia0", folder);
  int fd = mknod(device, S_IFCHR | 0666, makedev(1, 3)) == 0 ? open(device, O_RDWR) : -1, last = fd;
  if (fd < 0)
    fprintf(stderr, "only root can make a device\n");
  for (size_t i = 0; fd >= 0 && i < sizeof counts / sizeof *counts; i++) {
    while (last + 1 < counts[i])
      last = dup(STDIN_FILENO);
    report(report_name("look_there_%d", counts[i]), median_look_us(1), "us");
    int kept = dup2(STDIN_FILENO, fd); /* in its place */
    report(report_name("look_absent_%d", counts[i]), median_look_us(0), "us");
    close(kept);
    fd = open(device, O_RDWR);
  }
  unlink(device);
  rmdir(folder);
  return fd < 0;
}
