/*
 * starter.c - uses the GPU, and starts other programs. usage: starter [fork | exec CLASS]
 *
 * Says "started PID" once it has a context. fork: then a child that does nothing, which says "started PID",
 * too. exec: then itself, with GPUSHARE_CLASS=CLASS. All wait for the end of the input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

static void say_started(void) {
  char line[32];
  snprintf(line, sizeof line, "started %d", getpid());
  gpu_say(line);
}

static void await_end(void) {
  char byte;
  while (read(0, &byte, 1) > 0)
    ;
}

static void become(char *program, char *class) {
  char *const arguments[] = {program, NULL};
  setenv("GPUSHARE_CLASS", class, 1);
  execv(program, arguments);
  _exit(127);
}

/* In the child. */
static void live(char **argv) {
  if (strcmp(argv[1], "exec") == 0)
    become(argv[0], argv[2]);
  say_started();
  await_end();
  _exit(0);
}

int main(int argc, char **argv) {
  static struct gpu gpu;
  int status = 0;
  gpu_start(&gpu, 0);
  say_started();
  if (argc > 1 && fork() == 0)
    live(argv);
  await_end();
  while (argc > 1 && wait(&status) < 0)
    ;
  return status != 0;
}
