/* play.h - a program that plays on the stage (stage.h): how it begins and ends, and the options that all such
 * programs take. */
#ifndef GS_BENCH_PLAY_H
#define GS_BENCH_PLAY_H

#include "arguments.h"
#include "stage.h"

static struct {
  uint64_t seconds;
  bool simulate;
  struct card card;
} play = {.seconds = 540};

/* In the program's help. */
#define PLAY_HELP                                                                                            \
  "  --simulate            the simulated driver, even where there is a GPU: its figures mean nothing\n"

/* Own: the program's own options. */
static inline void play_begin(int argc, char **argv, const char *help, const struct argument *own) {
  struct argument all[ARGUMENTS_MAX + 1] = {
      {"seconds", .number = &play.seconds, .least = 1, .most = 100000},
      {"simulate", .flag = &play.simulate},
  };
  for (int place = 2; own->name; own++, place++)
    all[place] = *own;
  arguments_read(argc, argv, help, all);
  deadline_set(play.seconds);
  int status = stage_begin(&play.simulate, &play.card);
  if (status != 0)
    exit(status);
  report_begin();
}

/* The program's exit status. */
static inline int play_end(bool ok) {
  report("simulated", play.simulate, "");
  report("failed", !ok, "");
  report_end();
  stage_end();
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
