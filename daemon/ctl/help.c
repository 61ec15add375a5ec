/* help.c - what gpusharectl tells of itself: all of it, and what concerns one command. */
#include "ctl/help.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/parse.h"
#include "ctl/ctl.h"

/* An entry is a line that begins with two blanks and what it is about, and the lines that are indented more.
 * Completions and tests read it as well. */
static const char commands_text[] =
    "  status                 GPUs and jobs: who holds, who waits, memory, shares, what hand-overs cost\n"
    "  top                    the same, again and again, on the whole terminal: F1 or h tells the keys\n"
    "  why JOB                what a job waits for, how long that should take, and what helps\n"
    "  plan                   of each GPU which jobs have a seat, which are next, and by which rule\n"
    "  jobs                   each job once, whatever GPUs it is on, and gangs with their members\n"
    "  history                programs that have ended: times, GPU time, waiting, how they ended; the last "
    "4096\n"
    "  report                 what users have had of the GPUs: hours, waiting, memory moved, energy; see "
    "--by\n"
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
    "                         auto: as short as hand-overs allow that take at most 5 % of the time\n"
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
    "  set-rate JOB N%|auto   what an opportunistic job may use of a GPU, whatever production jobs lose;\n"
    "                         auto: what they don't lose by (default)\n"
    "  pause JOB... | resume JOB...\n"
    "                         a paused job gets no GPU until it is resumed; nor does the rest of its gang\n"
    "  evict JOB...           end its connection: others go on without it; its program comes again as a "
    "new "
    "job,\n"
    "                         after a while (owners may evict their own)\n"
    "  kill JOB...            send its process a signal, SIGTERM or that of -s: whoever may by kill(1) may\n"
    "  run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
    "                         start a program that shares the GPU: with libunified.so preloaded;\n"
    "                         many programs with -n or --jobs, see below\n"
    "  help [COMMAND]         this, or what concerns one command, as COMMAND --help does\n\n";

static const char options_text[] =
    "  --gpu UUID|INDEX|all   which GPUs a change is for: indexes as in status and nvidia-smi (0; 0,2; a "
    "MIG\n"
    "                         instance: 0:1), UUIDs, or how one begins (GPU-5d3a); default all, which is "
    "also\n"
    "                         for GPUs yet to come; events: of which\n"
    "  --host A,B,...         status, top, report: of these hosts, by the gpusharectl of each over ssh; one "
    "that\n"
    "                         does not answer is a line, and makes the exit code 3. --json: an object per "
    "host\n"
    "                         and line. The command is $GPUSHARE_SSH (default: ssh, which asks for no "
    "password),\n"
    "                         and a host has $GPUSHARE_SSH_TIMEOUT (default 15s)\n"
    "  --job JOB              events: of which job\n"
    "  --json                 status, why, plan, jobs, history, report, doctor, events and top --batch as "
    "JSON (of\n"
    "                         the last two an object per line), and, as a line of it, what has been\n"
    "                         changed; what goes wrong is told on stderr and by the exit code all the same\n"
    "  --follow               events: those that come, as they come; with --since also earlier ones\n"
    "  --since DURATION       events, timeline, history, report: none that are older: 90, 15m, 2h, 7d\n"
    "  --by user|job|gpu|class\n"
    "                         report: what a row is for (default user)\n"
    "  --csv                  report: comma-separated values, for spreadsheets\n"
    "  -o FILE                timeline, cdi: where it goes (default stdout)\n"
    "  -s SIGNAL              kill: which one, by name or number: KILL, SIGINT, 15\n"
    "  -d SECONDS             top: between looks (default 2)\n"
    "  --batch                top: plain text, for pipes; -n N: so many times (default: without end)\n"
    "  --socket PATH          of the daemon (default $GPUSHARE_SOCKET, or " GS_DEFAULT_SOCKET ")\n"
    "  --name TEXT            run: what the job is called wherever jobs are shown, at most 31 characters\n"
    "                         (default $GPUSHARE_NAME, or as the program is called); many jobs have\n"
    "                         their INDEX behind it\n"
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
    "  --help, --version\n\n";

static const char many_text[] =
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
    "  more are started; a second SIGINT kills.\n\n";

#define USAGE "usage: gpusharectl [OPTION]... "

void help_all(void) {
  printf(USAGE "COMMAND\n\n%s%s%s", commands_text, options_text, many_text);
  printf("The JSON of each command has a schema, which tells what its keys mean: docs/schema, installed in\n"
         "share/doc/gpushare/docs/schema. Times are in ns, sizes in bytes; more keys may be added, and none\n"
         "will change its meaning.\n\n"
         "exit codes: %d done; %d the daemon refused, or doctor finds that something fails; %d usage; %d no\n"
         "daemon, or it does not answer, or one of the hosts does not; of run: the program's, or %d it can't "
         "be run; %d it is not there; of\n"
         "many jobs: 0 all have succeeded, 1 not all.\n",
         CTL_OK, CTL_REFUSED, CTL_USAGE, CTL_NO_DAEMON, CTL_NOT_RUN, CTL_NOT_FOUND);
}

/* ---- of one command ---- */

/* Behind the entry that begins here. */
static const char *entry_end(const char *entry) {
  const char *end = entry;
  do
    end = strchr(end, '\n') + 1;
  while (strncmp(end, "   ", 3) == 0);
  return end;
}

/* What it is about, without what is told of it. */
static size_t head_size(const char *entry) {
  const char *line_end = strchr(entry, '\n'), *text = strstr(entry + 2, "  ");
  return (size_t)((text && text < line_end ? text : line_end) - entry);
}

/* A part of a head, which a separator ends, begins with the name: "pause JOB...". Its size; 0: none. */
static size_t find_part(const char *entry, const char *name, const char *separator, const char **part) {
  const char *head_end = entry + head_size(entry);
  for (*part = entry + 2; *part < head_end;) {
    const char *next = strstr(*part, separator), *end = next && next < head_end ? next : head_end;
    size_t size = strlen(name);
    if (strncmp(*part, name, size) == 0 &&
        (*part + size == end || (*part)[size] == ' ' || (*part)[size] == ','))
      return (size_t)(end - *part);
    *part = end == head_end ? head_end : end + strlen(separator);
  }
  return 0;
}

static bool concerns(const char *entry, const char *options) {
  char option[32];
  const char *part;
  for (size_t size; (size = strcspn(options, " ")) > 0; options += size + 1) {
    snprintf(option, sizeof option, "%.*s", (int)size, options);
    if (find_part(entry, option, ", ", &part))
      return true;
  }
  return false;
}

void help_command(const char *name, const char *options, bool is_run) {
  for (const char *entry = commands_text, *end, *part; *entry != '\n'; entry = end) {
    end = entry_end(entry);
    size_t size = find_part(entry, name, " | ", &part);
    if (size)
      printf(USAGE "%.*s\n\n%.*s\n", (int)size, part, (int)(end - entry), entry);
  }
  for (const char *entry = options_text, *end; *entry != '\n'; entry = end) {
    end = entry_end(entry);
    if (concerns(entry, options))
      printf("%.*s", (int)(end - entry), entry);
  }
  if (is_run)
    printf("\n%s", many_text);
}
