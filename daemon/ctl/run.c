/* run.c - gpusharectl run: with libunified.so preloaded, becomes a command or starts many. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/parse.h"
#include "common/variables.h"
#include "ctl/ctl.h"
#include "ctl/sweep.h"

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

static int set_memory(const char *text) {
  enum gs_memory memory;
  return parse_memory(text, &memory) == 0
             ? set_variable("GPUSHARE_MEMORY", text)
             : command_error(CTL_USAGE, "--memory is managed, swap or off, not '%s'; try --help", text);
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
  int code = find_library(request->library, library);
  if (code == CTL_OK)
    code = set_preload(library);
  if (code == CTL_OK && request->memory)
    code = set_memory(request->memory);
  if (code == CTL_OK)
    code = set_terms(request);
  if (code == CTL_OK && request->socket)
    code = set_socket(request->socket);
  return code;
}

/* ---- one, or many ---- */

static int check_single(const struct run_request *request) {
  return request->output || request->retry || request->grace || request->prefix || request->fail_fast ||
                 request->gpus_per_job
             ? command_error(CTL_USAGE,
                             "--output, --prefix, --retry, --fail-fast, --grace and --gpus-per-job are for "
                             "many jobs: -n or --jobs")
             : CTL_OK;
}

int run_command(const struct run_request *request) {
  bool many = request->slots || request->jobs;
  int code = many ? CTL_OK : check_single(request);
  if (code == CTL_OK)
    code = set_environment(request);
  if (code != CTL_OK)
    return code;
  return many ? run_many(request) : launch_become(request->command);
}
