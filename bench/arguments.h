/*
 * arguments.h - a benchmark's command line: a table of its own options; --json (report.h) and --help are
 * everybody's. Whatever is wrong ends the program, with status 2.
 */
#ifndef GS_BENCH_ARGUMENTS_H
#define GS_BENCH_ARGUMENTS_H

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdlib.h>

#include "report.h"

/* An option and where what it says goes: to a flag, which takes no value; to a text; or to a number, as
 * `parse` reads it (0: it could), else one within bounds, which takes all of 64 bits, as seeds do. */
struct argument {
  const char *name;
  bool *flag;
  const char **text;
  int (*parse)(const char *text, uint64_t *number);
  uint64_t *number, least, most;
};

enum { ARGUMENTS_MAX = 12 };

_Noreturn static inline void arguments_wrong(const char *what) {
  fprintf(stderr, "%s: %s: --help tells\n", program_invocation_short_name, what);
  exit(2);
}

static inline bool argument_read_number(const struct argument *argument, const char *text) {
  char *rest;
  errno = 0;
  *argument->number = strtoull(text, &rest, 10);
  return !errno && !*rest && rest != text && *text != '-' && *argument->number >= argument->least &&
         *argument->number <= argument->most;
}

static inline void argument_take(const struct argument *argument, const char *text) {
  if (argument->flag)
    *argument->flag = true;
  else if (argument->text)
    *argument->text = text;
  else if (argument->parse ? argument->parse(text, argument->number) != 0
                           : !argument_read_number(argument, text))
    arguments_wrong(text);
}

/* The last one has no name. */
static inline void arguments_read(int argc, char **argv, const char *help, const struct argument *known) {
  struct option list[ARGUMENTS_MAX + 3] = {{"json", no_argument, NULL, 'j'},
                                           {"help", no_argument, NULL, 'h'}};
  for (int i = 0; i < ARGUMENTS_MAX && known[i].name; i++)
    list[i + 2] = (struct option){known[i].name, known[i].flag ? no_argument : required_argument, NULL, i};
  for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
    if (option == 'h') {
      fputs(help, stdout);
      exit(EXIT_SUCCESS);
    }
    if (option == '?')
      arguments_wrong("wrong option");
    if (option == 'j')
      report_json = true;
    else
      argument_take(&known[option], optarg);
  }
  if (optind < argc)
    arguments_wrong(argv[optind]);
}

#endif
