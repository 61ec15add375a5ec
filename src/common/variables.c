/* variables.c - one table of the variables that gpushare's programs read. */
#include "common/variables.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/parse.h"
#include "common/spelling.h"

#define PREFIX "GPUSHARE_"
#define PREFIX_SIZE (sizeof PREFIX - 1)

static bool is_weight(const char *text) { return parse_weight(text, &(uint32_t){0}) == 0; }
static bool is_priority(const char *text) { return parse_priority(text, &(int32_t){0}) == 0; }
static bool is_class(const char *text) { return parse_class(text, &(enum gs_class){0}) == 0; }
static bool is_duration(const char *text) { return parse_duration_ns(text, &(uint64_t){0}) == 0; }
static bool is_size(const char *text) { return parse_bytes(text, &(uint64_t){0}) == 0; }
static bool is_bool(const char *text) { return parse_bool(text, &(bool){0}) == 0; }
static bool is_memory(const char *text) { return parse_memory(text, &(enum gs_memory){0}) == 0; }
static bool is_log_level(const char *text) { return log_level_parse(text, &(enum log_level){0}) == 0; }
static bool is_preempt(const char *text) { return strcmp(text, "auto") == 0 || strcmp(text, "off") == 0; }
static bool is_socket(const char *text) { return strlen(text) < sizeof((struct sockaddr_un *)0)->sun_path; }

static bool is_name(const char *text) {
  size_t size = 0;
  while (text[size] >= ' ' && text[size] <= '~')
    size++;
  return !text[size] && size < GS_NAME_SIZE;
}

/* is_right NULL: any text. */
static const struct {
  const char *name;
  bool (*is_right)(const char *text);
  const char *allowed;
} variables[] = {
    {"GPUSHARE_WEIGHT", is_weight, WEIGHT_RANGE},
    {"GPUSHARE_PRIORITY", is_priority, PRIORITY_RANGE},
    {"GPUSHARE_EXPECTED_RUNTIME", is_duration, "a duration (90, 15m, 2.5h)"},
    {"GPUSHARE_MEMORY_LIMIT", is_size, "a size (16G, 512M)"},
    {"GPUSHARE_MEMORY_SOFT_LIMIT", is_size, "a size (16G, 512M)"},
    {"GPUSHARE_EXPECTED_MEMORY", is_size, "a size (16G, 512M)"},
    {"GPUSHARE_CLASS", is_class, CLASS_NAMES},
    {"GPUSHARE_NAME", is_name, "at most 31 printable characters of ASCII"},
    {"GPUSHARE_SOCKET", is_socket, "a path of at most 107 bytes"},
    {"GPUSHARE_MEMORY", is_memory, "managed, swap or off"},
    {"GPUSHARE_REQUIRED", is_bool, "0 or 1"},
    {"GPUSHARE_PREEMPT", is_preempt, "auto or off"},
    {"GPUSHARE_CARRY", is_bool, "0 or 1"},
    {"GPUSHARE_EMPTY_CACHE", is_bool, "0 or 1"},
    {"GPUSHARE_SINGLE_OVERSUBSCRIBE", is_bool, "0 or 1"},
    {"GPUSHARE_LOG", is_log_level, "error, warn, info or debug"},
    {"GPUSHARE_GANG", NULL, NULL},
    {"GPUSHARE_LIB", NULL, NULL},
    {"GPUSHARE_SSH", NULL, NULL},
    {"GPUSHARE_SSH_TIMEOUT", is_duration, "a duration (15, 2m)"},
    {"GPUSHARE_JOB_INDEX", NULL, NULL},
    {"GPUSHARE_JOB_COUNT", NULL, NULL},
    {"GPUSHARE_NVML", NULL, NULL},
    {"GPUSHARE_HOST_ROOT", NULL, NULL},
};
#define VARIABLES (sizeof variables / sizeof *variables)

const char *variable_complaint(const char *name, const char *text) {
  for (size_t i = 0; i < VARIABLES; i++)
    if (strcmp(variables[i].name, name) == 0)
      return variables[i].is_right && !variables[i].is_right(text) ? variables[i].allowed : NULL;
  return NULL;
}

/* ---- names that are like others ---- */

bool variable_is_unknown(const char *assignment) {
  size_t length = strcspn(assignment, "=");
  if (strncmp(assignment, PREFIX, PREFIX_SIZE) != 0)
    return false;
  for (size_t i = 0; i < VARIABLES; i++)
    if (strlen(variables[i].name) == length && strncmp(variables[i].name, assignment, length) == 0)
      return false;
  return true;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Of those of which a third of the characters is wrong, or which begin as it does, or it as they: the
 * nearest. */
const char *variable_like(const char *assignment) {
  const char *name = assignment + PREFIX_SIZE, *best = NULL;
  size_t length = strcspn(name, "=");
  unsigned nearest = UINT_MAX;
  if (length < 3 || length > SPELLING_MOST)
    return NULL;
  for (size_t i = 0; i < VARIABLES; i++) {
    const char *known = variables[i].name + PREFIX_SIZE;
    size_t known_length = strlen(known);
    unsigned differ = spelling_distance(known, known_length, name, length);
    bool begins = strncmp(known, name, least(length, known_length)) == 0;
    if ((begins || differ <= length / 3) && differ < nearest) {
      nearest = differ;
      best = variables[i].name;
    }
  }
  return best;
}
