/* options.c - the options, in one table: what they are called, what they take, what they mean. */
#include "plugin/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/clock.h"
#include "common/parse.h"
#include "gpushare/protocol.h"

enum { EXIT_USAGE = 64 };

#define INTERVAL_LEAST_NS (10 * NS_PER_MS)
#define INTERVAL_MOST_NS (3600 * NS_PER_S)

/* Each takes a value; NULL, or what it should have been. */
typedef const char *option_set(struct options *options, const char *value);

/* ---- values ---- */

static const char *set_shares(unsigned *shares, int64_t least, const char *value) {
  int64_t number;
  if (parse_integer(value, least, RESOURCE_SHARES_MAX, &number) != 0)
    return least ? "a number from 1 to 1000" : "a number from 0 to 1000";
  *shares = (unsigned)number;
  return NULL;
}

static const char *set_gpu_shares(struct options *options, const char *value) {
  return set_shares(&options->shares, 1, value);
}

static const char *set_opportunistic_shares(struct options *options, const char *value) {
  return set_shares(&options->opportunistic_shares, 0, value);
}

/* One of two words. */
static const char *set_word(bool *second, const char *value, const char *words[2], const char *both) {
  if (strcmp(value, words[0]) != 0 && strcmp(value, words[1]) != 0)
    return both;
  *second = strcmp(value, words[1]) == 0;
  return NULL;
}

static const char *set_placement(struct options *options, const char *value) {
  bool pack = false;
  const char *wrong = set_word(&pack, value, (const char *[]){"spread", "pack"}, "spread or pack");
  options->terms.placement = pack ? PLACEMENT_PACK : PLACEMENT_SPREAD;
  return wrong;
}

static const char *set_several(struct options *options, const char *value) {
  return set_word(&options->terms.apart, value, (const char *[]){"same", "apart"}, "same or apart");
}

static const char *set_limit(struct options *options, const char *value) {
  return set_word(&options->terms.limit_memory, value, (const char *[]){"none", "share"}, "none or share");
}

static const char *set_preload(struct options *options, const char *value) {
  return set_word(&options->terms.preload_by_env, value, (const char *[]){"file", "env"}, "file or env");
}

static const char *set_visible(struct options *options, const char *value) {
  return set_word(&options->terms.visible_by_cdi, value, (const char *[]){"env", "cdi"}, "env or cdi");
}

static const char *set_class(struct options *options, const char *value) {
  enum gs_class class;
  if (parse_class(value, &class) != 0)
    return CLASS_NAMES;
  options->class = value;
  return NULL;
}

static const char *set_gpus(struct options *options, const char *value) {
  return gpus_parse(&options->gpus, value) == 0 ? NULL
                                                : "UUID[:MEMORY[:DEVICE FILE]],... with each UUID once";
}

static const char *set_kubelet_folder(struct options *options, const char *value) {
  if (*value != '/' || strlen(value) > sizeof((struct sockaddr_un){0}.sun_path) - 40)
    return "the absolute path of a folder, of at most 68 bytes";
  options->kubelet_folder = value;
  return NULL;
}

/* Mounted, at the same place, into containers: not the root. */
static bool is_folder_path(const char *value) {
  return *value == '/' && value[1] && strlen(value) < 256 && value[strlen(value) - 1] != '/' &&
         !strstr(value, "/..");
}

static const char *set_library_folder(struct options *options, const char *value) {
  if (!is_folder_path(value))
    return "the absolute path of a folder, without a slash at its end";
  options->terms.library_folder = value;
  return NULL;
}

static const char *set_socket(struct options *options, const char *value) {
  if (!is_folder_path(value) || strrchr(value, '/') == value ||
      strlen(value) >= sizeof((struct sockaddr_un){0}.sun_path))
    return "an absolute path of at most 107 bytes, in a folder of its own";
  options->terms.socket = value;
  return NULL;
}

static const char *set_interval(struct options *options, const char *value) {
  uint64_t ns;
  if (parse_duration_ns(value, &ns) != 0 || ns < INTERVAL_LEAST_NS || ns > INTERVAL_MOST_NS)
    return "a time from 10ms to 1h";
  options->interval_ns = ns;
  return NULL;
}

static const char *set_log(struct options *options, const char *value) {
  return log_level_parse(value, &options->log) == 0 ? NULL : "error, warn, info or debug";
}

/* ---- the table ---- */

static const struct {
  const char *name, *argument, *help;
  option_set *set;
} table[] = {
    {"shares", "N", "shares of each GPU, as gpushare.io/gpu (default 10)", set_gpu_shares},
    {"opportunistic-shares", "N",
     "as gpushare.io/gpu-opportunistic, beside those (default 0: no such resource)",
     set_opportunistic_shares},
    {"class", "CLASS", "of programs with gpushare.io/gpu, unless they say: " CLASS_NAMES, set_class},
    {"placement", "WHERE", "containers spread over the GPUs, or pack few of them (default spread)",
     set_placement},
    {"several", "HOW", "several shares of a container are of the same GPU, or apart (default same)",
     set_several},
    {"memory-limit", "HOW", "none, or share: N shares may use N of all parts of the memory (default none)",
     set_limit},
    {"preload", "HOW", "the library, by file (/etc/ld.so.preload) or env (LD_PRELOAD) (default file)",
     set_preload},
    {"visible", "HOW", "the GPU, by env (NVIDIA_VISIBLE_DEVICES) or cdi (default env)", set_visible},
    {"library-dir", "DIR", "has libunified.so and ld.so.preload on the host (default /var/lib/gpushare)",
     set_library_folder},
    {"socket", "PATH", "the daemon's, here, on the host and in containers (default " GS_DEFAULT_SOCKET ")",
     set_socket},
    {"kubelet-dir", "DIR", "the kubelet's (default /var/lib/kubelet/device-plugins)", set_kubelet_folder},
    {"gpus", "LIST", "UUID[:MEMORY[:DEVICE FILE]],... instead of those that NVML finds", set_gpus},
    {"interval", "TIME", "between looks at the daemon and the GPUs (default 5s)", set_interval},
    {"log", "LEVEL", "error, warn, info or debug (default info)", set_log},
};

#define OPTION_COUNT (sizeof table / sizeof *table)
enum { OPTION_HELP = 256, OPTION_VERSION, OPTION_TABLE }; /* OPTION_TABLE + n: table[n] */

static void print_help(void) {
  char option[80];
  printf("usage: gpushare-device-plugin [OPTION]...\n\n"
         "Tells the kubelet of this node's GPUs, in shares that pods can ask for, and gives their containers "
         "what\n"
         "gpushare needs. Stays in the foreground and logs to stderr.\n\n");
  for (size_t i = 0; i < OPTION_COUNT; i++) {
    snprintf(option, sizeof option, "--%s %s", table[i].name, table[i].argument);
    printf("  %-25s %s\n", option, table[i].help);
  }
  printf("  --help, --version\n\n"
         "exit codes: 0 ended by a signal; 1 failure, also if there is no GPU or the kubelet's folder has "
         "gone;\n"
         "%d usage.\n",
         EXIT_USAGE);
}

static void build_options(struct option options[OPTION_COUNT + 3]) {
  for (size_t i = 0; i < OPTION_COUNT; i++)
    options[i] = (struct option){table[i].name, required_argument, NULL, OPTION_TABLE + (int)i};
  options[OPTION_COUNT] = (struct option){"help", no_argument, NULL, OPTION_HELP};
  options[OPTION_COUNT + 1] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
  options[OPTION_COUNT + 2] = (struct option){0};
}

static void take_option(struct options *options, int option, const char *value) {
  if (option == OPTION_HELP) {
    print_help();
    exit(0);
  }
  if (option == OPTION_VERSION) {
    printf("gpushare-device-plugin %s (device plugin API v1beta1)\n", GPUSHARE_VERSION);
    exit(0);
  }
  if (option < OPTION_TABLE) {
    fprintf(stderr, "try gpushare-device-plugin --help\n");
    exit(EXIT_USAGE);
  }
  const char *wrong = table[option - OPTION_TABLE].set(options, value);
  if (!wrong)
    return;
  fprintf(stderr, "gpushare-device-plugin: --%s: '%s' is not %s\n", table[option - OPTION_TABLE].name, value,
          wrong);
  exit(EXIT_USAGE);
}

struct options options_read(int argc, char **argv) {
  struct options options = {.kubelet_folder = "/var/lib/kubelet/device-plugins",
                            .shares = 10,
                            .interval_ns = 5 * NS_PER_S,
                            .log = LOG_LEVEL_INFO,
                            .terms = {.socket = GS_DEFAULT_SOCKET, .library_folder = "/var/lib/gpushare"}};
  struct option known[OPTION_COUNT + 3];
  int option;
  build_options(known);
  while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
    take_option(&options, option, optarg);
  if (optind < argc) {
    fprintf(stderr, "gpushare-device-plugin: '%s' is too much; try --help\n", argv[optind]);
    exit(EXIT_USAGE);
  }
  return options;
}
