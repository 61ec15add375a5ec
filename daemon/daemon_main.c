/* daemon_main.c - gpushare-daemon: command line, configuration, signals. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "program.h"
#include "server/events.h"
#include "server/keep.h"
#include "server/process.h"
#include "server/usage.h"

enum { EXIT_ANOTHER = 3, EXIT_USAGE = 64, EXIT_CONFIG = 78 };
/* OPTION_KEY + n: config_keys[n] */
enum { OPTION_CONFIG = 256, OPTION_CHECK, OPTION_HELP, OPTION_VERSION, OPTION_KEY };
#define LOG_PATIENCE_NS (2 * NS_PER_S) /* with its reader, at the end */

/* stderr goes to systemd's journal: JOURNAL_STREAM=DEVICE:INODE names it, and stays in the environment also
 * where somebody has redirected stderr since. */
static bool logs_to_journal(void) {
  const char *stream = getenv("JOURNAL_STREAM");
  struct stat status;
  char own[48];
  if (!stream || fstat(STDERR_FILENO, &status) < 0)
    return false;
  snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
  return strcmp(stream, own) == 0;
}

/* ---- command line ---- */

static void print_help(void) {
  char name[32], option[80];
  printf("usage: gpushare-daemon [OPTION]...\n\n"
         "Decides which of the programs that run with libunified.so preloaded use a GPU, and when.\n\n"
         "  --config FILE                 settings, 'key = value' lines (default " CONFIG_DEFAULT_PATH "),\n"
         "                                and then those of FILE.d/*.conf, by name\n");
  printf("  --check-config [FILE]         say whether the settings are right, and end: of FILE, else as "
         "above\n");
  for (size_t i = 0; i < config_key_count; i++) {
    if (config_keys[i].single)
      continue;
    snprintf(option, sizeof option, "--%s %s", option_name(config_keys[i].name, name),
             config_keys[i].argument);
    printf("  %-29s %s\n", option, config_keys[i].help);
  }
  printf(
      "  --help, --version\n\n"
      "The keys of the file are the options without the dashes (host_memory = 80%%); the command line "
      "counts\n"
      "more than the file. In a section [gpu UUID] or [gpu INDEX] of it, tq, loss, mode, policy, capacity,\n"
      "memory, spatial and size are for that GPU only, and count more than both. Stays in the foreground "
      "and\n"
      "logs to stderr.\n\n"
      "signals: TERM, INT end it; HUP rereads the file and applies it to all GPUs, as gpusharectl\n"
      "reload does; USR1 lets jobs take "
      "turns\n"
      "(mode on), USR2 does not (mode off).\n\n"
      "exit codes: 0 ended by a signal; 1 failure; %d another daemon answers on the socket; %d usage;\n"
      "%d an error in the configuration.\n",
      EXIT_ANOTHER, EXIT_USAGE, EXIT_CONFIG);
}

static void build_options(struct option options[CONFIG_KEYS_MAX + 5], char names[CONFIG_KEYS_MAX][32]) {
  struct option *option = options;
  *option++ = (struct option){"config", required_argument, NULL, OPTION_CONFIG};
  *option++ = (struct option){"check-config", no_argument, NULL, OPTION_CHECK};
  *option++ = (struct option){"help", no_argument, NULL, OPTION_HELP};
  *option++ = (struct option){"version", no_argument, NULL, OPTION_VERSION};
  for (size_t i = 0; i < config_key_count && i < CONFIG_KEYS_MAX; i++)
    if (!config_keys[i].single)
      *option++ = (struct option){option_name(config_keys[i].name, names[i]), required_argument, NULL,
                                  OPTION_KEY + (int)i};
  *option = (struct option){0};
}

/* Returns, or exits: the process has nothing to lose yet. */
static struct arguments read_arguments(int argc, char **argv) {
  struct arguments arguments = {0};
  struct option options[CONFIG_KEYS_MAX + 5];
  char names[CONFIG_KEYS_MAX][32];
  int option;
  build_options(options, names);
  while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
    if (option == OPTION_HELP) {
      print_help();
      exit(0);
    } else if (option == OPTION_VERSION) {
      printf("gpushare-daemon %s (protocol %u)\n", GPUSHARE_VERSION, GS_PROTOCOL_VERSION);
      exit(0);
    } else if (option == OPTION_CONFIG) {
      arguments.config_path = optarg;
    } else if (option == OPTION_CHECK) {
      arguments.only_checks = true;
    } else if (option >= OPTION_KEY) {
      arguments.values[option - OPTION_KEY] = optarg;
    } else {
      fprintf(stderr, "try gpushare-daemon --help\n");
      exit(EXIT_USAGE);
    }
  }
  if (arguments.only_checks && optind < argc)
    arguments.config_path = argv[optind++];
  if (optind < argc) {
    fprintf(stderr, "gpushare-daemon: '%s' is too much; try --help\n", argv[optind]);
    exit(EXIT_USAGE);
  }
  return arguments;
}

/* The exit code. */
static int check_config(const struct arguments *arguments) {
  static struct files files;
  const char *path = arguments->config_path ? arguments->config_path : CONFIG_DEFAULT_PATH;
  files_read(arguments, &files);
  if (files.err < 0) {
    fprintf(stderr, "gpushare-daemon: %s\n", files.error);
    return EXIT_CONFIG;
  }
  user_names_free(&files.names);
  printf("the configuration is right: %s%s, and %s.d/*.conf\n", path,
         access(path, F_OK) == 0 ? "" : " (which is not there)", path);
  if (files.group == PERMISSION_NO_GROUP)
    printf("but there is no group '%s': only root and the daemon's user may change settings\n",
           files.config.group);
  return EXIT_SUCCESS;
}

/* ---- signals ---- */

/* "root (uid 0, pid 1, systemd)" */
static struct log_text sender_of(const struct signalfd_siginfo *signal) {
  char name[GS_NAME_SIZE];
  if (!signal->ssi_pid)
    return (struct log_text){"the terminal"};
  peer_read_name((pid_t)signal->ssi_pid, name);
  return label_process(signal->ssi_uid, (pid_t)signal->ssi_pid, name);
}

static void set_mode(struct program *program, enum gs_mode mode, const char *by) {
  uint64_t now_ns = clock_now_ns();
  scheduler_set_mode(&program->daemon.scheduler, NULL, mode, now_ns, &program->daemon.actions);
  events_on_setting(&program->daemon, NULL, GS_SET_MODE, mode, NULL, now_ns);
  keep_setting(&program->daemon, NULL, GS_SET_MODE, mode, now_ns);
  log_info("%s set the mode of all GPUs to %s, by %s", by, mode_name(mode),
           mode == GS_MODE_ON ? "SIGUSR1" : "SIGUSR2");
}

static void on_signal(struct server *server, const struct signalfd_siginfo *signal) {
  struct program *program = program_of(server);
  if (signal->ssi_signo == (uint32_t)SIGRTMIN) {
    reload_on_read(program);
    return;
  }
  switch (signal->ssi_signo) {
  case SIGHUP:
    reload_on_signal(program, sender_of(signal));
    break;
  case SIGCHLD:
    mps_on_child(&program->daemon.mps, clock_now_ns());
    program_look_for_cards(program);
    presence_on_child(server);
    hook_on_child(&program->daemon.hook);
    web_child_on_child(&program->web);
    break;
  case SIGUSR1:
    set_mode(program, GS_MODE_ON, sender_of(signal).text);
    break;
  case SIGUSR2:
    set_mode(program, GS_MODE_OFF, sender_of(signal).text);
    break;
  default:
    log_info("ending, by %s of %s", signal->ssi_signo == SIGINT ? "SIGINT" : "SIGTERM",
             sender_of(signal).text);
    notify_stopping(server->notify);
    server->stop = true;
  }
}

static sigset_t block_signals(void) {
  const int heard[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGRTMIN};
  sigset_t signals;
  sigemptyset(&signals);
  for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
    sigaddset(&signals, heard[i]);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  signal(SIGCHLD, SIG_DFL); /* ignored, as it may be inherited, it would take the children's ends from us */
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like others */
  return signals;
}

/* ---- from the beginning to the end ---- */

/* auto: the service manager's folder; else that of the system's daemon, which is the one on the usual socket.
 * Another one keeps nothing, unless it is told where. */
static void open_state(struct program *program) {
  const struct config *config = &program->config;
  const char *passed = getenv("STATE_DIRECTORY");
  log_setup("gpushare-daemon", config->log);
  char folder[sizeof config->state];
  strcpy(folder, config->state);
  if (strcmp(folder, STATE_AUTO) == 0) {
    bool usual = strcmp(config->socket, GS_DEFAULT_SOCKET) == 0;
    const char *found = passed && *passed == '/' ? passed : usual ? STATE_DEFAULT_PATH : STATE_OFF;
    snprintf(folder, sizeof folder, "%.*s", (int)strcspn(found, ":"), found);
  }
  if (strcmp(folder, STATE_OFF) != 0)
    keep_open(&program->daemon, folder, clock_now_ns());
}

/* On the socket that the service manager has passed, else on that of the configuration. */
static int open_server(struct program *program, const sigset_t *signals) {
  struct config *config = &program->config;
  char passed[sizeof config->socket];
  int fd = activation_take(passed, sizeof passed);
  if (fd < 0 && fd != -ENOENT)
    return fd;
  if (fd >= 0 && strcmp(config->socket, passed) != 0)
    log_warn("the service manager's socket counts, not the setting: %s, not %s", passed, config->socket);
  if (fd >= 0)
    strcpy(config->socket, passed);
  int err = server_open(&program->server, &program->daemon, config->socket, fd >= 0 ? fd : -1, signals);
  program->server.on_signal = on_signal;
  program->server.on_reload = reload_on_peer;
  program->server.notify = &program->notify;
  return err;
}

static int serve(struct program *program) {
  sigset_t signals = block_signals();
  daemon_init(&program->daemon, clock_now_ns());
  int err = open_server(program, &signals);
  if (err < 0)
    return err == -EADDRINUSE ? EXIT_ANOTHER : EXIT_FAILURE;
  log_ring_start(); /* a thread keeps the capabilities that it begins with: the lookout has them now */
  program_await_cards(program);
  open_state(program);
  program_apply(program);
  program_start_spatial(program);
  log_info("listening on %s%s", program->config.socket,
           program->server.passed ? ", opened by the service manager" : "");
  notify_ready(&program->notify, 0);
  err = server_run(&program->server);
  usage_end(&program->daemon, clock_now_ns());
  keep_stop(&program->daemon);
  program_close_exporter(program);
  web_child_end(&program->web);
  server_close(&program->server);
  state_close(program->daemon.ending);
  mps_end(&program->daemon.mps);
  hook_end(&program->daemon.hook);
  daemon_end(&program->daemon);
  return err < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* What was left out of the log finds room behind what waits there. */
static void end_log(void) {
  uint64_t end_ns = clock_now_ns() + LOG_PATIENCE_NS;
  log_ring_flush(end_ns);
  log_for_end();
  log_ring_end(end_ns);
}

int main(int argc, char **argv) {
  static struct program program;
  daemon_keep_heap();
  log_setup("gpushare-daemon", LOG_LEVEL_INFO);
  program.arguments = read_arguments(argc, argv);
  if (program.arguments.only_checks)
    return check_config(&program.arguments);
  if (logs_to_journal())
    log_for_journal();
  notify_open(&program.notify, clock_now_ns());
  int code = EXIT_CONFIG;
  files_read(&program.arguments, &program.files);
  program.config = program.files.config;
  if (program_check_files(&program) == 0)
    code = serve(&program);
  else
    notify_failing(&program.notify);
  notify_close(&program.notify);
  end_log();
  return code;
}
