/* options.c - reads a command line by a table, and says what is wrong with it. */
#include "kubelet/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/clock.h"
#include "common/parse.h"
#include "gpushare/protocol.h"

#define INTERVAL_LEAST_NS (10 * NS_PER_MS)
#define INTERVAL_MOST_NS (3600 * NS_PER_S)

bool option_is_folder(const char *value) {
  return *value == '/' && value[1] && strlen(value) < 256 && value[strlen(value) - 1] != '/' &&
         !strstr(value, "/..");
}

static const char *set_library_folder(void *options, const char *value) {
  ((struct node_options *)options)->container.library_folder = value;
  return option_is_folder(value) ? NULL : OPTION_FOLDER;
}

static const char *set_socket(void *options, const char *value) {
  if (!option_is_folder(value) || strrchr(value, '/') == value ||
      strlen(value) >= sizeof((struct sockaddr_un){0}.sun_path))
    return "an absolute path of at most 107 bytes, in a folder of its own";
  ((struct node_options *)options)->container.socket = value;
  return NULL;
}

static const char *set_gpus(void *options, const char *value) {
  return gpus_parse(&((struct node_options *)options)->gpus, value) == 0
             ? NULL
             : "UUID[:MEMORY[:DEVICE FILE]],... with each UUID once";
}

static const char *set_interval(void *options, const char *value) {
  uint64_t ns;
  if (parse_duration_ns(value, &ns) != 0 || ns < INTERVAL_LEAST_NS || ns > INTERVAL_MOST_NS)
    return "a time from 10ms to 1h";
  ((struct node_options *)options)->interval_ns = ns;
  return NULL;
}

static const char *set_log(void *options, const char *value) {
  return log_level_parse(value, &((struct node_options *)options)->log) == 0 ? NULL
                                                                             : "error, warn, info or debug";
}

static const struct option_row node_rows[] = {
    {"preload", "HOW", "the library, by file (/etc/ld.so.preload) or env (LD_PRELOAD) (default file)",
     .at = offsetof(struct node_options, container.preload_by_env), .no = "file", .yes = "env"},
    {"library-dir", "DIR", "has libunified.so and ld.so.preload on the host (default /var/lib/gpushare)",
     .set = set_library_folder},
    {"socket", "PATH", "the daemon's, here, on the host and in containers (default " GS_DEFAULT_SOCKET ")",
     .set = set_socket},
    {"gpus", "LIST", "UUID[:MEMORY[:DEVICE FILE]],... instead of those that NVML finds", .set = set_gpus},
    {"interval", "TIME", "between looks at the daemon and the GPUs (default 5s)", .set = set_interval},
    {"log", "LEVEL", "error, warn, info or debug (default info)", .set = set_log},
};
#define NODE_ROWS (sizeof node_rows / sizeof *node_rows)

/* ---- a command line ---- */

enum { OPTION_HELP = 256, OPTION_VERSION, OPTION_TABLE }; /* OPTION_TABLE + n: row n */

/* The program's rows first. */
static const struct option_row *row_of(const struct option_table *table, size_t i) {
  return i < table->count ? &table->rows[i] : &node_rows[i - table->count];
}

static const char *set(const struct option_row *row, void *options, const char *value) {
  static char wrong[40];
  void *at = (char *)options + row->at;
  int64_t number = 0;
  if (row->set)
    return row->set(options, value);
  if (row->yes) {
    snprintf(wrong, sizeof wrong, "%s or %s", row->no, row->yes);
    *(bool *)at = strcmp(value, row->yes) == 0;
    return *(bool *)at || strcmp(value, row->no) == 0 ? NULL : wrong;
  }
  snprintf(wrong, sizeof wrong, "a number from %d to %d", row->least, row->most);
  int err = parse_integer(value, row->least, row->most, &number);
  *(unsigned *)at = (unsigned)number;
  return err == 0 ? NULL : wrong;
}

static void print_help(const struct option_table *table) {
  char option[80];
  printf("usage: %s [OPTION]...\n\n%s\n\n", table->program, table->about);
  for (size_t i = 0; i < table->count + NODE_ROWS; i++) {
    const struct option_row *row = row_of(table, i);
    snprintf(option, sizeof option, "--%s %s", row->name, row->argument);
    printf("  %-25s %s\n", option, row->help);
  }
  printf("  --help, --version\n\nexit codes: %s;\n%d usage.\n", table->exit_codes, EXIT_USAGE);
}

static void take_option(const struct option_table *table, void *options, int option, const char *value) {
  if (option == OPTION_HELP) {
    print_help(table);
    exit(0);
  }
  if (option == OPTION_VERSION) {
    printf("%s %s\n", table->program, table->version);
    exit(0);
  }
  if (option < OPTION_TABLE) {
    fprintf(stderr, "try %s --help\n", table->program);
    exit(EXIT_USAGE);
  }
  const struct option_row *row = row_of(table, (size_t)(option - OPTION_TABLE));
  const char *wrong = set(row, options, value);
  if (!wrong)
    return;
  fprintf(stderr, "%s: --%s: '%s' is not %s\n", table->program, row->name, value, wrong);
  exit(EXIT_USAGE);
}

void options_read(const struct option_table *table, void *options, int argc, char **argv) {
  struct option known[OPTION_ROWS_MAX + NODE_ROWS + 3] = {{"help", no_argument, NULL, OPTION_HELP},
                                                          {"version", no_argument, NULL, OPTION_VERSION}};
  int option;
  for (size_t i = 0; i < table->count + NODE_ROWS; i++)
    known[2 + i] = (struct option){row_of(table, i)->name, required_argument, NULL, OPTION_TABLE + (int)i};
  while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
    take_option(table, options, option, optarg);
  if (optind < argc) {
    fprintf(stderr, "%s: '%s' is too much; try --help\n", table->program, argv[optind]);
    exit(EXIT_USAGE);
  }
}
