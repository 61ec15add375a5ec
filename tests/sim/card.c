/* card.c - reads card descriptions: presets built in from cards/, files, and overrides in the environment. */
#include "card.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SIZE = 256, SPEC_SIZE = 1024 };

static const struct {
  const char *name, *text;
} presets[] = {
#include "presets.inc"
};

enum field_kind { FIELD_TEXT, FIELD_COUNT, FIELD_REAL };

#define COUNT_FIELD(name)                                                                                    \
  { #name, FIELD_COUNT, offsetof(struct card, name) }
#define REAL_FIELD(name)                                                                                     \
  { #name, FIELD_REAL, offsetof(struct card, name) }

static const struct field {
  const char *key;
  enum field_kind kind;
  size_t offset;
} fields[] = {{"name", FIELD_TEXT, offsetof(struct card, name)},
              {"capacity", FIELD_COUNT, offsetof(struct card, capacity_bytes)},
              COUNT_FIELD(gpus),
              COUNT_FIELD(driver_version),
              COUNT_FIELD(stop_status),
              COUNT_FIELD(stop_ignored),
              COUNT_FIELD(stop_older),
              COUNT_FIELD(stop_ns),
              COUNT_FIELD(discard_status),
              COUNT_FIELD(discard_loses),
              COUNT_FIELD(processor_copies),
              COUNT_FIELD(contexts_most),
              COUNT_FIELD(fault_ends),
              COUNT_FIELD(fault_told),
              COUNT_FIELD(compute_capability),
              COUNT_FIELD(multiprocessors),
              COUNT_FIELD(concurrent_managed_access),
              REAL_FIELD(scale),
              REAL_FIELD(copy_in_pinned_gbps),
              REAL_FIELD(copy_out_pinned_gbps),
              REAL_FIELD(copy_in_pageable_gbps),
              REAL_FIELD(copy_out_pageable_gbps),
              REAL_FIELD(prefetch_in_gbps),
              REAL_FIELD(prefetch_out_gbps),
              REAL_FIELD(fault_gbps),
              REAL_FIELD(first_touch_gbps),
              REAL_FIELD(evict_gbps),
              REAL_FIELD(remote_gbps),
              REAL_FIELD(memory_gbps),
              COUNT_FIELD(kernel_launch_ns),
              COUNT_FIELD(slice_ns)};

static uint64_t unit_of(const char *text) {
  static const struct {
    const char *name;
    uint64_t factor;
  } units[] = {{"", 1},   {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
               {"ns", 1}, {"us", 1000},     {"ms", 1000000}};
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
    if (strcmp(text, units[i].name) == 0)
      return units[i].factor;
  return 0;
}

static int field_set(struct card *card, const struct field *field, const char *value) {
  char *end = NULL;
  double number = strtod(value, &end);
  void *at = (char *)card + field->offset;
  if (field->kind == FIELD_TEXT) {
    snprintf(at, CARD_NAME_SIZE, "%s", value);
    return 0;
  }
  while (*end == ' ')
    end++;
  uint64_t unit = unit_of(end);
  if (end == value || unit == 0 || number < 0)
    return -EINVAL;
  if (field->kind == FIELD_REAL)
    *(double *)at = number;
  else
    *(uint64_t *)at = (uint64_t)(number * (double)unit);
  return 0;
}

static char *trim(char *text) {
  text += strspn(text, " \t");
  size_t length = strlen(text);
  while (length > 0 && strchr(" \t\r\n", text[length - 1]))
    text[--length] = '\0';
  return text;
}

/* One `key = value`; empty lines and comments are fine. */
static int line_apply(struct card *card, char *line) {
  char *comment = strchr(line, '#'), *equals;
  if (comment)
    *comment = '\0';
  line = trim(line);
  if (*line == '\0')
    return 0;
  equals = strchr(line, '=');
  if (equals == NULL)
    return -EINVAL;
  *equals = '\0';
  const char *key = trim(line), *value = trim(equals + 1);
  for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
    if (strcmp(key, fields[i].key) == 0)
      return field_set(card, &fields[i], value);
  return -EINVAL;
}

static int complain(int error, const char *what, const char *line) {
  fprintf(stderr, "simulated driver: card '%s': %s: %s\n", what, strerror(-error), line);
  return error;
}

/* Lines separated by `separator`. */
static int text_apply(struct card *card, const char *text, char separator, const char *what) {
  char line[LINE_SIZE];
  while (*text) {
    const char *end = strchr(text, separator);
    size_t length = end ? (size_t)(end - text) : strlen(text);
    snprintf(line, sizeof(line), "%.*s", (int)length, text);
    if (line_apply(card, line) != 0)
      return complain(-EINVAL, what, line);
    text += length + (end != NULL);
  }
  return 0;
}

static int file_apply(struct card *card, const char *path) {
  char line[LINE_SIZE];
  int result = 0;
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return complain(-errno, path, "cannot open");
  while (result == 0 && fgets(line, sizeof(line), file))
    if (line_apply(card, line) != 0)
      result = complain(-EINVAL, path, line);
  fclose(file);
  return result;
}

static int base_apply(struct card *card, const char *name) {
  for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
    if (strcmp(name, presets[i].name) == 0)
      return text_apply(card, presets[i].text, '\n', name);
  return file_apply(card, name);
}

int card_load(struct card *card, const char *spec) {
  char name[SPEC_SIZE];
  memset(card, 0, sizeof(*card));
  snprintf(name, sizeof(name), "%s", spec && *spec ? spec : "small");
  char *overrides = strchr(name, ',');
  if (overrides)
    *overrides++ = '\0';
  int result = base_apply(card, name);
  if (result == 0 && overrides)
    result = text_apply(card, overrides, ',', "overrides");
  if (result == 0 && (card->gpus == 0 || card->gpus > 8 || card->capacity_bytes == 0))
    result = complain(-EINVAL, name, "needs 1 to 8 gpus and a capacity");
  return result;
}

uint64_t card_scaled_ns(const struct card *card, uint64_t ns) { return (uint64_t)((double)ns * card->scale); }

uint64_t card_cost_ns(const struct card *card, uint64_t bytes, double gbps) {
  return gbps > 0 ? (uint64_t)((double)bytes / gbps * card->scale) : 0;
}
