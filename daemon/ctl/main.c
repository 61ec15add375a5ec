/* main.c - gpusharectl: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "common/wire.h"
#include "core/scheduler.h"
#include "ctl/ctl.h"

/* The most whole hours that 64 bits of ns hold. */
#define TQ_MAX_HOURS UINT64_C(5124095)
#define TQ_MAX_NS (TQ_MAX_HOURS * 3600 * NS_PER_S)

struct request {
  const char *socket;           /* NULL: what the environment says, or the default */
  const char *gpu;              /* NULL: all */
  const char *memory, *library; /* of run; NULL: not given */
  bool json;
  char *const *words; /* command and its argument */
  int word_count;
};

static void print_help(void) {
  printf(
      "usage: gpusharectl [OPTION]... COMMAND\n\n"
      "  status                 GPUs and jobs: who holds, who waits, memory, shares, what hand-overs cost\n"
      "  set-tq DURATION        how long a job keeps a GPU while others wait: 20, 0.5, 250ms, 2m (from 1ms)\n"
      "  auto | on | off        jobs take turns: only if their memory does not fit together, always, never\n"
      "                         (memory of kind swap that does not fit together makes turns with off, too)\n"
      "  set-capacity BYTES     memory of the GPU for all jobs together: 16G; 0: the whole card\n"
      "  run [--memory managed|swap|off] [--lib PATH] [--] PROGRAM [ARGUMENT]...\n"
      "                         start a program that shares the GPU: with libunified.so preloaded\n\n"
      "  --gpu UUID|all         which GPU a change is for (default all; all is also for GPUs yet to come)\n"
      "  --json                 status as JSON\n"
      "  --socket PATH          of the daemon (default $GPUSHARE_SOCKET, or " GS_DEFAULT_SOCKET ")\n"
      "  --memory HOW           run: how the program's memory leaves the card (default $GPUSHARE_MEMORY, or "
      "what "
      "the\n"
      "                         daemon says for the GPU)\n"
      "  --lib PATH             run: the library (default $GPUSHARE_LIB, or the one that belongs to "
      "gpusharectl)\n"
      "  --help, --version\n\n");
  printf(
      "Keys of the JSON (times in ns, sizes in bytes; more may be added, none will change its meaning):\n"
      "  daemon: release pid uptime_ns default_tq_ns grace_ns host_memory_bytes jobs\n"
      "  gpus[]: index uuid name mode serialized tq_ns total_bytes capacity_bytes used_bytes holders "
      "waiting\n"
      "          handovers moved_bytes handover jobs[]\n"
      "  gpus[].handover: count, drain_ns move_ns (sums; the GPU is idle until the old holder is done, and "
      "from then\n"
      "          until the new one runs), evicted_bytes restored_bytes (moved meanwhile); drain_mean_ns "
      "move_mean_ns;\n"
      "          of the last one: drain_last_ns move_last_ns evicted_last_bytes restored_last_bytes; "
      "evicted_bytes_per_s\n"
      "          restored_bytes_per_s evicted_last_bytes_per_s restored_last_bytes_per_s (bytes / (drain + "
      "move));\n"
      "          hidden_bytes (moved behind turns), overhead_bytes (of the capacity, that the driver has "
      "refused)\n");
  printf(
      "  gpus[].jobs[]: job pid uid user name state (idle waiting holding dropping bypassed) queue "
      "(place, 0:\n"
      "          not waiting) capturing draining overdue too_big (for the capacity: waits until it is more)\n"
      "          waits_for_room (holds, until others have left the card) used_bytes resident_bytes (on the "
      "card)\n"
      "          held_ns held_share (of all jobs' held_ns) waited_ns turns moved_bytes drain_max_ns\n\n"
      "exit codes: %d done; %d the daemon refused; %d usage; %d no daemon, or it does not answer; of run: "
      "the "
      "program's,\n"
      "or %d it can't be run; %d it is not there.\n",
      CTL_OK, CTL_REFUSED, CTL_USAGE, CTL_NO_DAEMON, CTL_NOT_RUN, CTL_NOT_FOUND);
}

static int usage_error(const char *what, const char *word) {
  fprintf(stderr, "gpusharectl: %s%s%s%s; try --help\n", what, word ? " '" : "", word ? word : "",
          word ? "'" : "");
  return CTL_USAGE;
}

/* ---- commands ---- */

static int connect_daemon(const struct request *request, int *fd) {
  const char *environment = getenv("GPUSHARE_SOCKET");
  const char *path = environment && *environment ? environment : GS_DEFAULT_SOCKET;
  return ask_connect(request->socket ? request->socket : path, fd);
}

static int run_status(const struct request *request) {
  struct gs_msg *msgs;
  size_t count;
  int fd, code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = ask_status(fd, &msgs, &count);
  close(fd);
  if (code != CTL_OK)
    return code;
  if (request->json)
    code = json_show(msgs, count);
  else
    table_show(msgs, count);
  free(msgs);
  return code;
}

/* On the wire a UUID of zeros means all GPUs; a GPU that is called so there is none. */
static bool names_no_gpu(const uint8_t uuid[GS_UUID_SIZE]) {
  static const uint8_t zero[GS_UUID_SIZE];
  return memcmp(uuid, zero, sizeof zero) == 0;
}

/* CTL_OK: uuid is what the request is for. */
static int read_gpu(const struct request *request, uint8_t uuid[GS_UUID_SIZE]) {
  if (!request->gpu || strcmp(request->gpu, "all") == 0)
    return CTL_OK;
  if (parse_uuid(request->gpu, uuid) < 0)
    return usage_error("not the UUID of a GPU, nor all:", request->gpu);
  if (!names_no_gpu(uuid))
    return CTL_OK;
  fprintf(stderr, "gpusharectl: no GPU has the UUID %s: see gpusharectl status\n", request->gpu);
  return CTL_REFUSED;
}

static int run_change(const struct request *request, enum gs_msg_type type, uint64_t value) {
  struct gs_msg msg = wire_msg(type, GS_GPU_ALL);
  msg.set.value = value;
  int fd, code = read_gpu(request, msg.set.uuid);
  if (code == CTL_OK)
    code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = ask_change(fd, &msg);
  close(fd);
  return code;
}

static int run_set_tq(const struct request *request) {
  uint64_t ns;
  int err = parse_duration_ns(request->words[1], &ns);
  if (err == -ERANGE || (err == 0 && (ns < SCHED_TQ_MIN_NS || ns > TQ_MAX_NS))) {
    char what[64];
    snprintf(what, sizeof what, "the quantum must be from 1ms to %luh, not", TQ_MAX_HOURS);
    return usage_error(what, request->words[1]);
  }
  if (err < 0)
    return usage_error("not a duration (20, 0.5, 250ms, 2m):", request->words[1]);
  return run_change(request, GS_SET_TQ, ns);
}

static int run_mode(const struct request *request) {
  enum gs_mode mode = GS_MODE_AUTO;
  parse_mode(request->words[0], &mode); /* the command is a mode's name */
  return run_change(request, GS_SET_MODE, mode);
}

static int run_set_capacity(const struct request *request) {
  uint64_t bytes;
  if (parse_bytes(request->words[1], &bytes) < 0)
    return usage_error("not a size (16G, 512M, 0):", request->words[1]);
  return run_change(request, GS_SET_CAPACITY, bytes);
}

static const struct command {
  const char *name;
  int words; /* with its argument */
  int (*run)(const struct request *request);
} commands[] = {
    {"status", 1, run_status}, {"set-tq", 2, run_set_tq}, {"auto", 1, run_mode},
    {"on", 1, run_mode},       {"off", 1, run_mode},      {"set-capacity", 2, run_set_capacity},
};

static int run(const struct request *request) {
  if (request->word_count == 0)
    return usage_error("what shall be done?", NULL);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    const struct command *command = &commands[i];
    if (strcmp(command->name, request->words[0]) != 0)
      continue;
    if (request->word_count < command->words)
      return usage_error("an argument is missing after", request->words[0]);
    if (request->word_count > command->words)
      return usage_error("too much:", request->words[command->words]);
    if (request->memory || request->library)
      return usage_error("--memory and --lib are for run, not for", request->words[0]);
    return command->run(request);
  }
  return usage_error("not a command:", request->words[0]);
}

/* ---- the command line ---- */

/* Above every character: optopt tells them from a short option that there is not. */
enum { OPTION_SOCKET = 256, OPTION_GPU, OPTION_MEMORY, OPTION_LIBRARY, OPTION_JSON, OPTION_VERSION };

static const struct option option_table[] = {
    {"socket", required_argument, NULL, OPTION_SOCKET}, {"gpu", required_argument, NULL, OPTION_GPU},
    {"memory", required_argument, NULL, OPTION_MEMORY}, {"lib", required_argument, NULL, OPTION_LIBRARY},
    {"json", no_argument, NULL, OPTION_JSON},           {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPTION_VERSION},     {0},
};

static int option_error(int option, char *const *argv) {
  const char letter[] = {'-', (char)optopt, '\0'};
  if (option == ':')
    return usage_error("the value is missing after", argv[optind - 1]);
  return usage_error("unknown option", optopt > 0 && optopt < OPTION_SOCKET ? letter : argv[optind - 1]);
}

static int print_version(void) {
  printf("gpusharectl %s (protocol %u)\n", GPUSHARE_VERSION, GS_PROTOCOL_VERSION);
  return CTL_OK;
}

/* Where the value of an option goes; NULL: it has none. */
static const char **option_value(struct request *request, int option) {
  switch (option) {
  case OPTION_SOCKET:
    return &request->socket;
  case OPTION_GPU:
    return &request->gpu;
  case OPTION_MEMORY:
    return &request->memory;
  case OPTION_LIBRARY:
    return &request->library;
  default:
    return NULL;
  }
}

static int no_value(int option) {
  char name[32] = "?";
  for (const struct option *entry = option_table; entry->name; entry++)
    if (entry->val == option)
      snprintf(name, sizeof name, "--%s", entry->name);
  return usage_error("the value is missing after", name);
}

enum { GO_ON = -1 }; /* no exit code */

static int take_option(struct request *request, int option, char *const *argv) {
  const char **value = option_value(request, option);
  if (value && !*optarg)
    return no_value(option);
  if (value) {
    *value = optarg;
  } else if (option == OPTION_JSON) {
    request->json = true;
  } else if (option == OPTION_VERSION) {
    return print_version();
  } else if (option == 'h') {
    print_help();
    return CTL_OK;
  } else {
    return option_error(option, argv);
  }
  return GO_ON;
}

/* Letters that begin with '+': only the options before the first word. Words are what follows. */
static int read_options(struct request *request, int argc, char *const *argv, const char *letters) {
  int option, code = GO_ON;
  optind = 0; /* getopt begins anew */
  while (code == GO_ON && (option = getopt_long(argc, argv, letters, option_table, NULL)) != -1)
    code = take_option(request, option, argv);
  request->words = argv + optind;
  request->word_count = argc - optind;
  return code;
}

/* The words: "run", its options, the program and its arguments. */
static int execute_run(struct request *request) {
  int code = read_options(request, request->word_count, request->words, "+:h");
  if (code != GO_ON)
    return code;
  if (request->word_count == 0)
    return usage_error("an argument is missing after", "run");
  return run_command(&(struct run_request){.socket = request->socket,
                                           .memory = request->memory,
                                           .library = request->library,
                                           .command = request->words});
}

/* Options may stand anywhere, but those behind the program of `run` are the program's. */
static int execute(int argc, char **argv) {
  struct request request = {0};
  int code = read_options(&request, argc, argv, "+:h");
  if (code == GO_ON && request.word_count > 0 && strcmp(request.words[0], "run") == 0)
    return execute_run(&request);
  if (code == GO_ON)
    code = read_options(&request, argc, argv, ":h");
  return code == GO_ON ? run(&request) : code;
}

int main(int argc, char **argv) {
  int code = execute(argc, argv);
  errno = 0;
  bool lost = fflush(stdout) != 0 || ferror(stdout);
  if (!lost || code > CTL_REFUSED)
    return code;
  fprintf(stderr, "gpusharectl: can't write the answer: %s\n", strerror(errno ? errno : EIO));
  return CTL_REFUSED;
}
