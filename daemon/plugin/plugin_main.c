/* plugin_main.c - gpushare-device-plugin: its command line, and its parts, put together. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "plugin/health.h"
#include "plugin/offer.h"

#define KUBELET_SOCKET "kubelet.sock"
#define FOLDER_WATCHED                                                                                       \
  (IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define FOLDER_GONE (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)

enum { EXIT_USAGE = 64 };

#define INTERVAL_LEAST_NS (10 * NS_PER_MS)
#define INTERVAL_MOST_NS (3600 * NS_PER_S)

struct options {
  const char *kubelet_folder;
  unsigned shares, opportunistic_shares; /* of each GPU; 0: there is no such resource */
  const char *class;                     /* of gpushare.io/gpu; NULL: nothing is said */
  struct gpus gpus;                      /* none: NVML tells */
  struct terms_of_use terms;
  uint64_t interval_ns;
  enum log_level log;
};

/* Each takes a value. NULL, or what it should have been. */

static const char *set_placement(struct options *options, const char *value) {
  bool pack = strcmp(value, "pack") == 0;
  options->terms.placement = pack ? PLACEMENT_PACK : PLACEMENT_SPREAD;
  return pack || strcmp(value, "spread") == 0 ? NULL : "spread or pack";
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

/* ---- and what they are called, and mean ---- */

static const struct {
  const char *name, *argument, *help;
  const char *(*set)(struct options *options, const char *value);
  /* Without it: a bool that is one of two words, or a number of shares. */
  size_t at; /* in struct options */
  const char *no, *yes;
  int least;
} table[] = {
    {"shares", "N", "shares of each GPU, as gpushare.io/gpu (default 10)",
     .at = offsetof(struct options, shares), .least = 1},
    {"opportunistic-shares", "N",
     "as gpushare.io/gpu-opportunistic, beside those (default 0: no such resource)",
     .at = offsetof(struct options, opportunistic_shares), .least = 0},
    {"class", "CLASS", "of programs with gpushare.io/gpu, unless they say: " CLASS_NAMES, .set = set_class},
    {"placement", "WHERE", "containers spread over the GPUs, or pack few of them (default spread)",
     .set = set_placement},
    {"several", "HOW", "several shares of a container are of the same GPU, or apart (default same)",
     .at = offsetof(struct options, terms.apart), .no = "same", .yes = "apart"},
    {"memory-limit", "HOW", "none, or share: N shares may use N of all parts of the memory (default none)",
     .at = offsetof(struct options, terms.limit_memory), .no = "none", .yes = "share"},
    {"preload", "HOW", "the library, by file (/etc/ld.so.preload) or env (LD_PRELOAD) (default file)",
     .at = offsetof(struct options, terms.preload_by_env), .no = "file", .yes = "env"},
    {"visible", "HOW", "the GPU, by env (NVIDIA_VISIBLE_DEVICES) or cdi (default env)",
     .at = offsetof(struct options, terms.visible_by_cdi), .no = "env", .yes = "cdi"},
    {"library-dir", "DIR", "has libunified.so and ld.so.preload on the host (default /var/lib/gpushare)",
     .set = set_library_folder},
    {"socket", "PATH", "the daemon's, here, on the host and in containers (default " GS_DEFAULT_SOCKET ")",
     .set = set_socket},
    {"kubelet-dir", "DIR", "the kubelet's (default /var/lib/kubelet/device-plugins)",
     .set = set_kubelet_folder},
    {"gpus", "LIST", "UUID[:MEMORY[:DEVICE FILE]],... instead of those that NVML finds", .set = set_gpus},
    {"interval", "TIME", "between looks at the daemon and the GPUs (default 5s)", .set = set_interval},
    {"log", "LEVEL", "error, warn, info or debug (default info)", .set = set_log},
};

#define OPTION_COUNT (sizeof table / sizeof *table)
enum { OPTION_HELP = 256, OPTION_VERSION, OPTION_TABLE }; /* OPTION_TABLE + n: table[n] */

static const char *set(struct options *options, size_t i, const char *value) {
  static char wrong[40];
  void *at = (char *)options + table[i].at;
  int64_t number = 0;
  if (table[i].set)
    return table[i].set(options, value);
  if (table[i].yes) {
    snprintf(wrong, sizeof wrong, "%s or %s", table[i].no, table[i].yes);
    *(bool *)at = strcmp(value, table[i].yes) == 0;
    return *(bool *)at || strcmp(value, table[i].no) == 0 ? NULL : wrong;
  }
  snprintf(wrong, sizeof wrong, "a number from %d to %d", table[i].least, RESOURCE_SHARES_MAX);
  int err = parse_integer(value, table[i].least, RESOURCE_SHARES_MAX, &number);
  *(unsigned *)at = (unsigned)number;
  return err == 0 ? NULL : wrong;
}

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
  const char *wrong = set(options, (size_t)(option - OPTION_TABLE), value);
  if (!wrong)
    return;
  fprintf(stderr, "gpushare-device-plugin: --%s: '%s' is not %s\n", table[option - OPTION_TABLE].name, value,
          wrong);
  exit(EXIT_USAGE);
}

/* Returns, or exits after --help, --version or an error: the process has nothing to lose yet. */
static struct options read_options(int argc, char **argv) {
  struct options options = {.kubelet_folder = "/var/lib/kubelet/device-plugins",
                            .shares = 10,
                            .interval_ns = 5 * NS_PER_S,
                            .log = LOG_LEVEL_INFO,
                            .terms = {.socket = GS_DEFAULT_SOCKET, .library_folder = "/var/lib/gpushare"}};
  struct option known[OPTION_COUNT + 3] = {{"help", no_argument, NULL, OPTION_HELP},
                                           {"version", no_argument, NULL, OPTION_VERSION}};
  int option;
  for (size_t i = 0; i < OPTION_COUNT; i++)
    known[2 + i] = (struct option){table[i].name, required_argument, NULL, OPTION_TABLE + (int)i};
  while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
    take_option(&options, option, optarg);
  if (optind < argc) {
    fprintf(stderr, "gpushare-device-plugin: '%s' is too much; try --help\n", argv[optind]);
    exit(EXIT_USAGE);
  }
  return options;
}

/* ---- what happens ---- */

struct program {
  struct options options;
  struct loop loop;
  struct source signals, folder; /* the kubelet's folder: what comes and goes in it */
  struct gpus gpus;
  struct health health;
  char kubelet_socket[108];
  struct offer offers[2]; /* gpushare.io/gpu and, if there is one, gpushare.io/gpu-opportunistic */
  size_t offer_count;     /* of those that are open */
};

static void on_health(struct health *health) {
  struct program *program = list_entry(health, struct program, health);
  for (size_t i = 0; i < program->offer_count; i++)
    offer_refresh(&program->offers[i]);
}

static void on_folder(struct source *source, uint32_t events) {
  struct program *program = list_entry(source, struct program, folder);
  union {
    struct inotify_event event;
    char bytes[4096];
  } buffer;
  (void)events;
  ssize_t size = read(source->fd, &buffer, sizeof buffer);
  for (ssize_t at = 0; at < size;) {
    const struct inotify_event *event = (const void *)(buffer.bytes + at);
    at += (ssize_t)(sizeof *event + event->len);
    if (event->mask & FOLDER_GONE) {
      log_error("%s has gone: this program must be started anew", program->options.kubelet_folder);
      program->loop.exit_code = EXIT_FAILURE;
      return;
    }
    bool anything = event->mask & IN_Q_OVERFLOW || event->len == 0; /* may have happened */
    for (size_t i = 0; i < program->offer_count; i++)
      offer_renew(&program->offers[i], anything || strcmp(event->name, KUBELET_SOCKET) == 0);
  }
}

static void on_signal(struct source *source, uint32_t events) {
  struct program *program = list_entry(source, struct program, signals);
  (void)events;
  log_info("ending");
  program->loop.exit_code = EXIT_SUCCESS;
}

/* ---- beginning and end ---- */

static int open_signals(struct program *program) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  program->signals = (struct source){.fd = signalfd(-1, &signals, SFD_CLOEXEC), .on_event = on_signal};
  return program->signals.fd < 0 ? -errno : loop_add(&program->loop, &program->signals, EPOLLIN);
}

static int open_folder(struct program *program) {
  const char *path = program->options.kubelet_folder;
  int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  program->folder = (struct source){.fd = fd, .on_event = on_folder};
  snprintf(program->kubelet_socket, sizeof program->kubelet_socket, "%s/" KUBELET_SOCKET, path);
  int err = fd < 0 || inotify_add_watch(fd, path, FOLDER_WATCHED) < 0 ? -errno : 0;
  if (err == 0)
    err = loop_add(&program->loop, &program->folder, EPOLLIN);
  if (err < 0)
    log_error("can't watch %s, the kubelet's folder: %s", path, strerror(-err));
  return err;
}

/* What is looked at comes before those who tell of it. */
static int open_health(struct program *program) {
  program->health = (struct health){.loop = &program->loop,
                                    .gpus = &program->gpus,
                                    .socket = program->options.terms.socket,
                                    .interval_ns = program->options.interval_ns,
                                    .on_change = on_health};
  return health_open(&program->health);
}

static int open_offer(struct program *program, const char *name, const char *socket_name, unsigned shares,
                      const char *class) {
  struct offer *offer = &program->offers[program->offer_count];
  size_t devices = shares * program->gpus.count;
  if (devices > RESOURCE_DEVICES_MAX) {
    log_error("%zu shares of %s are too many: at most %d on all GPUs together", devices, name,
              RESOURCE_DEVICES_MAX);
    return -E2BIG;
  }
  offer->socket_name = socket_name;
  offer->resource = (struct resource){.name = name,
                                      .shares = shares,
                                      .class = class,
                                      .gpus = &program->gpus,
                                      .terms = &program->options.terms,
                                      .daemon_answers = &program->health.daemon_answers};
  int err = offer_open(offer, &program->loop, program->options.kubelet_folder, program->kubelet_socket);
  program->offer_count += err == 0;
  return err;
}

static int open_offers(struct program *program) {
  const struct options *options = &program->options;
  int err = open_offer(program, "gpushare.io/gpu", "gpushare.sock", options->shares, options->class);
  if (err == 0 && options->opportunistic_shares > 0)
    err = open_offer(program, "gpushare.io/gpu-opportunistic", "gpushare-opportunistic.sock",
                     options->opportunistic_shares, "opportunistic");
  return err;
}

static int open_gpus(struct program *program) {
  program->gpus = program->options.gpus;
  return program->gpus.count > 0 ? 0 : gpus_find(&program->gpus);
}

static int open_program(struct program *program) {
  int err = open_gpus(program);
  if (err == 0)
    err = loop_open(&program->loop);
  if (err == 0)
    err = open_signals(program);
  if (err == 0)
    err = open_folder(program);
  if (err == 0)
    err = open_health(program);
  return err == 0 ? open_offers(program) : err;
}

static void close_program(struct program *program) {
  while (program->offer_count > 0)
    offer_close(&program->offers[--program->offer_count]);
  health_close(&program->health);
  loop_remove(&program->loop, &program->folder);
  loop_close(&program->loop);
}

int main(int argc, char **argv) {
  static struct program program;
  program.options = read_options(argc, argv);
  log_setup("gpushare-device-plugin", program.options.log);
  int err = open_program(&program);
  if (err < 0) {
    log_error("not started: %s", strerror(-err));
    return EXIT_FAILURE;
  }
  log_info("%zu GPUs in %u shares each", program.gpus.count, program.options.shares);
  int code = loop_run(&program.loop);
  close_program(&program);
  return code;
}
