/* ctl_main.c - gpusharectl: the command line. */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/parse.h"
#include "ctl/ctl.h"

/* ---- options ---- */

enum { LONG = 256 }; /* option i, if it has no letter; above every character: optopt tells them apart */
#define LETTERS "+:hn:o:d:" /* +: not past a word */

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
    {"socket", 0, VALUE, AT(run.socket)},
    {"gpu", 0, VALUE, AT(gpu)},
    {"json", 0, SWITCH, AT(json)},
    {"version", 0, SHOW, 0},
    {"follow", 0, SWITCH, AT(follow)},
    {"since", 0, VALUE, AT(since)},
    {"batch", 0, SWITCH, AT(batch)},
    {"by", 0, VALUE, AT(by)},
    {"csv", 0, SWITCH, AT(csv)},
    {"lib", 0, VALUE, AT(run.library)},
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

static const struct command {
  const char *name;
  int words; /* with its arguments */
  int (*run)(const struct request *request);
  const char *options;
} commands[] = {
    {"status", 1, status_command, OF_ANSWER},
    {"top", 1, top_command, OF_ANSWER "--batch -n -d "},
    {"why", 2, why_command, OF_ANSWER},
    {"plan", 1, plan_command, OF_ANSWER},
    {"jobs", 1, jobs_command, OF_ANSWER},
    {"history", 1, history_command, OF_HISTORY},
    {"report", 1, report_command, OF_HISTORY "--by --csv "},
    {"events", 1, events_command, OF_HISTORY "--follow "},
    {"timeline", 1, timeline_command, OF_HISTORY "-o "},
    {"doctor", 1, doctor_command, OF_ANSWER "--lib "},
    {"cdi", 2, cdi_command, OF_ANSWER "-o --lib "},
    {"reload", 1, reload_command, OF_ANSWER},
    {"set-tq", 2, change_gpus, OF_GPU},
    {"auto", 1, change_gpus, OF_GPU},
    {"on", 1, change_gpus, OF_GPU},
    {"off", 1, change_gpus, OF_GPU},
    {"set-policy", 2, change_gpus, OF_GPU},
    {"set-capacity", 2, change_gpus, OF_GPU},
    {"set-weight", 3, change_job, OF_ANSWER},
    {"set-priority", 3, change_job, OF_ANSWER},
    {"set-expected", 3, change_job, OF_ANSWER},
    {"set-limit", 3, change_job, OF_ANSWER},
    {"set-soft-limit", 3, change_job, OF_ANSWER},
    {"set-expected-memory", 3, change_job, OF_ANSWER},
    {"set-class", 3, change_job, OF_ANSWER},
    {"pause", 2, change_job, OF_ANSWER},
    {"resume", 2, change_job, OF_ANSWER},
    {"set-rate", 3, change_job, OF_ANSWER},
    {"evict", 2, change_job, OF_ANSWER},
};

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
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    const struct command *command = &commands[i];
    if (strcmp(command->name, request->words[0]) != 0)
      continue;
    if (request->word_count < command->words)
      return usage_error("an argument is missing after", request->words[0]);
    if (request->word_count > command->words)
      return usage_error("too much:", request->words[command->words]);
    int code = check_options(request, command->options, false);
    return code == CTL_OK ? command->run(request) : code;
  }
  return usage_error("not a command:", request->words[0]);
}

/* ---- help ---- */

static void show_help(void) {
  printf(
      "usage: gpusharectl [OPTION]... COMMAND\n\n"
      "  status                 GPUs and jobs: who holds, who waits, memory, shares, what hand-overs cost\n"
      "  top                    the same, again and again, on the whole terminal: F1 or h tells the keys\n"
      "  why JOB                what a job waits for, how long that should take, and what helps\n"
      "  plan                   of each GPU which jobs have a seat, which are next, and by which rule\n"
      "  jobs                   each job once, whatever GPUs it is on, and gangs with their members\n"
      "  history                programs that have ended: times, GPU time, waiting, how they ended; the last "
      "4096\n"
      "  report                 what users have had of the GPUs: GPU hours, waiting, memory moved; see --by\n"
      "  events                 what has happened: who came, was granted, stopped, moved memory, ended, and "
      "who\n"
      "                         changed what; the last 65536 events since the daemon has started\n"
      "  timeline               the same as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing\n"
      "  doctor                 what keeps programs from sharing, and what helps: driver, library, daemon, "
      "rights,\n"
      "                         limits, MPS, processes that do not share, kernel, environment\n"
      "  cdi generate           a specification of the Container Device Interface, of kind "
      "gpushare.io/share:\n"
      "                         what containers need beside a GPU\n"
      "  reload                 the daemon reads its configuration again, and says what has changed\n"
      "  set-tq DURATION|auto   how long a job keeps a GPU while others wait: 20, 0.5, 250ms, 2m (" TQ_RANGE
      ");\n"
      "                         auto: as short as hand-overs allow that take at most 5 %% of the time\n"
      "                         (setting 'loss' of the daemon)\n"
      "  auto | on | off        jobs take turns: only if their memory does not fit together, always, never\n"
      "                         (memory of kind swap that does not fit together makes turns with off, too)\n"
      "  set-policy NAME        whose turn is next: rr (round robin), fair (equal GPU time, by weight),\n"
      "                         fifo (in order of arrival), srtf (shortest remaining time first),\n"
      "                         priority, pack (as many beside each other as fit)\n"
      "  set-capacity BYTES     memory of the GPU for all jobs together: 16G; 0: the whole card\n"
      "  set-weight JOB N       the job's share of GPU time, 1 to 10000 (default 100; policy fair)\n"
      "  set-priority JOB N     -20 to 20, the most urgent (default 0; policy priority)\n"
      "  set-expected JOB TIME  its GPU time, all in all: 90, 15m, 2.5h; 0: unknown (policy srtf)\n"
      "  set-limit JOB BYTES    its memory on each GPU, beyond which it may not grow: 16G; 0: no limit\n"
      "  set-soft-limit JOB BYTES\n"
      "                         likewise, but it may grow: what is beyond leaves the card before others' "
      "memory\n"
      "                         (owners of a job may only lower its weight and priority)\n"
      "  set-expected-memory JOB BYTES\n"
      "                         what it will have at once, at most: so much it counts beside others; 0: "
      "unknown\n"
      "  set-class JOB CLASS    production: keeps its speed; opportunistic: has what production jobs leave\n"
      "                         over; standard (default)\n"
      "  set-rate JOB N%%|auto   what an opportunistic job may use of a GPU, whatever production jobs lose;\n"
      "                         auto: what they don't lose by (default)\n"
      "  pause JOB | resume JOB\n"
      "                         a paused job gets no GPU until it is resumed; nor does the rest of its gang\n"
      "  evict JOB              end its connection: others go on without it; its program comes again as a "
      "new "
      "job,\n"
      "                         after a while (owners may evict their own)\n"
      "  run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
      "                         start a program that shares the GPU: with libunified.so preloaded;\n"
      "                         many programs with -n or --jobs, see below\n\n"
      "  --gpu UUID|INDEX|all   which GPUs a change is for: indexes as in status and nvidia-smi (0; 0,2; a "
      "MIG\n"
      "                         instance: 0:1), UUIDs, or how one begins (GPU-5d3a); default all, which is "
      "also\n"
      "                         for GPUs yet to come\n"
      "  --json                 status, why, plan, jobs, history, events and top --batch as JSON (of the "
      "last two\n"
      "                         an object per line), and, as a line of it, what has been changed; what goes\n"
      "                         wrong is told on stderr and by the exit code all the same\n"
      "  --follow               events: those that come, as they come; with --since also earlier ones\n"
      "  --since DURATION       events, timeline, history, report: none that are older: 90, 15m, 2h, 7d\n"
      "  --by user|job|gpu|class\n"
      "                         report: what a row is for (default user)\n"
      "  --csv                  report: comma-separated values, for spreadsheets\n"
      "  -o FILE                timeline, cdi: where it goes (default stdout)\n"
      "  -d SECONDS             top: between looks (default 2)\n"
      "  --batch                top: plain text, for pipes; -n N: so many times (default: without end)\n"
      "  --socket PATH          of the daemon (default $GPUSHARE_SOCKET, or " GS_DEFAULT_SOCKET ")\n"
      "  --memory HOW           run: how the program's memory leaves the card (default $GPUSHARE_MEMORY, or "
      "what the\n"
      "                         daemon says for the GPU)\n"
      "  --lib PATH             run, cdi: the library (default $GPUSHARE_LIB, or the one that belongs to "
      "gpusharectl)\n"
      "  --weight N, --priority N, --expected TIME, --limit BYTES, --soft-limit BYTES,\n"
      "  --expected-memory BYTES, --class CLASS\n"
      "                         run: as set-weight and so on (default $GPUSHARE_WEIGHT, $GPUSHARE_PRIORITY,\n"
      "                         $GPUSHARE_EXPECTED_RUNTIME, $GPUSHARE_MEMORY_LIMIT, "
      "$GPUSHARE_MEMORY_SOFT_LIMIT,\n"
      "                         $GPUSHARE_EXPECTED_MEMORY, $GPUSHARE_CLASS)\n"
      "  --help, --version\n\n");
  printf(
      "run, many jobs:\n"
      "  -n N                   N copies of the program; with --jobs: at most N at once (default: all)\n"
      "  --jobs FILE            a job per line, -: of stdin. Its words are appended to the PROGRAM and its\n"
      "                         ARGUMENTs, of which there may be none; NAME=VALUE in front is for the job's\n"
      "                         environment. Quotes and \\ as in a shell, # begins a comment, nothing is\n"
      "                         expanded; \"NAME=VALUE\" is an ordinary word\n"
      "  --gpus-per-job N|all   how many of the visible GPUs a job sees (default 1): those with the fewest\n"
      "                         of these jobs, of equal ones those with the most room. CUDA_VISIBLE_DEVICES\n"
      "                         tells it; that is left alone with all, for jobs that set it and, unless N\n"
      "                         is given, for gangs, torchrun, mpirun and the like\n"
      "  --output DIR           for INDEX.out, INDEX.err and results.tsv (default gpushare-run-DATE-TIME)\n"
      "  --prefix               no files: each line that a job writes, with [INDEX] in front\n"
      "  --retry K              try a job that fails again, at most K times\n"
      "  --fail-fast            once a job has failed, start no more, and end the others by SIGTERM\n"
      "  --grace DURATION       and those that are there so long after it by SIGKILL (default 10s)\n"
      "  Jobs find their INDEX, from 0, in GPUSHARE_JOB_INDEX, how many there are in\n"
      "  GPUSHARE_JOB_COUNT, and nothing on stdin. Each is a process group, and over when its program\n"
      "  ends: the rest of the group is killed. SIGINT, SIGTERM and SIGHUP go to all that run, and no\n"
      "  more are started; a second SIGINT kills.\n\n");
  printf(
      "The JSON of each command has a schema, which tells what its keys mean: docs/schema, installed in\n"
      "share/doc/gpushare/docs/schema. Times are in ns, sizes in bytes; more keys may be added, and none\n"
      "will change its meaning.\n\n"
      "exit codes: %d done; %d the daemon refused, or doctor finds that something fails; %d usage; %d no\n"
      "daemon, or it does not answer; of run: the program's, or %d it can't be run; %d it is not there; of\n"
      "many jobs: 0 all have succeeded, 1 not all.\n",
      CTL_OK, CTL_REFUSED, CTL_USAGE, CTL_NO_DAEMON, CTL_NOT_RUN, CTL_NOT_FOUND);
}

/* ---- the command line ---- */

enum { GO_ON = -1 }; /* no exit code */

static int option_error(int option, char *const *argv) {
  const char letter[] = {'-', (char)optopt, '\0'};
  if (option == ':')
    return usage_error("the value is missing after", argv[optind - 1]);
  return usage_error("unknown option", optopt > 0 && optopt < LONG ? letter : argv[optind - 1]);
}

static int take_option(struct request *request, int option, char *const *argv) {
  size_t i = option >= LONG ? (size_t)option - LONG : 0;
  while (i < OPTIONS && option < LONG && options[i].letter != option)
    i++;
  if (i == OPTIONS)
    return option_error(option, argv);
  void *at = (char *)request + options[i].at;
  if (options[i].kind & SHOW && options[i].letter) {
    show_help();
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
