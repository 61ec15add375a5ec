/* hosts.c - gpusharectl --host: status, top and report of several hosts at once. Each host's own gpusharectl
 * answers, over ssh: no daemon has an open port. What hosts say is not trusted. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "ctl/figures.h"
#include "ctl/table.h"
#include "shared/printable.h"

#define SSH "ssh -oBatchMode=yes -oConnectTimeout=10"
#define PATIENCE_NS (15 * NS_PER_S)
#define AT_ONCE 64                         /* so many are asked at the same time */
#define ANSWER_MAX (UINT64_C(64) << 20)    /* bytes */
#define TEXT_SIZE 64                       /* of a host's words in a table */
enum { WORDS_MAX = 32, NO_COMMAND = 127 }; /* of GPUSHARE_SSH; of a shell: it does not know the command */

struct host {
  const char *name;
  pid_t pid;       /* 0: it is not being asked */
  int out, err;    /* what the command writes, as files: whoever keeps them open holds nothing up */
  uint64_t end_ns; /* of patience */
  json_t *answer;  /* NULL: */
  char reason[256];
  char release[TEXT_SIZE]; /* of its gpusharectl; empty: unknown */
};

struct hosts {
  struct host *list;
  size_t count, widest; /* name, or title */
  char *names, *ssh;    /* texts that are taken apart */
  char *words[WORDS_MAX + 1];
  const char *what, *answers; /* the command; the array that its answer has */
  char remote[160];           /* for the shell there */
  uint64_t patience_ns;
  sigset_t before;
};

/* ---- which hosts ---- */

/* As ssh takes it, and never an option: neither the name nor the host behind a user's name. */
static bool is_host(const char *name) {
  const char *host = strrchr(name, '@') ? strrchr(name, '@') + 1 : name;
  size_t size = strlen(name);
  return *name != '-' && *host != '-' && *host && size < 256 &&
         strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:%[]") == size;
}

static int take_name(struct hosts *hosts, const char *name) {
  if (!is_host(name))
    return usage_error("--host takes names as ssh does (a,b,user@c), not", *name ? name : "an empty one");
  for (size_t i = 0; i < hosts->count; i++)
    if (strcmp(hosts->list[i].name, name) == 0)
      return usage_error("--host names a host twice:", name);
  size_t size = strlen(name);
  hosts->widest = size > hosts->widest ? size : hosts->widest;
  hosts->list[hosts->count++] = (struct host){.name = name, .out = -1, .err = -1};
  return CTL_OK;
}

static int take_names(struct hosts *hosts, const char *text) {
  size_t most = 1;
  for (const char *at = text; *at; at++)
    most += *at == ',';
  hosts->names = strdup(text);
  hosts->list = calloc(most, sizeof *hosts->list);
  if (!hosts->names || !hosts->list)
    return command_error(CTL_REFUSED, "out of memory");
  int code = CTL_OK;
  char *rest = hosts->names;
  for (char *name; code == CTL_OK && (name = strsep(&rest, ","));)
    code = take_name(hosts, name);
  return code;
}

static int take_environment(struct hosts *hosts) {
  const char *ssh = getenv("GPUSHARE_SSH"), *patience = getenv("GPUSHARE_SSH_TIMEOUT");
  size_t count = 0;
  if (patience && *patience && (parse_duration_ns(patience, &hosts->patience_ns) < 0 || !hosts->patience_ns))
    return usage_error("GPUSHARE_SSH_TIMEOUT is a duration (15, 2m), not", patience);
  hosts->ssh = strdup(ssh && *ssh ? ssh : SSH);
  if (!hosts->ssh)
    return command_error(CTL_REFUSED, "out of memory");
  char *rest = hosts->ssh;
  for (char *word; (word = strsep(&rest, " "));) {
    if (*word && count == WORDS_MAX - 3)
      return usage_error("GPUSHARE_SSH has too many words:", ssh);
    if (*word)
      hosts->words[count++] = word;
  }
  if (count == 0)
    return usage_error("GPUSHARE_SSH is the command that reaches a host, and it is empty", NULL);
  hosts->words[count] = (char *)(uintptr_t) "--"; /* the host and the command follow */
  return CTL_OK;
}

/* ---- asking one ---- */

static size_t word_count(const struct hosts *hosts) {
  size_t count = 0;
  while (hosts->words[count])
    count++;
  return count;
}

/* In the child. */
static _Noreturn void become(const struct hosts *hosts, const struct host *host, pid_t parent) {
  char *words[WORDS_MAX + 1];
  struct rlimit size = {ANSWER_MAX, ANSWER_MAX};
  size_t count = word_count(hosts);
  memcpy(words, hosts->words, sizeof words);
  words[count++] = (char *)(uintptr_t)host->name;
  words[count++] = (char *)(uintptr_t)hosts->remote;
  words[count] = NULL;
  /* All of the group is killed when patience ends. Why a session: ssh has no terminal there, so ssh does not
   * ask for a password or about a host's key. It says what is wrong. */
  setsid();
  setenv("SSH_ASKPASS_REQUIRE", "never", 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  int in = open("/dev/null", O_RDONLY);
  if (getppid() != parent || dup2(in, STDIN_FILENO) < 0 || dup2(host->out, STDOUT_FILENO) < 0 ||
      dup2(host->err, STDERR_FILENO) < 0)
    _exit(CTL_NOT_RUN);
  setrlimit(RLIMIT_FSIZE, &size);
  sigprocmask(SIG_SETMASK, &hosts->before, NULL);
  execvp(*words, words);
  dprintf(STDERR_FILENO, "can't run %s: %s (GPUSHARE_SSH)\n", *words, strerror(errno));
  _exit(CTL_NOT_RUN);
}

static void close_files(struct host *host) {
  if (host->out >= 0)
    close(host->out);
  if (host->err >= 0)
    close(host->err);
  host->out = host->err = -1;
}

static bool start(const struct hosts *hosts, struct host *host) {
  pid_t parent = getpid();
  json_decref(host->answer);
  host->answer = NULL;
  *host->reason = *host->release = '\0';
  host->end_ns = clock_now_ns() + hosts->patience_ns;
  host->out = memfd_create("answer", MFD_CLOEXEC);
  host->err = memfd_create("complaint", MFD_CLOEXEC);
  host->pid = host->out < 0 || host->err < 0 ? -1 : fork();
  if (host->pid == 0)
    become(hosts, host, parent);
  if (host->pid > 0)
    return true;
  host->pid = 0;
  snprintf(host->reason, sizeof host->reason, "can't start a process for it: %s", strerror(errno));
  close_files(host);
  return false;
}

/* ---- what it says ---- */

/* From malloc; NULL: no memory. */
static char *read_all(int fd) {
  off_t size = lseek(fd, 0, SEEK_END), had = 0;
  char *text = size < 0 ? NULL : malloc((size_t)size + 1);
  for (ssize_t n = 1; text && had < size && n > 0; had += n > 0 ? n : 0)
    n = pread(fd, text + had, (size_t)(size - had), had);
  if (text)
    text[had] = '\0';
  return text;
}

/* The last line that is not empty, without our name in front of it; it is cut off there. */
static const char *last_line(char *text) {
  static const char own[] = "gpusharectl: ";
  size_t size = strlen(text);
  while (size > 0 && isspace((unsigned char)text[size - 1]))
    text[--size] = '\0';
  char *line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
  return strncmp(line, own, sizeof own - 1) == 0 ? line + sizeof own - 1 : line;
}

static void complain(struct host *host, const char *ssh, int status) {
  char *text = read_all(host->err), line[160] = "";
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (text)
    printable_copy(line, last_line(text), sizeof line);
  free(text);
  if (code < 0)
    snprintf(host->reason, sizeof host->reason, "%s has died of signal %d", ssh, WTERMSIG(status));
  else if (code == NO_COMMAND)
    snprintf(host->reason, sizeof host->reason, "install gpushare there: %s",
             *line ? line : "no gpusharectl");
  else if (*line)
    snprintf(host->reason, sizeof host->reason, "%s", line);
  else
    snprintf(host->reason, sizeof host->reason, "%s has ended with exit code %d, and said nothing", ssh,
             code);
}

/* Behind what a login may print: the version, and JSON. */
static void understand(const struct hosts *hosts, struct host *host) {
  static const char own[] = "gpusharectl ";
  char *text = read_all(host->out), *at = text;
  while (at && strncmp(at, own, sizeof own - 1) != 0)
    at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
  if (at) {
    char *release = at + sizeof own - 1, *end = strchr(release, '\n');
    at = end ? end + 1 : NULL;
    release[strcspn(release, " \n")] = '\0';
    printable_copy(host->release, release, sizeof host->release);
    host->answer = at ? json_loads(at, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
  }
  if (host->answer && !json_is_array(json_object_get(host->answer, hosts->answers))) {
    json_decref(host->answer);
    host->answer = NULL;
  }
  if (!host->answer)
    snprintf(host->reason, sizeof host->reason,
             "its answer is not understood (gpusharectl is %s there, " GPUSHARE_VERSION " here)",
             *host->release ? host->release : "unknown");
  free(text);
}

/* ---- asking all ---- */

/* True: it has answered, or will not. */
static bool has_ended(const struct hosts *hosts, struct host *host) {
  int status;
  bool late = clock_now_ns() >= host->end_ns, ended = waitpid(host->pid, &status, WNOHANG) == host->pid;
  if (!ended && !late)
    return false;
  char duration[WORDS_SIZE];
  if (!ended) {
    kill(-host->pid, SIGKILL);
    kill(host->pid, SIGKILL); /* it may not have its group yet */
    waitpid(host->pid, &status, 0);
    snprintf(host->reason, sizeof host->reason, "no answer within %s (GPUSHARE_SSH_TIMEOUT)",
             words_duration(hosts->patience_ns, duration));
  } else if (status == 0) {
    understand(hosts, host);
  } else {
    complain(host, hosts->words[0], status);
  }
  close_files(host);
  host->pid = 0;
  return true;
}

static void await_some_end(const struct hosts *hosts, const sigset_t *child) {
  uint64_t now_ns = clock_now_ns(), end_ns = UINT64_MAX;
  for (size_t i = 0; i < hosts->count; i++)
    if (hosts->list[i].pid && hosts->list[i].end_ns < end_ns)
      end_ns = hosts->list[i].end_ns;
  struct timespec most = clock_timespec(end_ns > now_ns ? end_ns - now_ns : 0);
  sigtimedwait(child, NULL, &most);
}

/* The exit code: whether each has answered. */
static int ask_all(struct hosts *hosts) {
  size_t next = 0, running = 0;
  int code = CTL_OK;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  signal(SIGCHLD, SIG_DFL); /* ignored, no status of a child would be left to us */
  sigprocmask(SIG_BLOCK, &child, &hosts->before);
  while (next < hosts->count || running > 0) {
    while (next < hosts->count && running < AT_ONCE)
      running += start(hosts, &hosts->list[next++]);
    if (running > 0)
      await_some_end(hosts, &child);
    for (size_t i = 0; i < next; i++)
      if (hosts->list[i].pid && has_ended(hosts, &hosts->list[i]))
        running--;
  }
  sigprocmask(SIG_SETMASK, &hosts->before, NULL);
  for (size_t i = 0; i < hosts->count; i++)
    if (!hosts->list[i].answer)
      code = CTL_NO_DAEMON;
  return code;
}

/* ---- for programs: an object per host, and line ---- */

static int print_lines(const struct hosts *hosts) {
  int code = CTL_OK;
  for (const struct host *host = hosts->list; host < hosts->list + hosts->count && code == CTL_OK; host++) {
    json_t *object = json_object();
    output_text(object, "host", host->name);
    output_text(object, "release", *host->release ? host->release : NULL);
    output_text(object, "error", host->answer ? NULL : host->reason);
    json_object_set_new(object, hosts->what, host->answer ? json_incref(host->answer) : json_null());
    code = output_line(object);
  }
  return code;
}

/* ---- for people ---- */

/* Printable, and no longer than a cell; the text lives as long as the block. */
#define CELL(text) cell(text, (char[TEXT_SIZE]){0})
static const char *cell(const char *text, char buffer[TEXT_SIZE]) {
  printable_copy(buffer, text ? text : "?", TEXT_SIZE);
  return buffer;
}

static uint64_t number_of(const json_t *object, const char *key) {
  json_int_t value = json_integer_value(json_object_get(object, key));
  return value > 0 ? (uint64_t)value : 0;
}

static const char *text_of(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

static const char *gpu_text(const json_t *object, const char *key, char buffer[WORDS_SIZE]) {
  const json_t *instance = json_object_get(object, "instance");
  int size = snprintf(buffer, WORDS_SIZE, "%llu", (unsigned long long)number_of(object, key));
  if (instance)
    snprintf(buffer + size, WORDS_SIZE - (size_t)size, ":%llu",
             (unsigned long long)number_of(object, "instance"));
  return buffer;
}

/* "ann:train.py bob:x +3" */
#define HOLDERS_SHOWN 2
static const char *holders_text(const json_t *gpu, char buffer[3 * TEXT_SIZE]) {
  const json_t *job;
  size_t i, holders = 0, size = 0;
  json_array_foreach(json_object_get(gpu, "jobs"), i, job) {
    const char *state = text_of(job, "state");
    if (!state || (strcmp(state, "holding") != 0 && strcmp(state, "dropping") != 0) ||
        holders++ >= HOLDERS_SHOWN)
      continue;
    size += (size_t)snprintf(buffer + size, 3 * TEXT_SIZE - size, "%s%.20s:%.31s", size ? " " : "",
                             CELL(text_of(job, "user")), CELL(text_of(job, "name")));
  }
  if (holders > HOLDERS_SHOWN)
    snprintf(buffer + size, 3 * TEXT_SIZE - size, " +%zu", holders - HOLDERS_SHOWN);
  return holders ? buffer : "-";
}

static void add_gpu(struct table *table, const struct host *host, const json_t *gpu) {
  char number[WORDS_SIZE], holders[3 * TEXT_SIZE];
  table_add(table, "%s", host->name);
  table_add(table, "%s", gpu_text(gpu, "index", number));
  table_add(table, "%s", CELL(text_of(gpu, "name")));
  table_add(table, "%zu", json_array_size(json_object_get(gpu, "jobs")));
  table_add(table, "%s", BYTES_TEXT(number_of(gpu, "used_bytes")));
  table_add(table, "%s", BYTES_TEXT(number_of(gpu, "capacity_bytes")));
  table_add(table, "%llu", (unsigned long long)number_of(gpu, "waiting"));
  table_add(table, "%s", holders_text(gpu, holders));
}

static const struct table_column status_columns[] = {
    {"HOST", -4, 9, NULL, 0, false},   {"GPU", 3, 8, NULL, 0, false},     {"MODEL", -5, 1, NULL, 8, false},
    {"JOBS", 4, 5, NULL, 0, false},    {"MEMORY", 10, 4, NULL, 0, false}, {"OF", 10, 2, NULL, 0, false},
    {"WAITING", 7, 6, NULL, 0, false}, {"HOLDS", -5, 3, NULL, 12, true},
};

static double hours(const json_t *row, const char *key) {
  return (double)number_of(row, key) / 3600 / (double)NS_PER_S;
}

static void add_row(struct table *table, const struct host *host, const json_t *row, const char *by) {
  char number[WORDS_SIZE];
  double energy_joules = json_number_value(json_object_get(row, "energy_joules"));
  table_add(table, "%s", host->name);
  if (strcmp(by, "gpu") == 0)
    table_add(table, "%s", gpu_text(row, "gpu", number));
  else if (strcmp(by, "job") == 0)
    table_add(table, "%llu", (unsigned long long)number_of(row, "job"));
  else
    table_add(table, "%s", CELL(text_of(row, by)));
  table_add(table, "%s", strcmp(by, "job") == 0 ? CELL(text_of(row, "user")) : "");
  table_add(table, "%s", strcmp(by, "job") == 0 ? CELL(text_of(row, "name")) : "");
  table_add(table, "%llu", (unsigned long long)number_of(row, "jobs"));
  table_add(table, "%.3f", hours(row, "held_ns"));
  table_add(table, "%.3f", hours(row, "gpu_ns"));
  table_add(table, "%.3f", hours(row, "waited_ns"));
  table_add(table, "%s", BYTES_TEXT(number_of(row, "moved_bytes")));
  if (energy_joules > 0)
    table_add(table, "%.3f", energy_joules * 1e3 / MILLIJOULES_PER_KWH);
  else
    table_add(table, "%s", "");
}

/* The second one is what --by says. */
#define REPORT_COLUMNS 10
static const struct table_column report_columns[REPORT_COLUMNS] = {
    {"HOST", -4, 9, NULL, 0, false},     {NULL, -10, 8, NULL, 0, false},
    {"USER", -10, 7, "", 0, false},      {"NAME", -10, 6, "", 0, false},
    {"JOBS", 6, 1, NULL, 0, false},      {"GPU HOURS", 10, 5, NULL, 0, false},
    {"COMPUTED", 10, 4, NULL, 0, false}, {"WAITED", 10, 3, NULL, 0, false},
    {"MOVED", 11, 2, NULL, 0, false},    {"KWH", 10, 3, "", 0, false},
};

static void add_host(struct table *table, const struct hosts *hosts, const struct host *host,
                     const char *by) {
  const json_t *rows = json_object_get(host->answer, hosts->answers), *row;
  int width = (int)hosts->widest;
  size_t i;
  if (!host->answer)
    table_add_line(table, "%-*s does not answer: %s", width, host->name, host->reason);
  else if (json_array_size(rows) == 0)
    table_add_line(table, "%-*s %s", width, host->name,
                   by ? "no job has had a GPU in that time, of those that you may see"
                      : "no program has used a GPU yet");
  json_array_foreach(rows, i, row) if (by) add_row(table, host, row, by);
  else add_gpu(table, host, row);
  if (host->answer && strcmp(host->release, GPUSHARE_VERSION) != 0)
    table_add_line(table, "%-*s has gpusharectl %s; here it is " GPUSHARE_VERSION, width, host->name,
                   host->release);
}

/* `by` NULL: of a status. */
static int print_table(const struct hosts *hosts, const char *by) {
  static const char *const titles[][2] = {
      {"user", "USER"}, {"job", "JOB"}, {"gpu", "GPU"}, {"class", "CLASS"}};
  struct table_column columns[REPORT_COLUMNS];
  struct table table = {.columns = status_columns, .count = sizeof status_columns / sizeof *status_columns};
  if (by) {
    memcpy(columns, report_columns, sizeof columns);
    table = (struct table){.columns = columns, .count = REPORT_COLUMNS};
  }
  for (size_t i = 0; by && i < sizeof titles / sizeof *titles; i++)
    if (strcmp(by, titles[i][0]) == 0)
      columns[1].title = titles[i][1];
  for (size_t i = 0; i < hosts->count; i++)
    add_host(&table, hosts, &hosts->list[i], by);
  return table_print(&table, stdout, 0, table_screen_width());
}

/* ---- the commands ---- */

static int show(struct hosts *hosts, const struct request *request, const char *by) {
  int code = ask_all(hosts), shown = request->json ? print_lines(hosts) : print_table(hosts, by);
  return shown == CTL_OK ? code : shown;
}

/* Again and again. On a terminal each table takes the place of the last one. */
static int show_again(struct hosts *hosts, const struct request *request, uint64_t interval_ns,
                      int64_t times) {
  bool live = isatty(STDOUT_FILENO) && top_is_live(request);
  int code = CTL_OK;
  for (int64_t i = 0; times == 0 || i < times; i++) {
    struct timespec pause = clock_timespec(interval_ns);
    if (i > 0)
      nanosleep(&pause, NULL);
    int asked = ask_all(hosts);
    if (live)
      printf("\033[H\033[2J");
    int shown = request->json ? print_lines(hosts) : print_table(hosts, NULL);
    if (!live && !request->json)
      puts("");
    fflush(stdout);
    if (shown != CTL_OK || ferror(stdout))
      return CTL_REFUSED; /* ctl_main.c says why */
    code = asked != CTL_OK ? asked : code;
  }
  return code;
}

/* CTL_USAGE after a line on stderr. */
static int check(const struct request *request, bool is_report) {
  if (request->run.socket)
    return usage_error("--socket and --host exclude each other", NULL);
  if (request->csv)
    return usage_error("--csv and --host exclude each other; --json has an object per host", NULL);
  return is_report ? report_check(request) : CTL_OK;
}

int hosts_command(const struct request *request) {
  bool is_report = strcmp(request->words[0], "report") == 0, is_top = strcmp(request->words[0], "top") == 0;
  const char *by = request->by ? request->by : "user";
  struct hosts hosts = {.widest = strlen("HOST"),
                        .patience_ns = PATIENCE_NS,
                        .what = is_report ? "report" : "status",
                        .answers = is_report ? "rows" : "gpus"};
  uint64_t interval_ns = 0;
  int64_t times = 0;
  int code = check(request, is_report);
  if (code == CTL_OK && is_top)
    code = top_check(request, &interval_ns, &times);
  if (code == CTL_OK)
    code = take_names(&hosts, request->hosts);
  if (code == CTL_OK)
    code = take_environment(&hosts);
  /* What stands in it has been checked: words and durations, which no shell takes for something else. */
  int size = snprintf(hosts.remote, sizeof hosts.remote, "gpusharectl --version && gpusharectl %s --json",
                      hosts.what);
  if (code == CTL_OK && is_report)
    size += snprintf(hosts.remote + size, sizeof hosts.remote - (size_t)size, " --by %s%s%s", by,
                     request->since ? " --since " : "", request->since ? request->since : "");
  if (code == CTL_OK && (size_t)size >= sizeof hosts.remote)
    code = usage_error("too long a duration:", request->since);
  if (code == CTL_OK)
    code = is_top ? show_again(&hosts, request, interval_ns, times)
                  : show(&hosts, request, is_report ? by : NULL);
  for (size_t i = 0; i < hosts.count; i++)
    json_decref(hosts.list[i].answer);
  free(hosts.list);
  free(hosts.names);
  free(hosts.ssh);
  return code;
}
