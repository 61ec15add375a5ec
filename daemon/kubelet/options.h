/* options.h - the command line of the programs that serve a kubelet: a table of options, and those that all
 * of them have. */
#ifndef GS_KUBELET_OPTIONS_H
#define GS_KUBELET_OPTIONS_H

#include <stddef.h>

#include "common/log.h"
#include "kubelet/container.h"
#include "kubelet/health.h"

enum { EXIT_USAGE = 64 };

/* What all of them have: the first member of a program's own options. */
struct node_options {
  struct container_terms container;
  struct gpus gpus; /* none: NVML tells */
  uint64_t interval_ns;
  enum log_level log;
};
#define NODE_OPTIONS_DEFAULT                                                                                 \
  {                                                                                                          \
    .container = {.socket = GS_DEFAULT_SOCKET, .library_folder = "/var/lib/gpushare"},                       \
    .interval_ns = 5 * NS_PER_S, .log = LOG_LEVEL_INFO                                                       \
  }

struct option_row {
  const char *name, *argument, *help;
  /* NULL, or what the value should have been. `options` begins with struct node_options. */
  const char *(*set)(void *options, const char *value);
  /* Without it: a bool that is one of two words, or an unsigned number. */
  size_t at; /* in the options */
  const char *no, *yes;
  int least, most;
};

/* The absolute path of a folder, not the root, without a slash at its end, of less than 256 bytes. */
bool option_is_folder(const char *value);
#define OPTION_FOLDER "the absolute path of a folder, without a slash at its end"

struct option_table {
  const char *program, *version; /* what --version says behind the program's name */
  const char *about, *exit_codes;
  const struct option_row *rows; /* beside those of struct node_options */
  size_t count;                  /* OPTION_ROWS_MAX at most */
};
#define OPTION_ROWS_MAX 32

/* Returns, or exits after --help, --version or an error: the process has nothing to lose yet. */
void options_read(const struct option_table *table, void *options, int argc, char **argv);

#endif
