/* settings.c - the environment, read once when the library is loaded. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/parse.h"
#include "gang_name.h"

static struct settings current = {.socket = GS_DEFAULT_SOCKET, .pace = true};

const struct settings *settings(void) { return &current; }

/* Wrong values, for the log of programs that use CUDA; others that inherit the environment stay silent. */
static struct {
  const char *name, *allowed;
  char value[64];
} complaints[16];
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
    log_warn("%s=%s is not understood (%s): the default is taken", complaints[i].name, complaints[i].value,
             complaints[i].allowed);
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
  if (!value)
    return;
  if (strcmp(value, "managed") == 0)
    current.memory = MEMORY_MANAGED;
  else if (strcmp(value, "swap") == 0)
    current.memory = MEMORY_SWAP;
  else if (strcmp(value, "off") == 0)
    current.memory = MEMORY_OFF;
  else
    complain(name, value, "managed, swap or off");
}

static void read_weight(void) {
  const char *value = value_of("GPUSHARE_WEIGHT");
  if (value && parse_weight(value, &current.weight) != 0)
    complain("GPUSHARE_WEIGHT", value, WEIGHT_RANGE);
}

static void read_priority(void) {
  const char *value = value_of("GPUSHARE_PRIORITY");
  if (value && parse_priority(value, &current.priority) != 0)
    complain("GPUSHARE_PRIORITY", value, PRIORITY_RANGE);
}

static void read_class(void) {
  const char *value = value_of("GPUSHARE_CLASS");
  if (value && parse_class(value, &current.class) != 0)
    complain("GPUSHARE_CLASS", value, CLASS_NAMES);
}

static void read_expected(void) {
  const char *value = value_of("GPUSHARE_EXPECTED_RUNTIME");
  if (value && parse_duration_ns(value, &current.expected_ns) != 0)
    complain("GPUSHARE_EXPECTED_RUNTIME", value, "a duration: 90, 15m, 2.5h");
}

static void read_size(const char *name, uint64_t *bytes) {
  const char *value = value_of(name);
  if (value && parse_bytes(value, bytes) != 0)
    complain(name, value, "a size: 16G, 512M");
}

static void read_log(void) {
  static const char name[] = "GPUSHARE_LOG";
  const char *value = value_of(name);
  enum log_level level = LOG_LEVEL_WARN;
  bool wrong = value && log_level_parse(value, &level) != 0;
  log_setup("gpushare", level);
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
  read_weight();
  read_priority();
  read_expected();
  read_class();
  read_size("GPUSHARE_MEMORY_LIMIT", &current.limit_bytes);
  read_size("GPUSHARE_MEMORY_SOFT_LIMIT", &current.soft_limit_bytes);
  read_size("GPUSHARE_EXPECTED_MEMORY", &current.expected_bytes);
  gang_name_find(secure_getenv, current.gang);
  read_bool("GPUSHARE_REQUIRED", &current.required);
  read_bool("GPUSHARE_PACE", &current.pace);
  read_bool("GPUSHARE_SINGLE_OVERSUBSCRIBE", &current.single_oversubscribe);
}
