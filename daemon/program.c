/* program.c - what gpushare-daemon's command line and files say, and its parts as these want them: settings,
 * metrics, the host's cards, MPS. */
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/keep.h"
#include "server/process.h"
#include "server/usage.h"

/* ---- configuration ---- */

/* "host_memory" -> "host-memory" */
const char *option_name(const char *key, char name[32]) {
  size_t i = 0;
  for (; key[i] && i < 31; i++)
    name[i] = key[i] == '_' ? '-' : key[i];
  name[i] = '\0';
  return name;
}

static int read_command_line(const struct arguments *arguments, struct config *config, char *error,
                             size_t error_size) {
  char name[32];
  for (size_t i = 0; i < config_key_count; i++) {
    const char *value = arguments->values[i];
    const char *wrong = value ? config_set(config, &config_keys[i], value) : NULL;
    if (!wrong)
      continue;
    snprintf(error, error_size, "--%s: '%s' %s", option_name(config_keys[i].name, name), value, wrong);
    return -EINVAL;
  }
  return 0;
}

void files_read(const struct arguments *arguments, struct files *files) {
  const char *path = arguments->config_path;
  *files = (struct files){.config = config_default()};
  files->err = config_files_read(&files->config, path ? path : CONFIG_DEFAULT_PATH, path, files->error,
                                 sizeof files->error);
  if (files->err == 0)
    files->err = read_command_line(arguments, &files->config, files->error, sizeof files->error);
  if (files->err < 0)
    return;
  files->names = user_names_read(USER_NAMES_PATH);
  files->group = permission_find_group(files->config.group);
}

int program_check_files(struct program *program) {
  const struct files *files = &program->files;
  char *trouble = program->notify.trouble;
  *trouble = '\0';
  if (files->err < 0) {
    log_error("%s", files->error);
    snprintf(trouble, sizeof program->notify.trouble, "wrong configuration: %s", files->error);
  }
  return files->err;
}

/* ---- metrics ---- */

static uint64_t exporter_deadline(const void *exporter) { return exporter_deadline_ns(exporter); }
static void run_exporter(void *exporter, uint64_t now_ns) { exporter_run(exporter, now_ns); }

void program_close_exporter(struct program *program) {
  server_remove_guest(&program->server);
  if (program->exporter)
    exporter_close(program->exporter);
  program->exporter = NULL;
}

/* At this address from now on, or nowhere (ADDRESS_OFF). */
static void show_metrics(struct program *program, const char *address) {
  if (program->exporter && strcmp(exporter_address(program->exporter), address) == 0)
    return;
  program_close_exporter(program);
  if (strcmp(address, ADDRESS_OFF) == 0)
    return;
  program->exporter = exporter_open(&program->daemon, address);
  if (!program->exporter)
    return;
  struct server_guest guest = {.fd = exporter_fd(program->exporter),
                               .of = program->exporter,
                               .deadline_ns = exporter_deadline,
                               .run = run_exporter};
  if (server_add_guest(&program->server, &guest) < 0)
    program_close_exporter(program);
}

/* ---- the configuration counts ---- */

void program_apply(struct program *program) {
  const struct config *config = &program->config;
  struct scheduler *scheduler = &program->daemon.scheduler;
  struct overrides overrides = config->overrides;
  uint64_t now_ns = clock_now_ns();
  user_names_use(&program->files.names);
  log_setup("gpushare-daemon", config->log);
  scheduler->grace_ns = config->grace_ns;
  scheduler->host_memory_bytes = config->host_memory_bytes;
  gpus_find_numbered(&overrides, &program->daemon.cards);
  keep_configure(&program->daemon, &config->general, &overrides, now_ns);
  list_each(node, &scheduler->gpus) {
    overrides_apply(&program->daemon.overrides, list_entry(node, struct sched_gpu, link), now_ns,
                    &program->daemon.actions);
  }
  program->daemon.host_copies = config->host_copies; /* all jobs are told, with the capacity */
  program->daemon.learns = config->learn;
  scheduler_set_count(scheduler, config->count_touched, now_ns, &program->daemon.actions);
  strcpy(program->daemon.hook.command, config->on_job_end);
  users_bound_clients(&program->server.users, config->max_clients_per_user);
  program->daemon.evict_after = config->evict_after;
  program->server.group = program->files.group;
  if (program->server.group == PERMISSION_NO_GROUP)
    log_info("there is no group '%s': only root and uid %d may change settings", config->group, geteuid());
  gpus_settle(&program->daemon, now_ns);
  clients_set_bounds(&program->daemon, &config->bounds, &config->users, now_ns);
  presence_set(&program->server, config->require_device);
  show_metrics(program, config->metrics);
  web_child_show(&program->web, config->web, config->socket);
}

/* ---- the host's cards ---- */

#define CARDS_WAIT_NS (3 * NS_PER_S) /* at the start; later answers count as well */

/* The daemon's own environment may replace what it asks (gpushare-daemon(8)). */
static const char *environment_or(const char *name, const char *fallback) {
  const char *value = getenv(name);
  return value ? value : fallback;
}

static const char *host_folder(void) {
  static char folder[300];
  snprintf(folder, sizeof folder, "%s" HOST_GPUS_FOLDER, environment_or("GPUSHARE_HOST_ROOT", ""));
  return folder;
}

static void take_cards(struct program *program, const struct cards *cards) {
  static const char *const sources[] = {
      [CARDS_HOST] = "/proc/driver/nvidia tells", [CARDS_NVML] = "NVML tells"};
  if (cards_are_same(cards, &program->daemon.cards))
    return;
  log_info("%s of %u GPU%s on this host%s", sources[cards->source], cards->count,
           cards->count == 1 ? "" : "s", cards->partial ? ", and there are others" : "");
  gpus_on_cards(&program->daemon, cards, clock_now_ns());
  presence_on_cards(&program->server);
}

/* Without NVML. What it has told before is more. */
static void read_cards(struct program *program) {
  static struct cards cards;
  if (program->daemon.cards.source != CARDS_NVML && host_gpus_cards(host_folder(), &cards) == 0)
    take_cards(program, &cards);
}

static void note_cards_trouble(struct program *program, const char *why) {
  if (strcmp(why, program->cards_trouble) == 0)
    return;
  log_info("NVML does not tell of GPUs: %s", why);
  snprintf(program->cards_trouble, sizeof program->cards_trouble, "%s", why);
}

void program_ask_for_cards(struct program *program) {
  if (card_query_begin(&program->daemon.card_query, clock_now_ns()) < 0)
    read_cards(program);
}

void program_look_for_cards(struct program *program) {
  card_watch_on_child(&program->daemon.card_watch);
  static struct cards cards;
  char why[NVML_WHY_SIZE];
  int result = card_query_on_child(&program->daemon.card_query, &cards, why);
  if (result > 0) {
    *program->cards_trouble = '\0';
    take_cards(program, &cards);
  } else if (result < 0) {
    note_cards_trouble(program, why);
    read_cards(program);
  }
  usage_on_readings(&program->daemon, clock_now_ns()); /* after the cards that it is told of are known */
  if (result != 0 && program->daemon.card_query.again)
    program_ask_for_cards(program);
}

void program_await_cards(struct program *program) {
  struct card_query *query = &program->daemon.card_query;
  uint64_t end_ns = clock_now_ns() + CARDS_WAIT_NS;
  query->library = environment_or("GPUSHARE_NVML", NVML_LIBRARY);
  query->patience_ns = CARD_QUERY_NS;
  query->is_job = gpus_have_job;
  query->of = &program->daemon;
  if (!*query->library)
    query->library = NULL;
  program->daemon.card_watch.library = query->library;
  program_ask_for_cards(program);
  while (query->pid && process_await_child(end_ns))
    program_look_for_cards(program);
  if (query->pid) {
    log_warn("NVML has not told of GPUs within %lu s: going on without it, until it does",
             CARDS_WAIT_NS / NS_PER_S);
    read_cards(program);
  }
}

/* ---- MPS ---- */

static void choose_spatial(const struct config *config, const struct cards *cards, struct spatial *spatial) {
  static uint8_t host[OVERRIDES_MAX][GS_UUID_SIZE];
  static struct overrides overrides;
  int count = host_gpus_read(host_folder(), host, OVERRIDES_MAX);
  overrides = config->overrides;
  gpus_find_numbered(&overrides, cards);
  spatial_choose(spatial, &config->general, &overrides, (const uint8_t(*)[GS_UUID_SIZE])host, count);
}

void program_start_spatial(struct program *program) {
  struct daemon *daemon = &program->daemon;
  choose_spatial(&program->config, &daemon->cards, &daemon->spatial);
  if (!spatial_is_on(&daemon->spatial))
    return;
  if (geteuid() != 0)
    log_info("the daemon is not root: MPS is for programs of uid %u only", geteuid());
  spatial_visible(&daemon->spatial, program->visible);
  mps_start(&daemon->mps, program->config.socket, program->visible, clock_now_ns());
}

bool program_spatial_changes(const struct program *program, const struct config *fresh) {
  static struct spatial chosen;
  choose_spatial(fresh, &program->daemon.cards, &chosen);
  return !spatial_is_same(&chosen, &program->daemon.spatial);
}
