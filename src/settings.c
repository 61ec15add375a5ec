/* settings.c - the environment, read once when the library is loaded. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/gang_name.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/variables.h"

static struct settings current = {
    .socket = GS_DEFAULT_SOCKET, .memory = MEMORY_UNSET, .preempt = true, .carry = true};

const struct settings *settings(void) { return &current; }

/* What is wrong, for the log of programs that use CUDA; others that inherit the environment stay silent.
 * Copies: programs overwrite their environment (titles). */
static struct {
  char name[48], value[64];
  const char *allowed; /* NULL: there is no such variable; */
  const char *like;    /* but this one */
} complaints[17];
static int complaint_count;

static void complain(const char *name, const char *value, const char *allowed, const char *like) {
  if (complaint_count == sizeof complaints / sizeof *complaints)
    return;
  size_t length = strcspn(name, "=");
  memcpy(complaints[complaint_count].name, name,
         length < sizeof complaints->name ? length : sizeof complaints->name - 1);
  strncpy(complaints[complaint_count].value, value, sizeof complaints->value - 1);
  complaints[complaint_count].allowed = allowed;
  complaints[complaint_count++].like = like;
}

void settings_complain(void) {
  for (int i = 0; i < complaint_count; i++) {
    const char *name = complaints[i].name;
    if (complaints[i].allowed)
      log_warn("%s is %s, not '%s': the default is taken", name, complaints[i].allowed, complaints[i].value);
    else
      log_warn("%s is no variable of gpushare's: did you mean %s?", name, complaints[i].like);
  }
  complaint_count = 0;
}

/* "", which is no value: it says nothing, or nothing right. Who starts a program that has more rights than he
 * does not choose its daemon. */
static const char *value_of(const char *name) {
  const char *value = secure_getenv(name);
  const char *allowed = value && *value ? variable_complaint(name, value) : NULL;
  if (allowed)
    complain(name, value, allowed, NULL);
  return value && !allowed ? value : "";
}

static void read_memory(void) {
  enum gs_memory memory;
  if (parse_memory(value_of("GPUSHARE_MEMORY"), &memory) == 0)
    current.memory = (int)memory;
}

static void read_terms(void) {
  parse_weight(value_of("GPUSHARE_WEIGHT"), &current.weight);
  parse_priority(value_of("GPUSHARE_PRIORITY"), &current.priority);
  parse_duration_ns(value_of("GPUSHARE_EXPECTED_RUNTIME"), &current.expected_ns);
  parse_class(value_of("GPUSHARE_CLASS"), &current.class);
  strncpy(current.name, value_of("GPUSHARE_NAME"), sizeof current.name - 1);
  parse_bytes(value_of("GPUSHARE_MEMORY_LIMIT"), &current.limit_bytes);
  parse_bytes(value_of("GPUSHARE_MEMORY_SOFT_LIMIT"), &current.soft_limit_bytes);
  parse_bytes(value_of("GPUSHARE_EXPECTED_MEMORY"), &current.expected_bytes);
}

static void read_log(void) {
  enum log_level level = LOG_LEVEL_WARN;
  log_level_parse(value_of("GPUSHARE_LOG"), &level);
  log_setup("gpushare", level);
  log_as_guest();
}

static void read_socket(void) {
  static char copy[sizeof((struct sockaddr_un){0}.sun_path)]; /* programs overwrite their environment */
  const char *value = value_of("GPUSHARE_SOCKET");
  if (!*value)
    return;
  strcpy(copy, value);
  current.socket = copy;
}

/* Others may have variables that begin so (Kubernetes has, of a service): what is like none of ours is left
 * alone. */
static void read_names(void) {
  for (char **assignment = environ; assignment && *assignment; assignment++) {
    const char *like = variable_is_unknown(*assignment) ? variable_like(*assignment) : NULL;
    if (like)
      complain(*assignment, "", NULL, like);
  }
}

__attribute__((constructor)) static void read_environment(void) {
  read_log();
  read_socket();
  read_memory();
  read_terms();
  gang_name_find(secure_getenv, current.gang);
  parse_bool(value_of("GPUSHARE_REQUIRED"), &current.required);
  current.preempt = strcmp(value_of("GPUSHARE_PREEMPT"), "off") != 0;
  parse_bool(value_of("GPUSHARE_CARRY"), &current.carry);
  parse_bool(value_of("GPUSHARE_EMPTY_CACHE"), &current.empty_cache);
  parse_bool(value_of("GPUSHARE_SINGLE_OVERSUBSCRIBE"), &current.single_oversubscribe);
  read_names();
}
