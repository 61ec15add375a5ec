/* ctl_main.c - gpusharectl: the command line. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/parse.h"
#include "common/spelling.h"
#include "ctl/ctl.h"
#include "ctl/help.h"

enum { GO_ON = -1 }; /* no exit code */

/* ---- options ---- */

enum { LONG = 256 }; /* option i, if it has no letter; above every character: optopt tells them apart */
#define LETTERS "+:hn:o:d:s:" /* +: not past a word */

/* It takes a text; sets a bool; shows something, and that is all. And only `run` has it. */
enum { VALUE = 1, SWITCH = 2, SHOW = 4, RUN = 8 };

/* In this order the first one is told that a command does not have. */
#define AT(field) offsetof(struct request, field)
static const struct {
  const char *name;
  char letter;
  unsigned kind;
  size_t at; /* where its text or bool is */
} options[] = {
    {NULL, 'd', VALUE, AT(delay)},
    {"help", 'h', SHOW, 0},
    {NULL, 'n', VALUE, AT(run.slots)},
    {NULL, 'o', VALUE, AT(file)},
    {NULL, 's', VALUE, AT(signal)},
    {"socket", 0, VALUE, AT(run.socket)},
    {"gpu", 0, VALUE, AT(gpu)},
    {"host", 0, VALUE, AT(hosts)},
    {"job", 0, VALUE, AT(job)},
    {"json", 0, SWITCH, AT(json)},
    {"version", 0, SHOW, 0},
    {"follow", 0, SWITCH, AT(follow)},
    {"since", 0, VALUE, AT(since)},
    {"batch", 0, SWITCH, AT(batch)},
    {"by", 0, VALUE, AT(by)},
    {"csv", 0, SWITCH, AT(csv)},
    {"lib", 0, VALUE, AT(run.library)},
    {"name", 0, VALUE | RUN, AT(run.name)},
    {"memory", 0, VALUE | RUN, AT(run.memory)},
    {"weight", 0, VALUE | RUN, AT(run.weight)},
    {"priority", 0, VALUE | RUN, AT(run.priority)},
    {"expected", 0, VALUE | RUN, AT(run.expected)},
    {"limit", 0, VALUE | RUN, AT(run.limit)},
    {"soft-limit", 0, VALUE | RUN, AT(run.soft_limit)},
    {"expected-memory", 0, VALUE | RUN, AT(run.expected_memory)},
    {"class", 0, VALUE | RUN, AT(run.class)},
    {"jobs", 0, VALUE | RUN, AT(run.jobs)},
    {"output", 0, VALUE | RUN, AT(run.output)},
    {"prefix", 0, SWITCH | RUN, AT(run.prefix)},
    {"retry", 0, VALUE | RUN, AT(run.retry)},
    {"fail-fast", 0, SWITCH | RUN, AT(run.fail_fast)},
    {"grace", 0, VALUE | RUN, AT(run.grace)},
    {"gpus-per-job", 0, VALUE | RUN, AT(run.gpus_per_job)},
};
#undef AT
#define OPTIONS (sizeof options / sizeof *options)

/* As it is written, with a blank behind. */
static const char *option_text(size_t i, char text[24]) {
  if (options[i].name)
    snprintf(text, 24, "--%s ", options[i].name);
  else
    snprintf(text, 24, "-%c ", options[i].letter);
  return text;
}

static int option_complaint(const char *what, size_t i) {
  char text[24];
  strchr(option_text(i, text), ' ')[0] = '\0';
  return usage_error(what, text);
}

/* ---- commands ---- */

/* The options that a command has. A trace and a specification are JSON in any case. */
#define OF_RUN "--socket --lib -n " /* beside those that it alone has */
#define OF_ANSWER "--socket --json "
#define OF_HISTORY OF_ANSWER "--since "
#define OF_GPU OF_ANSWER "--gpu "
#define OF_HOSTS "--host "

#define ANY INT_MAX

static int help_of_command(const struct request *request);

static const struct command {
  const char *name;
  int words, most; /* with its arguments */
  int (*run)(const struct request *request);
  const char *options;
} commands[] = {
    {"help", 1, 2, help_of_command, ""},
    {"status", 1, 1, status_command, OF_ANSWER OF_HOSTS},
    {"top", 1, 1, top_command, OF_ANSWER OF_HOSTS "--batch -n -d "},
    {"why", 2, 2, why_command, OF_ANSWER},
    {"plan", 1, 1, plan_command, OF_ANSWER},
    {"jobs", 1, 1, jobs_command, OF_ANSWER},
    {"history", 1, 1, history_command, OF_HISTORY},
    {"report", 1, 1, report_command, OF_HISTORY OF_HOSTS "--by --csv "},
    {"events", 1, 1, events_command, OF_HISTORY "--follow --job --gpu "},
    {"timeline", 1, 1, timeline_command, OF_HISTORY "-o "},
    {"doctor", 1, 1, doctor_command, OF_ANSWER "--lib "},
    {"cdi", 2, 2, cdi_command, OF_ANSWER "-o --lib "},
    {"reload", 1, 1, reload_command, OF_ANSWER},
    {"set-tq", 2, 2, change_gpus, OF_GPU},
    {"auto", 1, 1, change_gpus, OF_GPU},
    {"on", 1, 1, change_gpus, OF_GPU},
    {"off", 1, 1, change_gpus, OF_GPU},
    {"set-policy", 2, 2, change_gpus, OF_GPU},
    {"set-capacity", 2, 2, change_gpus, OF_GPU},
    {"set-weight", 3, 3, change_job, OF_ANSWER},
    {"set-priority", 3, 3, change_job, OF_ANSWER},
    {"set-expected", 3, 3, change_job, OF_ANSWER},
    {"set-limit", 3, 3, change_job, OF_ANSWER},
    {"set-soft-limit", 3, 3, change_job, OF_ANSWER},
    {"set-expected-memory", 3, 3, change_job, OF_ANSWER},
    {"set-class", 3, 3, change_job, OF_ANSWER},
    {"pause", 2, ANY, change_job, OF_ANSWER},
    {"resume", 2, ANY, change_job, OF_ANSWER},
    {"set-rate", 3, 3, change_job, OF_ANSWER},
    {"evict", 2, ANY, change_job, OF_ANSWER},
    {"kill", 2, ANY, kill_command, OF_ANSWER "-s "},
};
#define COMMANDS (sizeof commands / sizeof *commands)

/* NULL: there is none; `run` is none of these. */
static const struct command *find_command(const char *name) {
  for (size_t i = 0; i < COMMANDS; i++)
    if (strcmp(commands[i].name, name) == 0)
      return &commands[i];
  return NULL;
}

static int no_command(const char *word) {
  const char *meant = NULL;
  unsigned best = UINT_MAX;
  for (size_t i = 0; i < COMMANDS; i++)
    if (spelling_is_nearer(word, commands[i].name, &best))
      meant = commands[i].name;
  return usage_error_near("not a command:", word, spelling_is_nearer(word, "run", &best) ? "run" : meant);
}

/* What concerns the command; GO_ON: there is none. */
static int show_command(const char *name) {
  const struct command *command = find_command(name);
  char of_run[512] = OF_RUN, text[24];
  bool is_run = strcmp(name, "run") == 0;
  if (!command && !is_run)
    return GO_ON;
  for (size_t i = 0; is_run && i < OPTIONS; i++)
    if (options[i].kind & RUN)
      strcat(of_run, option_text(i, text));
  help_command(name, command ? command->options : of_run, is_run);
  return CTL_OK;
}

static int help_of_command(const struct request *request) {
  int code = request->word_count > 1 ? show_command(request->words[1]) : CTL_OK;
  if (request->word_count == 1)
    help_all();
  return code == GO_ON ? no_command(request->words[1]) : code;
}

/* Whether only options of the command are given: those of a list, and of `run` its own. */
static int check_options(const struct request *request, const char *list, bool is_run) {
  char text[24];
  for (unsigned of_run = is_run ? 0 : RUN;; of_run = 0) {
    for (size_t i = 0; i < OPTIONS; i++)
      if (request->options & UINT64_C(1) << i && (options[i].kind & RUN) == of_run &&
          !strstr(list, option_text(i, text)))
        return option_complaint(of_run ? "only run has the option" : "this command does not have the option",
                                i);
    if (!of_run)
      return CTL_OK;
  }
}

static int run(const struct request *request) {
  if (request->word_count == 0)
    return usage_error("what shall be done?", NULL);
  const struct command *command = find_command(request->words[0]);
  if (!command)
    return no_command(request->words[0]);
  if (request->word_count < command->words)
    return usage_error("an argument is missing after", request->words[0]);
  if (request->word_count > command->most)
    return usage_error("too much:", request->words[command->most]);
  int code = check_options(request, command->options, false);
  if (code != CTL_OK)
    return code;
  return request->hosts ? hosts_command(request) : command->run(request);
}

/* ---- the command line ---- */

static int option_error(int option, char *const *argv) {
  const char letter[] = {'-', (char)optopt, '\0'};
  if (option == ':')
    return usage_error("the value is missing after", argv[optind - 1]);
  if (optopt > 0 && optopt < LONG)
    return usage_error("unknown option", letter);
  char word[64], name[24];
  const char *meant = NULL;
  unsigned best = UINT_MAX;
  snprintf(word, sizeof word, "%.*s", (int)strcspn(argv[optind - 1], "="), argv[optind - 1]);
  for (size_t i = 0; i < OPTIONS; i++) {
    if (!options[i].name)
      continue;
    snprintf(name, sizeof name, "--%s", options[i].name);
    if (spelling_is_nearer(word, name, &best))
      meant = options[i].name;
  }
  snprintf(name, sizeof name, "--%s", meant ? meant : "");
  return usage_error_near("unknown option", argv[optind - 1], meant ? name : NULL);
}

static int take_option(struct request *request, int option, char *const *argv) {
  size_t i = option >= LONG ? (size_t)option - LONG : 0;
  while (i < OPTIONS && option < LONG && options[i].letter != option)
    i++;
  if (i == OPTIONS)
    return option_error(option, argv);
  void *at = (char *)request + options[i].at;
  if (options[i].kind & SHOW && options[i].letter) {
    if (request->word_count == 0 || show_command(request->words[0]) == GO_ON)
      help_all();
    return CTL_OK;
  }
  if (options[i].kind & SHOW) {
    printf("gpusharectl %s (protocol %u)\n", GPUSHARE_VERSION, GS_PROTOCOL_VERSION);
    return CTL_OK;
  }
  if (options[i].kind & SWITCH)
    *(bool *)at = true;
  else if (*optarg)
    *(const char **)at = optarg;
  else
    return option_complaint("the value is missing after", i);
  request->options |= UINT64_C(1) << i;
  return GO_ON;
}

static int next_option(int argc, char **argv) {
  static struct option known[OPTIONS + 1];
  size_t count = 0;
  for (size_t i = 0; i < OPTIONS; i++)
    if (options[i].name)
      known[count++] =
          (struct option){options[i].name, options[i].kind & VALUE ? required_argument : no_argument, NULL,
                          options[i].letter ? options[i].letter : LONG + (int)i};
  return getopt_long(argc, argv, LETTERS, known, NULL);
}

/* The options before the first word. Words are what follows. */
static int read_options(struct request *request, int argc, char **argv) {
  int option, code = GO_ON;
  optind = 0; /* getopt begins anew */
  while (code == GO_ON && (option = next_option(argc, argv)) != -1)
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
    else if ((option = next_option(argc, argv)) != -1)
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
  request->run.command = request->words;
  code = check_options(request, OF_RUN, true);
  return code == CTL_OK ? run_command(&request->run) : code;
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
