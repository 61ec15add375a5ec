/* variables.c - one table of the variables that tell a program's terms. */
#include "common/variables.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/parse.h"

static bool is_weight(const char *text) { return parse_weight(text, &(uint32_t){0}) == 0; }
static bool is_priority(const char *text) { return parse_priority(text, &(int32_t){0}) == 0; }
static bool is_class(const char *text) { return parse_class(text, &(enum gs_class){0}) == 0; }
static bool is_duration(const char *text) { return parse_duration_ns(text, &(uint64_t){0}) == 0; }
static bool is_size(const char *text) { return parse_bytes(text, &(uint64_t){0}) == 0; }

static bool is_name(const char *text) {
  size_t size = 0;
  while (text[size] >= ' ' && text[size] <= '~')
    size++;
  return !text[size] && size < GS_NAME_SIZE;
}

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
};

const char *variable_complaint(const char *name, const char *text) {
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (strcmp(variables[i].name, name) == 0)
      return variables[i].is_right(text) ? NULL : variables[i].allowed;
  return NULL;
}
