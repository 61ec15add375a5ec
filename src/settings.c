/* settings.c - the environment, read once when the library is loaded. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/gang_name.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/variables.h"

static struct settings current = {
    .socket = GS_DEFAULT_SOCKET, .memory = MEMORY_UNSET, .preempt = true, .carry = true};

const struct settings *settings(void) { return &current; }

/* Wrong values, for the log of programs that use CUDA; others that inherit the environment stay silent. */
static struct {
  const char *name, *allowed;
  char value[64];
} complaints[17];
static int complaint_count;

static void complain(const char *name, const char *value, const char *allowed) {
  if (complaint_count == sizeof complaints / sizeof *complaints)
    return;
  complaints[complaint_count].name = name;
  complaints[complaint_count].allowed = allowed;
  strncpy(complaints[complaint_count++].value, value, sizeof complaints->value - 1);
}

void settings_complain(void) {
  for (int i = 0; i < complaint_count; i++)
    log_warn("%s is %s, not '%s': the default is taken", complaints[i].name, complaints[i].allowed,
             complaints[i].value);
  complaint_count = 0;
}

/* NULL: it says nothing. Who starts a program that has more rights than he does not choose its daemon. */
static const char *value_of(const char *name) {
  const char *value = secure_getenv(name);
  return value && *value ? value : NULL;
}

static void read_bool(const char *name, bool *setting) {
  const char *value = value_of(name);
  if (value && parse_bool(value, setting) != 0)
    complain(name, value, "0 or 1");
}

static void read_memory(void) {
  static const char name[] = "GPUSHARE_MEMORY";
  const char *value = value_of(name);
  enum gs_memory memory;
  if (value && parse_memory(value, &memory) != 0)
    complain(name, value, "managed, swap or off");
  else if (value)
    current.memory = (int)memory;
}

static void read_preempt(void) {
  static const char name[] = "GPUSHARE_PREEMPT";
  const char *value = value_of(name);
  if (value && strcmp(value, "auto") != 0 && strcmp(value, "off") != 0)
    complain(name, value, "auto or off");
  else if (value)
    current.preempt = strcmp(value, "off") != 0;
}

/* What tells a term; "", which no term is: nothing, or nothing right. */
static const char *term_of(const char *name) {
  const char *value = value_of(name), *allowed = value ? variable_complaint(name, value) : NULL;
  if (allowed)
    complain(name, value, allowed);
  return value && !allowed ? value : "";
}

static void read_terms(void) {
  parse_weight(term_of("GPUSHARE_WEIGHT"), &current.weight);
  parse_priority(term_of("GPUSHARE_PRIORITY"), &current.priority);
  parse_duration_ns(term_of("GPUSHARE_EXPECTED_RUNTIME"), &current.expected_ns);
  parse_class(term_of("GPUSHARE_CLASS"), &current.class);
  strncpy(current.name, term_of("GPUSHARE_NAME"), sizeof current.name - 1);
  parse_bytes(term_of("GPUSHARE_MEMORY_LIMIT"), &current.limit_bytes);
  parse_bytes(term_of("GPUSHARE_MEMORY_SOFT_LIMIT"), &current.soft_limit_bytes);
  parse_bytes(term_of("GPUSHARE_EXPECTED_MEMORY"), &current.expected_bytes);
}

static void read_log(void) {
  static const char name[] = "GPUSHARE_LOG";
  const char *value = value_of(name);
  enum log_level level = LOG_LEVEL_WARN;
  bool wrong = value && log_level_parse(value, &level) != 0;
  log_setup("gpushare", level);
  log_as_guest();
  if (wrong)
    complain(name, value, "error, warn, info or debug");
}

static void read_socket(void) {
  static const char name[] = "GPUSHARE_SOCKET";
  static char
      copy[sizeof((struct sockaddr_un){0}.sun_path)]; /* programs overwrite their environment (titles) */
  const char *value = value_of(name);
  if (!value)
    return;
  if (strlen(value) >= sizeof copy) {
    complain(name, value, "a path of at most 107 bytes");
    return;
  }
  strcpy(copy, value);
  current.socket = copy;
}

__attribute__((constructor)) static void read_environment(void) {
  read_log();
  read_socket();
  read_memory();
  read_terms();
  gang_name_find(secure_getenv, current.gang);
  read_bool("GPUSHARE_REQUIRED", &current.required);
  read_preempt();
  read_bool("GPUSHARE_CARRY", &current.carry);
  read_bool("GPUSHARE_SINGLE_OVERSUBSCRIBE", &current.single_oversubscribe);
}
