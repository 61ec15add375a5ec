/* run.c - who gets libunified.so: gpusharectl run, with the library preloaded, becomes a command, or what is
 * asked for becomes a plan of many; cdi tells what containers need. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/gang_name.h"
#include "common/parse.h"
#include "common/variables.h"
#include "ctl/ctl.h"
#include "ctl/doubt.h"
#include "ctl/output.h"
#include "ctl/sweep.h"

/* ---- the library ---- */

#define LIBRARY "libunified.so"

/* Where it is installed, and where it is built, from the folder of this program on. */
static const char *const neighbours[] = {GPUSHARE_LIBRARY_FOLDER "/" LIBRARY, "../lib/" LIBRARY,
                                         "../src/" LIBRARY};

int library_find(const char *named, char path[PATH_MAX], struct ask_error *error) {
  const char *environment = getenv("GPUSHARE_LIB");
  char wanted[PATH_MAX];
  if (!named && environment && *environment)
    named = environment;
  if (named)
    return realpath(named, path)
               ? CTL_OK
               : ask_complain(error, CTL_USAGE, "can't find the library %s: %s", named, strerror(errno));
  ssize_t length = readlink("/proc/self/exe", wanted, sizeof wanted - 1);
  for (size_t i = 0; length > 0 && i < sizeof neighbours / sizeof *neighbours; i++) {
    wanted[length] = '\0';
    char *end = strrchr(wanted, '/') + 1;
    size_t room = sizeof wanted - (size_t)(end - wanted);
    if (snprintf(end, room, "%s", neighbours[i]) < (int)room && realpath(wanted, path))
      return CTL_OK;
    length = end - wanted;
  }
  strcpy(path, LIBRARY);
  return CTL_OK;
}

static int find_library(const char *named, char path[PATH_MAX]) {
  struct ask_error error;
  return ask_say(library_find(named, path, &error), &error);
}

/* ---- the environment ---- */

static int set_variable(const char *name, const char *value) {
  return setenv(name, value, 1) == 0 ? CTL_OK
                                     : command_error(CTL_REFUSED, "can't set %s: %s", name, strerror(errno));
}

/* In front of what is preloaded already. */
static int set_preload(const char *library) {
  const char *present = getenv("LD_PRELOAD");
  char *all = NULL;
  if (strpbrk(library, ": "))
    return command_error(CTL_USAGE, "a library with a colon or a space in its path can't be preloaded: %s",
                         library);
  if (!present || !*present)
    return set_variable("LD_PRELOAD", library);
  if (asprintf(&all, "%s:%s", library, present) < 0)
    return command_error(CTL_REFUSED, "out of memory");
  int code = set_variable("LD_PRELOAD", all);
  free(all);
  return code;
}

/* A path that stays right when the command changes its folder. */
static int set_socket(const char *path) {
  char folder[PATH_MAX], whole[2 * PATH_MAX];
  if (*path == '/')
    return set_variable("GPUSHARE_SOCKET", path);
  if (!getcwd(folder, sizeof folder))
    return command_error(CTL_REFUSED, "can't tell the present folder: %s", strerror(errno));
  snprintf(whole, sizeof whole, "%s/%s", folder, path);
  return set_variable("GPUSHARE_SOCKET", whole);
}

static int set_terms(const struct run_request *request) {
  const struct {
    const char *text, *variable, *option;
  } terms[] = {
      {request->weight, "GPUSHARE_WEIGHT", "--weight"},
      {request->priority, "GPUSHARE_PRIORITY", "--priority"},
      {request->expected, "GPUSHARE_EXPECTED_RUNTIME", "--expected"},
      {request->limit, "GPUSHARE_MEMORY_LIMIT", "--limit"},
      {request->soft_limit, "GPUSHARE_MEMORY_SOFT_LIMIT", "--soft-limit"},
      {request->expected_memory, "GPUSHARE_EXPECTED_MEMORY", "--expected-memory"},
      {request->class, "GPUSHARE_CLASS", "--class"},
      {request->name, "GPUSHARE_NAME", "--name"},
  };
  int code = CTL_OK;
  for (size_t i = 0; i < sizeof terms / sizeof *terms && code == CTL_OK; i++) {
    if (!terms[i].text)
      continue;
    const char *allowed = variable_complaint(terms[i].variable, terms[i].text);
    code = allowed ? command_error(CTL_USAGE, "%s is %s, not '%s'; try --help", terms[i].option, allowed,
                                   terms[i].text)
                   : set_variable(terms[i].variable, terms[i].text);
  }
  return code;
}

static int set_environment(const struct run_request *request) {
  char library[PATH_MAX];
  enum gs_memory memory;
  int code = find_library(request->library, library);
  if (code == CTL_OK)
    code = set_preload(library);
  if (code == CTL_OK && request->memory)
    code = parse_memory(request->memory, &memory) == 0
               ? set_variable("GPUSHARE_MEMORY", request->memory)
               : command_error(CTL_USAGE, "--memory is managed, swap or off, not '%s'; try --help",
                               request->memory);
  if (code == CTL_OK)
    code = set_terms(request);
  if (code == CTL_OK && request->socket)
    code = set_socket(request->socket);
  return code;
}

#define GRACE_NS (10 * NS_PER_S)
#define COUNT_MAX 1000000

/* ---- many: values ---- */

/* Text NULL: *count stays. */
static int read_count(const char *option, const char *text, unsigned least, unsigned *count) {
  if (!text)
    return CTL_OK;
  char *end;
  unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || value < least || value > COUNT_MAX)
    return command_error(CTL_USAGE, "%s is a number from %u to %u, not '%s'; try --help", option, least,
                         COUNT_MAX, text);
  *count = (unsigned)value;
  return CTL_OK;
}

/* ---- the list ---- */

static int refuse_file(const char *name, const char *why) {
  return command_error(CTL_USAGE, "can't read the jobs in %s: %s", name, why);
}

/* All of it, from malloc. */
static int read_file(const char *name, char **text) {
  FILE *file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
  size_t room = 0;
  if (!file)
    return refuse_file(name, strerror(errno));
  *text = NULL;
  ssize_t length = getdelim(text, &room, '\0', file);
  const char *wrong = NULL;
  if (length >= 0 && strlen(*text) < (size_t)length)
    wrong = "it is not text";
  else if (ferror(file) || (length < 0 && !feof(file)))
    wrong = strerror(errno);
  else if (length < 0)
    wrong = "it is empty";
  if (file != stdin)
    fclose(file);
  if (!wrong)
    return CTL_OK;
  free(*text);
  *text = NULL;
  return refuse_file(name, wrong);
}

/* Each must name a program, if the command does not. */
static int parse_list(const char *name, char *text, char *const *command, struct joblist *list) {
  struct joblist_error error;
  int err = joblist_parse(list, text, &error);
  if (err == -EINVAL)
    return command_error(CTL_USAGE, "%s, line %zu: %s", name, error.line, error.what);
  if (err < 0 || list->count == 0)
    return refuse_file(name, err < 0 ? strerror(-err) : "there are none");
  for (size_t i = 0; i < list->count; i++)
    if (!*command && !list->jobs[i].words[list->jobs[i].settings])
      return command_error(CTL_USAGE, "%s, line %zu: no program is named", name, list->jobs[i].line);
  return CTL_OK;
}

/* ---- the GPUs ---- */

/* per_job 0: all. */
static int read_per_job(const char *text, struct spread *spread) {
  int64_t number = 1;
  if (text && strcmp(text, "all") == 0)
    number = 0;
  else if (text && parse_integer(text, 1, SPREAD_GPUS_MAX, &number) < 0)
    return command_error(CTL_USAGE, "--gpus-per-job is all, or a number from 1 to %d, not '%s'; try --help",
                         SPREAD_GPUS_MAX, text);
  spread->per_job = (size_t)number;
  spread->as_told = text;
  return CTL_OK;
}

/* Each job sees one GPU, so that they use all; unless it is told otherwise, or we are one of several
 * processes, each of which has its GPU, or will choose one. */
static int find_gpus(struct spread *spread) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  char gang[GS_GANG_SIZE];
  gang_name_find(getenv, gang);
  if (spread->per_job == 0 || (!spread->as_told && *gang))
    return CTL_OK;
  int code = visible_find(spread);
  if (code != CTL_OK)
    return code;
  if (spread->as_told && spread->per_job > spread->count)
    return command_error(CTL_USAGE, "--gpus-per-job is %zu, but the number of visible GPUs is %zu%s%s",
                         spread->per_job, spread->count, list ? "; CUDA_VISIBLE_DEVICES is " : "",
                         list ? list : "");
  if (spread_is_needed(spread))
    fprintf(stderr, "gpusharectl: %zu GPUs are visible, each job gets %zu; see --gpus-per-job\n",
            spread->count, spread->per_job);
  return CTL_OK;
}

/* ---- the plan ---- */

static int read_plan(const struct run_request *request, struct sweep_plan *plan, unsigned *slots) {
  int code = read_count("-n", request->slots, 1, slots);
  if (code == CTL_OK)
    code = read_count("--retry", request->retry, 0, &plan->retries);
  if (code == CTL_OK && request->grace && parse_duration_ns(request->grace, &plan->grace_ns) < 0)
    code = command_error(CTL_USAGE, "--grace is a duration (20, 0.5, 250ms, 2m), not '%s'", request->grace);
  if (code == CTL_OK)
    code = read_per_job(request->gpus_per_job, plan->spread);
  if (code == CTL_OK && request->prefix && request->output)
    code = command_error(CTL_USAGE, "--prefix writes no files: --output goes without it");
  return code;
}

/* ---- programs that will not share ---- */

static void tell_doubt(const char *where, size_t line, char *const *command) {
  char why[DOUBT_SIZE], place[32] = "";
  if (!doubt_about(command, why))
    return;
  if (line)
    snprintf(place, sizeof place, ", line %zu", line);
  command_error(CTL_OK, "%s%s%snothing will be shared: %s", where, place, *where ? ": " : "", why);
}

/* The command; without one, the programs of the lines: each once for all lines that follow each other. */
static void tell_doubts(const struct run_request *request, const struct joblist *list) {
  const char *last = "";
  if (*request->command)
    tell_doubt("", 0, request->command);
  for (size_t i = 0; i < list->count; i++) {
    const struct joblist_job *job = &list->jobs[i];
    const char *program = *request->command ? last : job->words[job->settings];
    if (strcmp(program, last) != 0 || joblist_setting(job, "LD_PRELOAD"))
      tell_doubt(request->jobs, job->line, job->words);
    last = program;
  }
}

static int run_many(const struct run_request *request) {
  struct spread spread = {0};
  struct joblist list = {0};
  struct sweep_plan plan = {.spread = &spread,
                            .list = &list,
                            .socket = daemon_path(request),
                            .command = request->command,
                            .name = request->name,
                            .grace_ns = GRACE_NS,
                            .output = request->output,
                            .prefix = request->prefix,
                            .fail_fast = request->fail_fast};
  unsigned slots = 0;
  char *text = NULL;
  int code = read_plan(request, &plan, &slots);
  if (code == CTL_OK && request->jobs) {
    code = read_file(request->jobs, &text);
    if (code == CTL_OK)
      code = parse_list(request->jobs, text, plan.command, &list);
  } else if (code == CTL_OK && joblist_repeat(&list, slots) < 0) {
    code = command_error(CTL_REFUSED, "out of memory");
  }
  plan.slots = slots && slots < list.count ? slots : list.count;
  if (code == CTL_OK)
    code = find_gpus(&spread);
  if (code == CTL_OK)
    tell_doubts(request, &list);
  if (code == CTL_OK)
    code = sweep_run(&plan);
  joblist_free(&list);
  free(text);
  return code;
}

/* ---- one, or many ---- */

int run_command(const struct run_request *request) {
  bool many = request->slots || request->jobs;
  if (!many && (request->output || request->retry || request->grace || request->prefix ||
                request->fail_fast || request->gpus_per_job))
    return command_error(CTL_USAGE,
                         "--output, --prefix, --retry, --fail-fast, --grace and --gpus-per-job are for "
                         "many jobs: -n or --jobs");
  int code = set_environment(request);
  if (code != CTL_OK)
    return code;
  if (many)
    return run_many(request);
  tell_doubt("", 0, request->command);
  return sweep_become(request->command);
}

/* ---- cdi generate: a specification of the Container Device Interface ----
 *
 * Its devices are no hardware: they bring the library and the daemon's socket into a container, beside the
 * GPUs that another specification brings. /etc/ld.so.preload rather than LD_PRELOAD, which would replace the
 * image's own.
 */

#define KIND "gpushare.io/share"
/* The first one: nothing later is used, and runtimes refuse what is newer than they are. */
#define CDI_VERSION "0.3.0"

/* On the host, with all links resolved. */
struct places {
  char library[PATH_MAX], preload[PATH_MAX]; /* preload: empty if there is none */
  char folder[PATH_MAX];                     /* of the socket */
  const char *socket;
};

static void cut_name(char *path) {
  char *slash = strrchr(path, '/');
  if (slash)
    slash[slash == path] = '\0';
}

static int find_places(const struct request *request, struct places *places) {
  char found[PATH_MAX], folder[PATH_MAX], path[PATH_MAX + sizeof "/gpushare/ld.so.preload"];
  places->socket = daemon_path(&request->run);
  if (*places->socket != '/' || strlen(places->socket) >= sizeof places->folder)
    return usage_error("containers need the whole path of the socket, not", places->socket);
  strcpy(places->folder, places->socket);
  cut_name(places->folder);
  int code = find_library(request->run.library, found);
  if (code != CTL_OK)
    return code;
  if (!realpath(found, places->library))
    return command_error(CTL_REFUSED, "can't find libunified.so: name it with --lib");
  /* Beside the library; its one line is where the library is in containers. */
  strcpy(folder, places->library);
  cut_name(folder);
  snprintf(path, sizeof path, "%s/gpushare/ld.so.preload", folder);
  if (!realpath(path, places->preload))
    *places->preload = '\0';
  return CTL_OK;
}

static void add_mount(json_t *mounts, const char *host, const char *container, bool executable) {
  json_t *mount = json_pack("{ss ss s[ssss]}", "hostPath", host, "containerPath", container, "options", "ro",
                            "nosuid", "nodev", "bind");
  if (!executable)
    json_array_append_new(json_object_get(mount, "options"), json_string("noexec"));
  json_array_append_new(mounts, mount);
}

/* class NULL: the program's own. */
static void add_device(json_t *devices, const struct places *places, const char *class) {
  json_t *env = json_pack("[o]", json_sprintf("GPUSHARE_SOCKET=%s", places->socket));
  if (class)
    json_array_append_new(env, json_sprintf("GPUSHARE_CLASS=%s", class));
  json_array_append_new(devices,
                        json_pack("{ss s{so}}", "name", class ? class : "all", "containerEdits", "env", env));
}

/* The socket's folder, not the socket: a daemon that is started anew makes a new one. Read-only: a socket can
 * be connected to all the same. */
static json_t *specification(const struct places *places) {
  json_t *devices = json_array(), *mounts = json_array();
  add_device(devices, places, NULL);
  for (unsigned class = GS_CLASS_STANDARD; class <= GS_CLASS_OPPORTUNISTIC; class ++)
    add_device(devices, places, class_name(class));
  add_mount(mounts, places->folder, places->folder, false);
  add_mount(mounts, places->library, GPUSHARE_CONTAINER_LIBRARY, true);
  if (*places->preload)
    add_mount(mounts, places->preload, "/etc/ld.so.preload", false);
  json_t *root = json_pack("{ss ss so s{so}}", "cdiVersion", CDI_VERSION, "kind", KIND, "devices", devices,
                           "containerEdits", "mounts", mounts);
  if (!*places->preload)
    json_object_set_new(json_object_get(root, "containerEdits"), "env",
                        json_pack("[s]", "LD_PRELOAD=" GPUSHARE_CONTAINER_LIBRARY));
  return root;
}

int cdi_command(const struct request *request) {
  struct places places;
  struct draft draft;
  if (strcmp(request->words[1], "generate") != 0)
    return usage_error("cdi has only generate, not", request->words[1]);
  int code = find_places(request, &places);
  if (code != CTL_OK)
    return code;
  if (!*places.preload)
    command_error(CTL_OK,
                  "there is no gpushare/ld.so.preload beside %s: containers get LD_PRELOAD, which "
                  "replaces that of their images",
                  places.library);
  json_t *root = specification(&places);
  if (!request->file)
    return output_json(root);
  int err = draft_open(&draft, request->file); /* runtimes look at the file whenever it changes */
  if (err == 0) {
    json_dumpf(root, draft.out, JSON_INDENT(2));
    err = draft_keep(&draft);
  }
  json_decref(root);
  return err ? command_error(CTL_REFUSED, "can't write %s: %s", request->file, strerror(-err)) : CTL_OK;
}
