/* config.c - the daemon's settings. One table of keys serves the file, the command line and --help. */
#include "server/config.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/fnv.h"
#include "common/gpu_number.h"
#include "common/host.h"
#include "common/parse.h"
#include "common/spelling.h"
#include "core/scheduler.h"

/*
 * ---- addresses ----
 *
 * Where the daemon shows its metrics, and its page, as the configuration says it.
 */

#define FILE_PREFIX "unix:"

static int parse_file(const char *path, struct address *address) {
  if (*path != '/' || strlen(path) >= sizeof address->file.sun_path)
    return -EINVAL;
  address->file.sun_family = AF_UNIX;
  strcpy(address->file.sun_path, path);
  address->size = sizeof address->file;
  return 0;
}

static int set_host(const char *host, uint16_t port, struct address *address) {
  size_t length = strlen(host);
  char inner[INET6_ADDRSTRLEN] = "";
  if (inet_pton(AF_INET, host, &address->ip4.sin_addr) == 1) {
    address->ip4.sin_family = AF_INET;
    address->ip4.sin_port = htons(port);
    address->size = sizeof address->ip4;
    return 0;
  }
  if (length < 3 || length - 2 >= sizeof inner || host[0] != '[' || host[length - 1] != ']')
    return -EINVAL;
  memcpy(inner, host + 1, length - 2);
  address->ip6.sin6_family = AF_INET6;
  address->ip6.sin6_port = htons(port);
  address->size = sizeof address->ip6;
  return inet_pton(AF_INET6, inner, &address->ip6.sin6_addr) == 1 ? 0 : -EINVAL;
}

int address_parse(const char *text, struct address *address) {
  char host[ADDRESS_TEXT_SIZE];
  const char *colon = strrchr(text, ':');
  int64_t port;
  *address = (struct address){0};
  if (strncmp(text, FILE_PREFIX, strlen(FILE_PREFIX)) == 0)
    return parse_file(text + strlen(FILE_PREFIX), address);
  if (!colon || (size_t)(colon - text) >= sizeof host || parse_integer(colon + 1, 0, UINT16_MAX, &port) < 0)
    return -EINVAL;
  memcpy(host, text, (size_t)(colon - text));
  host[colon - text] = '\0';
  return set_host(host, (uint16_t)port, address);
}

void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE]) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address->any.sa_family == AF_UNIX) {
    snprintf(text, ADDRESS_TEXT_SIZE, FILE_PREFIX "%s", address->file.sun_path);
  } else if (address->any.sa_family == AF_INET) {
    inet_ntop(AF_INET, &address->ip4.sin_addr, host, sizeof host);
    snprintf(text, ADDRESS_TEXT_SIZE, "%s:%u", host, ntohs(address->ip4.sin_port));
  } else {
    inet_ntop(AF_INET6, &address->ip6.sin6_addr, host, sizeof host);
    snprintf(text, ADDRESS_TEXT_SIZE, "[%s]:%u", host, ntohs(address->ip6.sin6_port));
  }
}

/*
 * ---- setters ----
 *
 * Each returns NULL, or what is wrong with the text.
 */

static const char *set_text(char *field, size_t size, const char *text) {
  if (*text == '\0')
    return "must not be empty";
  if (strlen(text) >= size)
    return "is too long";
  strcpy(field, text);
  return NULL;
}

#define TEXT_SIZE(member) sizeof(((struct config *)0)->member)

static const char *set_socket(void *field, const char *text) {
  return set_text(field, TEXT_SIZE(socket), text);
}

static const char *set_group(void *field, const char *text) {
  return set_text(field, TEXT_SIZE(group), text);
}

/* Of metrics and the page alike. */
static const char *set_address(void *field, const char *text) {
  struct address address;
  if (strcmp(text, ADDRESS_OFF) != 0 && address_parse(text, &address) < 0)
    return "is none of off, ADDRESS:PORT (for example 127.0.0.1:9465, [::1]:9465), unix:/PATH";
  return set_text(field, ADDRESS_TEXT_SIZE, text);
}

static const char *set_on_job_end(void *field, const char *text) {
  const char *wrong = set_text(field, TEXT_SIZE(on_job_end), text);
  if (strcmp(text, "off") == 0)
    *(char *)field = '\0';
  return wrong;
}

static const char *set_state(void *field, const char *text) {
  if (*text != '/' && strcmp(text, STATE_AUTO) != 0 && strcmp(text, STATE_OFF) != 0)
    return "is none of auto, off, /FOLDER";
  return set_text(field, TEXT_SIZE(state), text);
}

/* Of 4 or 8 bytes. */
static const char *set_number(void *field, size_t size, const char *text, int64_t least, int64_t most,
                              const char *wrong) {
  int64_t number;
  if (parse_integer(text, least, most, &number) < 0)
    return wrong;
  if (size == sizeof(uint32_t))
    *(uint32_t *)field = (uint32_t)number;
  else
    *(uint64_t *)field = (uint64_t)number;
  return NULL;
}

static const char *set_count(void *field, const char *text) {
  return set_number(field, sizeof(uint64_t), text, 1, 1000000, "is not a number from 1 to 1000000");
}

static const char *set_evict_after(void *field, const char *text) {
  return set_number(field, sizeof(uint64_t), text, 0, 1000000, "is not a number from 0 to 1000000");
}

static const char *set_weight(void *field, const char *text) {
  return set_number(field, sizeof(uint32_t), text, 1, GS_WEIGHT_MAX, "is not a number from 1 to 10000");
}

static const char *set_max_weight(void *field, const char *text) {
  return set_number(field, sizeof(uint32_t), text, GS_WEIGHT_DEFAULT, GS_WEIGHT_MAX,
                    "is not a number from 100 to 10000");
}

static const char *set_max_priority(void *field, const char *text) {
  return set_number(field, sizeof(uint32_t), text, 0, GS_PRIORITY_MAX, "is not a number from 0 to 20");
}

static const char *set_bytes(uint64_t *field, const char *text, uint64_t least, const char *wrong) {
  uint64_t bytes;
  if (parse_bytes(text, &bytes) < 0 || bytes < least || bytes > SCHED_BYTES_MAX)
    return wrong;
  *field = bytes;
  return NULL;
}

static const char *set_capacity(void *field, const char *text) {
  return set_bytes(field, text, 0, "is not a size (for example 16G; 0: the whole card)");
}

static const char *set_size(void *field, const char *text) {
  return set_bytes(field, text, 1, "is not the size of a card (for example 80G)");
}

static const char *set_max_memory(void *field, const char *text) {
  return set_bytes(field, text, 0, "is not a size (for example 16G; 0: as much as there is)");
}

/* What the machine could give when the daemon started; a percentage must not shrink with each reading. */
static const char *set_host_memory(void *field, const char *text) {
  static uint64_t spare_bytes;
  uint32_t percent;
  if (parse_percent(text, 0, UINT32_MAX, &percent) < 0)
    return parse_bytes(text, field) < 0 ? "is neither a size (for example 64G) nor a percentage" : NULL;
  if (percent > 100)
    return "is more than 100 %";
  spare_bytes = spare_bytes ? spare_bytes : host_spare_bytes();
  *(uint64_t *)field = spare_bytes / 100 * percent;
  return NULL;
}

static const char *set_host_copies(void *field, const char *text) {
  static const char *const words[] = {
      [GS_HOST_COPIES_OFF] = "off", [GS_HOST_COPIES_AUTO] = "auto", [GS_HOST_COPIES_ON] = "on"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(text, words[i]) == 0) {
      *(enum gs_host_copies *)field = (enum gs_host_copies)i;
      return NULL;
    }
  return "is none of auto, on, off";
}

static const char *set_counted(void *field, const char *text) {
  *(bool *)field = strcmp(text, "touched") == 0;
  return *(bool *)field || strcmp(text, "allocated") == 0 ? NULL : "is neither touched nor allocated";
}

static const char *set_tq(void *field, const char *text) {
  int err = parse_tq_ns(text, field);
  if (err == -ERANGE)
    return "is not from " TQ_RANGE " (turns without an end: policy = fifo)";
  return err < 0 ? "is neither auto nor a duration (for example 20, 0.5, 250ms, 2m)" : NULL;
}

static const char *set_grace(void *field, const char *text) {
  return parse_duration_ns(text, field) < 0 ? "is not a duration (for example 30, 500ms, 2m)" : NULL;
}

static const char *set_loss(void *field, const char *text) {
  uint32_t percent;
  if (parse_percent(text, 1, 50, &percent) < 0)
    return "is not a percentage from 1% to 50%";
  *(uint32_t *)field = percent * 10;
  return NULL;
}

static const char *set_mode(void *field, const char *text) {
  return parse_mode(text, field) < 0 ? "is none of auto, on, off" : NULL;
}

static const char *set_policy(void *field, const char *text) {
  return parse_policy(text, field) < 0 ? "is none of " POLICY_NAMES : NULL;
}

static const char *set_memory(void *field, const char *text) {
  return parse_memory(text, field) < 0 ? "is none of managed, swap, off" : NULL;
}

static const char *set_spatial(void *field, const char *text) {
  return parse_spatial(text, field) < 0 ? "is neither none nor mps" : NULL;
}

static const char *set_log(void *field, const char *text) {
  return log_level_parse(text, field) < 0 ? "is none of error, warn, info, debug" : NULL;
}

static const char *set_bool(void *field, const char *text) {
  return parse_bool(text, field) < 0 ? "is neither yes nor no" : NULL;
}

/* Of a user: whether its programs may say that they are. */
static const char *set_may_produce(void *field, const char *text) {
  bool may;
  const char *wrong = set_bool(&may, text);
  if (!wrong)
    *(bool *)field = !may;
  return wrong;
}

static const char *set_production(void *field, const char *text) {
  bool privileged = strcmp(text, "privileged") == 0;
  if (!privileged && strcmp(text, "any") != 0)
    return "is neither any nor privileged";
  *(bool *)field = privileged;
  return NULL;
}

static const char *set_require_device(void *field, const char *text) {
  static const char *const names[] = {
      [GS_REQUIRE_AUTO] = "auto", [GS_REQUIRE_YES] = "yes", [GS_REQUIRE_NO] = "no"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(text, names[i]) == 0) {
      *(enum gs_require *)field = (enum gs_require)i;
      return NULL;
    }
  return "is none of auto, yes, no";
}

#define AT(member) .at = offsetof(struct config, member)
#define OF_USER(member) offsetof(struct user_limit, member)

const struct config_key config_keys[] = {
    {"socket", "PATH", "where programs find the daemon (default " GS_DEFAULT_SOCKET ")", set_socket,
     AT(socket)},
    {"tq", "DURATION|auto", "how long a job keeps a GPU while others wait, " TQ_RANGE " (default 20)", set_tq,
     AT(general.tq_ns), .field = OVERRIDE_TQ},
    {"loss", "N%", "tq auto: of the time, that hand-overs may take (default 5%)", set_loss,
     AT(general.loss_permille), .field = OVERRIDE_LOSS},
    {"mode", "auto|on|off", "jobs take turns: only if their memory does not fit together, always, never",
     set_mode, AT(general.mode), .field = OVERRIDE_MODE},
    {"policy", "NAME", "whose turn is next: fair (default), rr, fifo, srtf, priority, pack", set_policy,
     AT(general.policy), .field = OVERRIDE_POLICY},
    {"grace", "DURATION", "for a job to stop when told, before others go on without it (default 30)",
     set_grace, AT(grace_ns)},
    {"evict_after", "N",
     "a job without page faults that does not stop, and that others wait for, is evicted\n"
     "                                after so many graces (default 4; 0: never)",
     set_evict_after, AT(evict_after)},
    {"capacity", "BYTES", "memory of each GPU for all jobs together (default 0: the whole card)",
     set_capacity, AT(general.capacity_bytes), .field = OVERRIDE_CAPACITY},
    {"size", "BYTES", "of one GPU: what the card has, where the driver can't be asked (NVML)", set_size,
     AT(general.card_bytes), .field = OVERRIDE_SIZE, .single = true},
    {"memory", "managed|swap|off",
     "how memory leaves the card, where a program does not say (default managed)", set_memory,
     AT(general.memory), .field = OVERRIDE_MEMORY},
    {"spatial", "none|mps", "how programs that run at the same time share a GPU (default none: by time)",
     set_spatial, AT(general.spatial), .field = OVERRIDE_SPATIAL},
    {"host_memory", "BYTES|N%", "host memory for what is not on the cards (default 80% of what is free)",
     set_host_memory, AT(host_memory_bytes)},
    {"host_copies", "auto|on|off",
     "copies in host memory of what is on the cards (default auto: while it is plentiful)", set_host_copies,
     AT(host_copies)},
    {"count", "touched|allocated",
     "mode auto: memory that decides about turns (default touched: what is on the card)", set_counted,
     AT(count_touched)},
    {"learn", "yes|no", "expect of a program what its earlier runs took (policy srtf; default yes)", set_bool,
     AT(learn)},
    {"require_device", "auto|yes|no",
     "a GPU is for programs that have its device open (default auto: if that can be told)",
     set_require_device, AT(require_device)},
    {"max_clients_per_user", "N", "programs of one user at a time (default 2048)", set_count,
     AT(max_clients_per_user)},
    {"max_weight", "N", "what programs may ask for themselves, from 100, the default, to 10000",
     set_max_weight, AT(bounds.max_weight)},
    {"max_priority", "N", "likewise, from 0, the default, to 20", set_max_priority, AT(bounds.max_priority)},
    {"production", "any|privileged",
     "who makes a job a production job: any program, or only the group (default)", set_production,
     AT(bounds.production_privileged)},
    {"group", "NAME|GID", "whose members may change settings (default gpushare)", set_group, AT(group)},
    {"metrics", "ADDRESS", "for Prometheus: ADDRESS:PORT or unix:PATH (default off)", set_address,
     AT(metrics)},
    {"web", "ADDRESS", "a page for browsers: ADDRESS:PORT or unix:PATH (default off)", set_address, AT(web)},
    {"state", "FOLDER|auto|off",
     "where what is set is kept over restarts (default auto: " STATE_DEFAULT_PATH ")", set_state, AT(state)},
    {"on_job_end", "COMMAND|off",
     "for the shell, when a job has ended; its figures are in the environment (default off)", set_on_job_end,
     AT(on_job_end)},
    {"log", "LEVEL", "error, warn, info or debug (default info)", set_log, AT(log)},
};
const size_t config_key_count = sizeof config_keys / sizeof *config_keys;
static_assert(sizeof config_keys / sizeof *config_keys <= CONFIG_KEYS_MAX, "too many keys");

struct config config_default(void) {
  struct config config = {.socket = GS_DEFAULT_SOCKET,
                          .general = {.tq_ns = 20 * NS_PER_S,
                                      .loss_permille = SCHED_LOSS_PERMILLE,
                                      .mode = GS_MODE_AUTO,
                                      .policy = GS_POLICY_FAIR,
                                      .memory = GS_MEMORY_MANAGED},
                          .grace_ns = 30 * NS_PER_S,
                          .host_copies = GS_HOST_COPIES_AUTO,
                          .count_touched = true,
                          .max_clients_per_user = 2048,
                          .evict_after = 4,
                          .bounds = TERMS_DEFAULT_BOUNDS,
                          .learn = true,
                          .group = "gpushare",
                          .state = STATE_AUTO,
                          .metrics = ADDRESS_OFF,
                          .web = ADDRESS_OFF,
                          .log = LOG_LEVEL_INFO};
  set_host_memory(&config.host_memory_bytes, "80%");
  return config;
}

/* ---- by name, and from a file ---- */

static const struct config_key *find_key(const char *name) {
  for (size_t i = 0; i < config_key_count; i++)
    if (strcmp(config_keys[i].name, name) == 0)
      return &config_keys[i];
  return NULL;
}

#define FOR_SINGLE_GPUS "is a setting of single GPUs, for a section [gpu UUID]"

const char *config_set(struct config *config, const struct config_key *key, const char *text) {
  if (key->single)
    return FOR_SINGLE_GPUS;
  const char *wrong = key->set((char *)config + key->at, text);
  char *kept = config->texts[key - config_keys];
  if (!wrong)
    snprintf(kept, sizeof *config->texts, "%s", text);
  return wrong;
}

/* As much as there is room for. */
static void cut(char *to, size_t size, const char *text) {
  if (snprintf(to, size, "%s", text) >= (int)size)
    strcpy(to + size - sizeof "...", "...");
}

void config_each_change(const struct config *before, const struct config *after,
                        void (*tell)(void *argument, const char *key, const char *change), void *argument) {
  char change[256], is_short[64], was_short[64];
  for (size_t i = 0; i < config_key_count; i++) {
    const char *was = before->texts[i], *is = after->texts[i];
    cut(is_short, sizeof is_short, *is ? is : "its default");
    cut(was_short, sizeof was_short, *was ? was : "its default");
    snprintf(change, sizeof change, "%s = %s instead of %s", config_keys[i].name, is_short, was_short);
    if (strcmp(was, is) != 0)
      tell(argument, config_keys[i].name, change);
  }
  if (before->sections != after->sections)
    tell(argument, "", "other settings in sections");
}

struct changes {
  char *text;
  size_t size;
};

static void append_change(void *argument, const char *key, const char *change) {
  const struct changes *changes = argument;
  size_t length = strlen(changes->text);
  (void)key;
  int added = snprintf(changes->text + length, changes->size - length, "%s%s", length ? "; " : "", change);
  if (added >= (int)(changes->size - length))
    strcpy(changes->text + changes->size - sizeof "...", "...");
}

bool config_changes(const struct config *before, const struct config *after, char *text, size_t size) {
  struct changes changes = {text, size};
  *text = '\0';
  config_each_change(before, after, append_change, &changes);
  return *text;
}

/* Order counts, as it does for the settings. */
static void sum_up(uint64_t *sum, const char *text) { *sum = fnv_add(*sum, text, strlen(text) + 1); }

static const char *set_for_gpu(struct override *gpu, const struct config_key *key, const char *text) {
  gpu->fields |= key->field;
  return key->set((char *)&gpu->settings + key->at - offsetof(struct config, general), text);
}

/* [user NAME] */
static const struct user_key {
  const char *name;
  unsigned field; /* USER_LIMIT_* */
  config_set_f *set;
  size_t at;
} user_keys[] = {
    {"weight", USER_LIMIT_WEIGHT, set_weight, OF_USER(weight)},
    {"max_jobs", USER_LIMIT_JOBS, set_count, OF_USER(max_jobs)},
    {"max_memory", USER_LIMIT_MEMORY, set_max_memory, OF_USER(max_memory_bytes)},
    {"production", USER_LIMIT_PRODUCTION, set_may_produce, OF_USER(bounds.production_privileged)},
    {"max_weight", USER_LIMIT_MAX_WEIGHT, set_max_weight, OF_USER(bounds.max_weight)},
    {"max_priority", USER_LIMIT_MAX_PRIORITY, set_max_priority, OF_USER(bounds.max_priority)},
};
#define USER_KEYS (sizeof user_keys / sizeof *user_keys)

static const struct user_key *find_user_key(const char *name) {
  for (size_t i = 0; i < USER_KEYS; i++)
    if (strcmp(user_keys[i].name, name) == 0)
      return &user_keys[i];
  return NULL;
}

static const char *set_for_user(struct user_limit *user, const struct user_key *key, const char *text) {
  user->fields |= key->field;
  return key->set((char *)user + key->at, text);
}

struct reading {
  struct config *config;
  char reason[160]; /* of the first error */
};

static int complain(struct reading *reading, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int complain(struct reading *reading, const char *format, ...) {
  va_list list;
  va_start(list, format);
  if (!*reading->reason)
    vsnprintf(reading->reason, sizeof reading->reason, format, list);
  va_end(list);
  return 0;
}

/* "gpu UUID" or "gpu INDEX" -> the GPU's own settings. NULL, after a complaint. */
static struct override *section_gpu(struct reading *reading, const char *section) {
  uint8_t uuid[GS_UUID_SIZE];
  const char *text = section + strlen("gpu");
  struct override *gpu = NULL;
  uint32_t number;
  text += strspn(text, " \t");
  bool numbered = gpu_number_parse(text, &number) == 0;
  if (!numbered && (parse_uuid(text, uuid) < 0 || uuid_is_zero(uuid)))
    complain(reading, "section [%.60s] names no GPU: its UUID and index are in gpusharectl status", section);
  else if (!(gpu = numbered ? overrides_provide_numbered(&reading->config->overrides, number)
                            : overrides_provide(&reading->config->overrides, uuid)))
    complain(reading, "section [%.60s]: more than %d GPUs", section, OVERRIDES_MAX);
  return gpu;
}

/* "user NAME" or "user UID" -> what that one has of its own. NULL, after a complaint. The look-up may block,
 * as that of the group does: it takes place when the daemon starts, and when it is told to read anew. */
static struct user_limit *section_user(struct reading *reading, const char *section) {
  const char *name = section + strlen("user");
  name += strspn(name, " \t");
  const struct passwd *entry = getpwnam(name);
  int64_t number;
  struct user_limit *user = NULL;
  if (!entry && parse_integer(name, 0, UINT32_MAX - 1, &number) < 0)
    complain(reading, "section [%.60s]: there is no such user", section);
  else if (!(user = user_limits_provide(&reading->config->users, entry ? entry->pw_uid : (uid_t)number)))
    complain(reading, "section [%.60s]: more than %d users", section, USER_LIMITS_MAX);
  return user;
}

/* Of a key that its section does not have, whatever its value; and which one may be meant. */
static int complain_of_key(struct reading *reading, const struct override *gpu, const struct user_limit *user,
                           const char *name) {
  const char *meant = NULL, *what = user ? "is no setting of a user" : "is not a setting";
  unsigned best = UINT_MAX;
  for (size_t i = 0; user && i < USER_KEYS; i++)
    if (spelling_is_nearer(name, user_keys[i].name, &best))
      meant = user_keys[i].name;
  for (size_t i = 0; !user && i < config_key_count; i++)
    if ((gpu ? config_keys[i].field != 0 : !config_keys[i].single) &&
        spelling_is_nearer(name, config_keys[i].name, &best))
      meant = config_keys[i].name;
  if (meant)
    return complain(reading, "%.40s %s: did you mean %s?", name, what, meant);
  return complain(reading, "%.40s %s", name, what);
}

/* For inih: not 0 if the line is right. */
static int on_setting(void *argument, const char *section, const char *name, const char *value) {
  struct reading *reading = argument;
  struct override *gpu = NULL;
  struct user_limit *user = NULL;
  const struct config_key *key = find_key(name);
  const struct user_key *user_key = find_user_key(name);
  const char *wrong;
  if (strncmp(section, "gpu ", 4) == 0 && !(gpu = section_gpu(reading, section)))
    return 0;
  if (strncmp(section, "user ", 5) == 0 && !(user = section_user(reading, section)))
    return 0;
  if (!gpu && !user && *section && strcmp(section, "gpushare") != 0)
    return complain(reading, "section [%.40s]: there are only [gpushare], [gpu UUID] and [user NAME]",
                    section);
  if (*section && strcmp(section, "gpushare") != 0) {
    sum_up(&reading->config->sections, section);
    sum_up(&reading->config->sections, name);
    sum_up(&reading->config->sections, value);
  }
  if (user ? !user_key : !key)
    return complain_of_key(reading, gpu, user, name);
  if (gpu && !key->field)
    return complain(reading, "%s is no setting of a single GPU", name);
  if (!gpu && !user && key->single)
    return complain(reading, "%s " FOR_SINGLE_GPUS, name);
  wrong = user  ? set_for_user(user, user_key, value)
          : gpu ? set_for_gpu(gpu, key, value)
                : config_set(reading->config, key, value);
  return wrong ? complain(reading, "%.40s: '%.60s' %s", name, value, wrong) : 1;
}

int config_read(struct config *config, const char *path, char *error, size_t error_size) {
  struct config read = *config;
  struct reading reading = {.config = &read};
  FILE *file = fopen(path, "re");
  if (!file)
    return -errno;
  errno = 0;
  int line = ini_parse_file(file, on_setting, &reading);
  int err = ferror(file) ? errno : 0; /* to inih, a read that fails is the end of the file */
  fclose(file);
  if (err != 0)
    return err == EINVAL ? -EIO : -err; /* -EINVAL says that there is a text in error */
  if (line != 0) {
    snprintf(error, error_size, "%s:%d: %s", path, line,
             *reading.reason ? reading.reason : "neither a comment nor 'key = value'");
    return -EINVAL;
  }
  *config = read;
  return 0;
}

/*
 * ---- the file, and drop-ins ----
 *
 * The configuration file and the drop-ins beside it.
 */

static int read_one(struct config *config, const char *path, char *error, size_t error_size) {
  int err = config_read(config, path, error, error_size);
  if (err < 0 && err != -EINVAL)
    snprintf(error, error_size, "can't read %s: %s", path, strerror(-err));
  return err;
}

static int is_drop_in(const struct dirent *entry) {
  const char *end = strrchr(entry->d_name, '.');
  return *entry->d_name != '.' && end && strcmp(end, ".conf") == 0;
}

/* Not by the locale: the order is the same everywhere. */
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_drop_ins(struct config *config, const char *folder, char *error, size_t error_size) {
  struct dirent **entries;
  int err = 0, count = scandir(folder, &entries, is_drop_in, by_name);
  if (count < 0 && errno == ENOENT)
    return 0;
  if (count < 0) {
    err = -errno;
    snprintf(error, error_size, "can't read %s: %s", folder, strerror(-err));
    return err;
  }
  for (int i = 0; i < count; i++) {
    char path[PATH_MAX + sizeof entries[i]->d_name];
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    free(entries[i]);
    if (err == 0)
      err = read_one(config, path, error, error_size);
  }
  free(entries);
  return err;
}

int config_files_read(struct config *config, const char *path, bool needed, char *error, size_t error_size) {
  struct config read = *config;
  char folder[PATH_MAX];
  int err = read_one(&read, path, error, error_size);
  if (err == -ENOENT && !needed)
    err = 0;
  if (err == 0 && snprintf(folder, sizeof folder, "%s.d", path) < (int)sizeof folder)
    err = read_drop_ins(&read, folder, error, error_size);
  if (err == 0)
    *config = read;
  return err;
}
