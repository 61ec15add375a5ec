/* probe.c - runs one section of the driver probe, or all of them, each in a child process. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
  const char *name;
  void (*run)(struct probe *p);
  enum { OPEN, BARE } start; /* BARE: makes its own processes, so nothing may be open in this one */
} sections[] = {
    {"attributes", probe_attributes, OPEN}, {"pools", probe_pools, OPEN},
    {"captures", probe_captures, OPEN},     {"calls", probe_calls, OPEN},
    {"moves", probe_moves, OPEN},           {"handover", probe_handover, BARE},
    {"checkpoint", probe_checkpoint, BARE}, {"mapping", probe_mapping, BARE},
};
enum { SECTIONS = sizeof(sections) / sizeof(sections[0]), SECTION_SECONDS = 60 };

CUmemLocation location_host(void) { return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}; }

static int section_run(size_t index) {
  struct probe p = {0};
  alarm(SECTION_SECONDS);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (sections[index].start == OPEN && !probe_open(&p))
    return 1;
  sections[index].run(&p);
  return 0;
}

static int section_fork(size_t index) {
  int status = 0;
  printf("== %s\n", sections[index].name);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    int rc = section_run(index);
    fflush(stdout);
    _exit(rc);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    return 1;
  if (status != 0)
    printf("  section %s ended with status 0x%x\n", sections[index].name, (unsigned)status);
  return status != 0;
}

static bool section_wanted(size_t index, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], sections[index].name) == 0)
      return true;
  return argc < 2;
}

/* usage: probe [SECTION...] */
int main(int argc, char **argv) {
  int failed = 0;
  for (size_t i = 0; i < SECTIONS; i++)
    if (section_wanted(i, argc, argv))
      failed |= section_fork(i);
  return failed;
}
