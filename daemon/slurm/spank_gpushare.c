/* spank_gpushare.c - the plugin for Slurm: srun, sbatch and salloc get --gpushare..., and the tasks of jobs
 * that ask for it get libunified.so and what it reads from the environment. docs/SLURM.md tells how it is set
 * up. */
#include <errno.h>
#include <limits.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/variables.h"
#include "common/wire.h"

SPANK_PLUGIN(gpushare, 1)

#define REFUSED (-1) /* what Slurm takes for a failure is below 0 */

/* What the administrator says in plugstack.conf. */
struct setup {
  const char *library, *socket;
  bool shards; /* jobs that have gres/shard share without being asked */
};

/* ---- options ---- */

enum { NO_ARGUMENT, AN_ARGUMENT, MAYBE_AN_ARGUMENT }; /* as in getopt_long */

static int take(int index, const char *text, int remote);

static struct {
  struct spank_option option;
  const char *variable;
  char *value; /* what the user says; empty: the option without a value */
} terms[] = {
    {{"gpushare", "CLASS",
      "let the tasks share their GPUs with other jobs; CLASS: standard, production or opportunistic",
      MAYBE_AN_ARGUMENT, 0, take},
     "GPUSHARE_CLASS",
     NULL},
    {{"gpushare-limit", "SIZE", "and use no more memory on each GPU than SIZE: 16G, 512M", AN_ARGUMENT, 1,
      take},
     "GPUSHARE_MEMORY_LIMIT",
     NULL},
    {{"gpushare-weight", "N", "and have GPU time by the weight N, 1 to 10000, usually 100", AN_ARGUMENT, 2,
      take},
     "GPUSHARE_WEIGHT",
     NULL},
};
#define TERM_COUNT (sizeof terms / sizeof *terms)

/* Here, and once more where the tasks are. */
static int take(int index, const char *text, int remote) {
  const char *value = text ? text : "";
  const char *allowed = *value ? variable_complaint(terms[index].variable, value) : NULL;
  (void)remote;
  if (allowed) {
    slurm_error("gpushare: --%s is %s, not '%s'", terms[index].option.name, allowed, value);
    return REFUSED;
  }
  free(terms[index].value);
  terms[index].value = strdup(value);
  return terms[index].value ? 0 : REFUSED;
}

/* Only the contexts that have options register any. */
int slurm_spank_init(spank_t spank, int count, char *arguments[]) {
  spank_context_t context = spank_context();
  (void)count, (void)arguments;
  if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
    return 0;
  for (size_t i = 0; i < TERM_COUNT; i++)
    if (spank_option_register(spank, &terms[i].option) != ESPANK_SUCCESS) {
      slurm_error("gpushare: can't add --%s: another plugin may have it", terms[i].option.name);
      return REFUSED;
    }
  return 0;
}

/* ---- what plugstack.conf says ---- */

static bool read_word(struct setup *setup, const char *word) {
  static const char library[] = "library=", socket[] = "socket=";
  if (strncmp(word, library, strlen(library)) == 0)
    setup->library = word + strlen(library);
  else if (strncmp(word, socket, strlen(socket)) == 0)
    setup->socket = word + strlen(socket);
  else if (strcmp(word, "shards") == 0)
    setup->shards = true;
  else
    return false;
  return true;
}

static int read_setup(struct setup *setup, int count, char *arguments[]) {
  for (int i = 0; i < count; i++)
    if (!read_word(setup, arguments[i])) {
      slurm_error("gpushare: plugstack.conf says '%s': it may say library=PATH, socket=PATH and shards",
                  arguments[i]);
      return REFUSED;
    }
  return 0;
}

/* ---- a task ---- */

static bool is_asked(spank_t spank, const struct setup *setup) {
  char number[16];
  for (size_t i = 0; i < TERM_COUNT; i++)
    if (terms[i].value)
      return true;
  return setup->shards &&
         spank_getenv(spank, "SLURM_SHARDS_ON_NODE", number, sizeof number) == ESPANK_SUCCESS;
}

static int set_variable(spank_t spank, const char *name, const char *value, bool overwrite) {
  spank_err_t err = spank_setenv(spank, name, value, overwrite);
  if (err == ESPANK_SUCCESS || (err == ESPANK_ENV_EXISTS && !overwrite))
    return 0;
  slurm_error("gpushare: can't set %s: %s", name, spank_strerror(err));
  return REFUSED;
}

/* Whether a list of libraries, as the loader reads it, has one. */
static bool list_has(const char *list, const char *library) {
  size_t length = strlen(library);
  for (; *list; list += strcspn(list, ": "), list += strspn(list, ": "))
    if (strcspn(list, ": ") == length && strncmp(list, library, length) == 0)
      return true;
  return false;
}

/* In front of what is preloaded already. A task started by a task has it. */
static int set_preload(spank_t spank, const char *library) {
  char present[4 * PATH_MAX] = "", all[5 * PATH_MAX];
  spank_err_t err = spank_getenv(spank, "LD_PRELOAD", present, sizeof present);
  if (access(library, R_OK) < 0 || strpbrk(library, ": ")) {
    slurm_error(
        "gpushare: can't preload %s: install it on this node, or name it in plugstack.conf (library=PATH)",
        library);
    return REFUSED;
  }
  if (err == ESPANK_NOSPACE) {
    slurm_error("gpushare: LD_PRELOAD is too long already");
    return REFUSED;
  }
  if (err != ESPANK_SUCCESS || !*present)
    return set_variable(spank, "LD_PRELOAD", library, true);
  if (list_has(present, library))
    return 0;
  snprintf(all, sizeof all, "%s:%s", library, present);
  return set_variable(spank, "LD_PRELOAD", all, true);
}

/* A job that was promised a shared GPU must not take a whole one: others hold it. */
static int check_daemon(spank_t spank) {
  char path[PATH_MAX] = GS_DEFAULT_SOCKET, node[256] = "this node";
  spank_getenv(spank, "GPUSHARE_SOCKET", path, sizeof path);
  spank_getenv(spank, "SLURMD_NODENAME", node, sizeof node);
  int fd = wire_connect(path);
  if (fd >= 0)
    return close(fd);
  if (fd == -EAGAIN) /* it is there, and as many wait for it as may */
    return 0;
  slurm_error(
      "gpushare: no daemon answers at %s on %s (%s): start it there (systemctl start gpushare-daemon), or "
      "submit the job with --exclude=%s or without --gpushare",
      path, node, strerror(-fd), node);
  return REFUSED;
}

static int set_terms(spank_t spank) {
  int err = 0;
  for (size_t i = 0; i < TERM_COUNT && err == 0; i++)
    if (terms[i].value && *terms[i].value)
      err = set_variable(spank, terms[i].variable, terms[i].value, true);
  return err;
}

int slurm_spank_task_init(spank_t spank, int count, char *arguments[]) {
  struct setup setup = {.library = GPUSHARE_LIBRARY};
  if (read_setup(&setup, count, arguments) != 0)
    return REFUSED;
  if (!is_asked(spank, &setup))
    return 0;
  int err = setup.socket ? set_variable(spank, "GPUSHARE_SOCKET", setup.socket, false) : 0;
  if (err == 0)
    err = check_daemon(spank);
  if (err == 0)
    err = set_preload(spank, setup.library);
  return err == 0 ? set_terms(spank) : err;
}

int slurm_spank_exit(spank_t spank, int count, char *arguments[]) {
  (void)spank, (void)count, (void)arguments;
  for (size_t i = 0; i < TERM_COUNT; i++) {
    free(terms[i].value);
    terms[i].value = NULL;
  }
  return 0;
}
