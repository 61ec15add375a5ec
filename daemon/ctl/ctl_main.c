/* ctl_main.c - gpusharectl: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"

/* ---- options ---- */

#define LETTERS "+:hn:o:d:" /* +: not past a word */

/* Above every character: optopt tells them from a short option that there is not. Those of run come last. */
enum {
  OPTION_SOCKET = 256,
  OPTION_GPU,
  OPTION_JSON,
  OPTION_VERSION,
  OPTION_FOLLOW,
  OPTION_SINCE,
  OPTION_BATCH,
  OPTION_LIBRARY,
  OPTION_MEMORY,
  OPTION_WEIGHT,
  OPTION_PRIORITY,
  OPTION_EXPECTED,
  OPTION_LIMIT,
  OPTION_SOFT_LIMIT,
  OPTION_EXPECTED_MEMORY,
  OPTION_CLASS,
  OPTION_JOBS,
  OPTION_OUTPUT,
  OPTION_PREFIX,
  OPTION_RETRY,
  OPTION_FAIL_FAST,
  OPTION_GRACE,
  OPTION_GPUS_PER_JOB
};

static const struct option option_table[] = {
    {"socket", required_argument, NULL, OPTION_SOCKET},
    {"gpu", required_argument, NULL, OPTION_GPU},
    {"json", no_argument, NULL, OPTION_JSON},
    {"follow", no_argument, NULL, OPTION_FOLLOW},
    {"since", required_argument, NULL, OPTION_SINCE},
    {"batch", no_argument, NULL, OPTION_BATCH},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"memory", required_argument, NULL, OPTION_MEMORY},
    {"lib", required_argument, NULL, OPTION_LIBRARY},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"output", required_argument, NULL, OPTION_OUTPUT},
    {"prefix", no_argument, NULL, OPTION_PREFIX},
    {"retry", required_argument, NULL, OPTION_RETRY},
    {"fail-fast", no_argument, NULL, OPTION_FAIL_FAST},
    {"grace", required_argument, NULL, OPTION_GRACE},
    {"gpus-per-job", required_argument, NULL, OPTION_GPUS_PER_JOB},
    {"weight", required_argument, NULL, OPTION_WEIGHT},
    {"priority", required_argument, NULL, OPTION_PRIORITY},
    {"expected", required_argument, NULL, OPTION_EXPECTED},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"soft-limit", required_argument, NULL, OPTION_SOFT_LIMIT},
    {"expected-memory", required_argument, NULL, OPTION_EXPECTED_MEMORY},
    {"class", required_argument, NULL, OPTION_CLASS},
    {0},
};

/* Options as a set: a bit each. */
#define OPTION_BIT(option)                                                                                   \
  (UINT64_C(1) << ((option) < OPTION_SOCKET ? (option) - 'a' : (option)-OPTION_SOCKET + 'z' - 'a' + 1))

static int option_first(uint64_t options) {
  int bit = __builtin_ctzll(options);
  return bit <= 'z' - 'a' ? 'a' + bit : bit - ('z' - 'a' + 1) + OPTION_SOCKET;
}

static int option_complaint(const char *what, int option) {
  char name[32] = {'-', (char)option};
  for (const struct option *entry = option_table; entry->name; entry++)
    if (entry->val == option)
      snprintf(name, sizeof name, "--%s", entry->name);
  return usage_error(what, name);
}

/* ---- commands ---- */

static int run_status(const struct request *request) {
  struct gs_msg *msgs;
  size_t count;
  int code = fetch_status(request, &msgs, &count);
  if (code != CTL_OK)
    return code;
  if (request->json)
    code = json_show(msgs, count);
  else
    table_show(msgs, count);
  free(msgs);
  return code;
}

/* What is for the daemon at a socket; and all that `run` alone has begins with OPTION_MEMORY. */
#define OF_ALL OPTION_BIT(OPTION_SOCKET)
#define OF_RUN (~(OPTION_BIT(OPTION_MEMORY) - 1))

/* A trace and a specification are JSON in any case. */
#define OF_ANSWER (OF_ALL | OPTION_BIT(OPTION_JSON))
#define OF_TOP (OF_ANSWER | OPTION_BIT(OPTION_BATCH) | OPTION_BIT('n') | OPTION_BIT('d'))
#define OF_HISTORY (OF_ANSWER | OPTION_BIT(OPTION_SINCE))
#define OF_EVENTS (OF_HISTORY | OPTION_BIT(OPTION_FOLLOW))
#define OF_TIMELINE (OF_HISTORY | OPTION_BIT('o'))
#define OF_CDI (OF_ANSWER | OPTION_BIT('o') | OPTION_BIT(OPTION_LIBRARY))
#define OF_GPU (OF_ANSWER | OPTION_BIT(OPTION_GPU))

static const struct command {
  const char *name;
  int words; /* with its arguments */
  int (*run)(const struct request *request);
  uint64_t options;
} commands[] = {
    {"status", 1, run_status, OF_ANSWER},
    {"top", 1, top_command, OF_TOP},
    {"why", 2, why_command, OF_ANSWER},
    {"jobs", 1, jobs_command, OF_ANSWER},
    {"history", 1, history_command, OF_HISTORY},
    {"events", 1, events_command, OF_EVENTS},
    {"timeline", 1, timeline_command, OF_TIMELINE},
    {"cdi", 2, cdi_command, OF_CDI},
    {"set-tq", 2, change_tq, OF_GPU},
    {"auto", 1, change_mode, OF_GPU},
    {"on", 1, change_mode, OF_GPU},
    {"off", 1, change_mode, OF_GPU},
    {"set-policy", 2, change_policy, OF_GPU},
    {"set-capacity", 2, change_capacity, OF_GPU},
    {"set-weight", 3, change_weight, OF_ANSWER},
    {"set-priority", 3, change_priority, OF_ANSWER},
    {"set-expected", 3, change_expected, OF_ANSWER},
    {"set-limit", 3, change_limit, OF_ANSWER},
    {"set-soft-limit", 3, change_soft_limit, OF_ANSWER},
    {"set-expected-memory", 3, change_expected_memory, OF_ANSWER},
    {"set-class", 3, change_class, OF_ANSWER},
    {"pause", 2, change_paused, OF_ANSWER},
    {"resume", 2, change_paused, OF_ANSWER},
    {"set-rate", 3, change_rate, OF_ANSWER},
    {"evict", 2, change_evict, OF_ANSWER},
};

static int check_options(uint64_t given, uint64_t known) {
  uint64_t unknown = given & ~known;
  if (!unknown)
    return CTL_OK;
  return option_complaint(unknown & OF_RUN ? "only run has the option"
                                           : "this command does not have the option",
                          option_first(unknown & OF_RUN ? unknown & OF_RUN : unknown));
}

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
    int code = check_options(request->options, command->options);
    return code == CTL_OK ? command->run(request) : code;
  }
  return usage_error("not a command:", request->words[0]);
}

/* ---- the command line ---- */

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
    return &request->run.socket;
  case OPTION_GPU:
    return &request->gpu;
  case 'o':
    return &request->file;
  case OPTION_SINCE:
    return &request->since;
  case 'd':
    return &request->delay;
  case OPTION_MEMORY:
    return &request->run.memory;
  case OPTION_LIBRARY:
    return &request->run.library;
  case OPTION_WEIGHT:
    return &request->run.weight;
  case OPTION_PRIORITY:
    return &request->run.priority;
  case OPTION_EXPECTED:
    return &request->run.expected;
  case OPTION_LIMIT:
    return &request->run.limit;
  case OPTION_SOFT_LIMIT:
    return &request->run.soft_limit;
  case OPTION_EXPECTED_MEMORY:
    return &request->run.expected_memory;
  case OPTION_CLASS:
    return &request->run.class;
  case 'n':
    return &request->run.slots;
  case OPTION_JOBS:
    return &request->run.jobs;
  case OPTION_OUTPUT:
    return &request->run.output;
  case OPTION_RETRY:
    return &request->run.retry;
  case OPTION_GRACE:
    return &request->run.grace;
  case OPTION_GPUS_PER_JOB:
    return &request->run.gpus_per_job;
  default:
    return NULL;
  }
}

/* What an option without a value switches on; NULL: nothing. */
static bool *option_switch(struct request *request, int option) {
  switch (option) {
  case OPTION_JSON:
    return &request->json;
  case OPTION_FOLLOW:
    return &request->follow;
  case OPTION_BATCH:
    return &request->batch;
  case OPTION_PREFIX:
    return &request->run.prefix;
  case OPTION_FAIL_FAST:
    return &request->run.fail_fast;
  default:
    return NULL;
  }
}

enum { GO_ON = -1 }; /* no exit code */

static int take_option(struct request *request, int option, char *const *argv) {
  const char **value = option_value(request, option);
  bool *on = option_switch(request, option);
  if (value && !*optarg)
    return option_complaint("the value is missing after", option);
  if (value || on)
    request->options |= OPTION_BIT(option);
  if (value) {
    *value = optarg;
  } else if (on) {
    *on = true;
  } else if (option == OPTION_VERSION) {
    return print_version();
  } else if (option == 'h') {
    help_show();
    return CTL_OK;
  } else {
    return option_error(option, argv);
  }
  return GO_ON;
}

/* The options before the first word. Words are what follows. */
static int read_options(struct request *request, int argc, char **argv) {
  int option, code = GO_ON;
  optind = 0; /* getopt begins anew */
  while (code == GO_ON && (option = getopt_long(argc, argv, LETTERS, option_table, NULL)) != -1)
    code = take_option(request, option, argv);
  request->words = argv + optind;
  request->word_count = argc - optind;
  return code;
}

static bool is_word(const char *text) {
  return text[0] != '-' || text[1] == '\0' || (text[1] >= '0' && text[1] <= '9'); /* a negative number */
}

/* Go on from the first word: options may stand between the others, up to a "--". */
static int read_words(struct request *request, int argc, char **argv) {
  int option = 0, code = GO_ON;
  request->word_count = 0;
  while (code == GO_ON && optind < argc)
    if (option == -1 || is_word(argv[optind]))
      request->words[request->word_count++] = argv[optind++];
    else if ((option = getopt_long(argc, argv, LETTERS, option_table, NULL)) != -1)
      code = take_option(request, option, argv);
  return code;
}

/* The words: "run", its options, the program and its arguments. */
static int execute_run(struct request *request) {
  int code = read_options(request, request->word_count, request->words);
  if (code != GO_ON)
    return code;
  if (request->word_count == 0 && !request->run.jobs)
    return usage_error("an argument is missing after", "run");
  code = check_options(request->options, OF_ALL | OF_RUN | OPTION_BIT(OPTION_LIBRARY) | OPTION_BIT('n'));
  if (code != CTL_OK)
    return code;
  request->run.command = request->words;
  return run_command(&request->run);
}

/* Options may stand anywhere, but those behind the program of `run` are the program's. */
static int execute(int argc, char **argv) {
  struct request request = {0};
  int code = read_options(&request, argc, argv);
  if (code == GO_ON && request.word_count > 0 && strcmp(request.words[0], "run") == 0)
    return execute_run(&request);
  if (code == GO_ON)
    code = read_words(&request, argc, argv);
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
