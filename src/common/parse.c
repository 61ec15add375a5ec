/* parse.c - text to values, strictly. */
#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "common/clock.h"

struct unit {
  const char *name;
  uint64_t factor;
};

static const struct unit duration_units[] = {
    {"", NS_PER_S},
    {"s", NS_PER_S},
    {"ms", NS_PER_MS},
    {"us", 1000},
    {"ns", 1},
    {"m", 60 * NS_PER_S},
    {"min", 60 * NS_PER_S},
    {"h", 3600 * NS_PER_S},
    {"d", 24 * 3600 * NS_PER_S},
    {NULL, 0},
};

#define KIB UINT64_C(1024)
static const struct unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"K", KIB},
    {"KiB", KIB},
    {"M", KIB *KIB},
    {"MiB", KIB *KIB},
    {"G", KIB *KIB *KIB},
    {"GiB", KIB *KIB *KIB},
    {"T", KIB *KIB *KIB *KIB},
    {"TiB", KIB *KIB *KIB *KIB},
    {NULL, 0},
};

static const char *digits(const char *text, uint64_t *value, uint64_t *scale, bool *overflow) {
  for (; *text >= '0' && *text <= '9'; text++) {
    *overflow |= __builtin_mul_overflow(*value, UINT64_C(10), value);
    *overflow |= __builtin_add_overflow(*value, (uint64_t)(*text - '0'), value);
    if (scale)
      *scale *= 10;
  }
  return text;
}

/* DIGITS [. up to nine DIGITS] UNIT */
static int parse_quantity(const char *text, const struct unit *units, uint64_t *result) {
  uint64_t whole = 0, fraction = 0, scale = 1;
  bool overflow = false;
  const char *end = digits(text, &whole, NULL, &overflow);
  if (end == text)
    return -EINVAL;
  if (*end == '.') {
    const char *start = end + 1;
    end = digits(start, &fraction, &scale, &overflow);
    if (end == start || end - start > 9)
      return -EINVAL;
  }
  for (; units->name; units++) {
    if (strcmp(units->name, end) != 0)
      continue;
    uint64_t value;
    overflow |= __builtin_mul_overflow(whole, units->factor, &value);
    uint64_t part = (uint64_t)((unsigned __int128)fraction * units->factor / scale);
    overflow |= __builtin_add_overflow(value, part, &value);
    if (overflow)
      return -ERANGE;
    *result = value;
    return 0;
  }
  return -EINVAL;
}

int parse_duration_ns(const char *text, uint64_t *ns) { return parse_quantity(text, duration_units, ns); }

int parse_bytes(const char *text, uint64_t *bytes) { return parse_quantity(text, byte_units, bytes); }

int parse_integer(const char *text, int64_t least, int64_t most, int64_t *result) {
  bool negative = least < 0 && *text == '-', overflow = false;
  uint64_t value = 0;
  const char *first = text + negative, *end = digits(first, &value, NULL, &overflow);
  uint64_t bound = negative ? 0 - (uint64_t)least : (uint64_t)most;
  if (end == first || *end || overflow || value > bound)
    return -EINVAL;
  int64_t signed_value = (int64_t)(negative ? 0 - value : value);
  if (signed_value < least)
    return -EINVAL;
  *result = signed_value;
  return 0;
}

int parse_percent(const char *text, uint32_t least, uint32_t most, uint32_t *percent) {
  uint64_t value = 0;
  bool overflow = false;
  const char *end = digits(text, &value, NULL, &overflow);
  if (end == text || strcmp(end, "%") != 0 || overflow || value < least || value > most)
    return -EINVAL;
  *percent = (uint32_t)value;
  return 0;
}

int parse_tq_ns(const char *text, uint64_t *ns) {
  uint64_t value = 0;
  bool found = strcmp(text, "auto") == 0;
  int err = found ? 0 : parse_duration_ns(text, &value);
  if (err == 0 && !found && (value < GS_TQ_MIN_NS || value > GS_TQ_MAX_NS))
    err = -ERANGE;
  if (err == 0)
    *ns = value;
  return err;
}

int parse_weight(const char *text, uint32_t *weight) {
  int64_t value;
  int err = parse_integer(text, 1, GS_WEIGHT_MAX, &value);
  if (err == 0)
    *weight = (uint32_t)value;
  return err;
}

int parse_priority(const char *text, int32_t *priority) {
  int64_t value;
  int err = parse_integer(text, -GS_PRIORITY_MAX, GS_PRIORITY_MAX, &value);
  if (err == 0)
    *priority = (int32_t)value;
  return err;
}

int parse_bool(const char *text, bool *value) {
  static const char *const words[] = {"0", "1", "no", "yes", "false", "true", "off", "on"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(text, words[i]) == 0) {
      *value = i % 2;
      return 0;
    }
  return -EINVAL;
}

/* ---- names of values ---- */

#define NAME_COUNT(names) (sizeof(names) / sizeof *(names))

static const char *const mode_names[] = {[GS_MODE_AUTO] = "auto", [GS_MODE_ON] = "on", [GS_MODE_OFF] = "off"};
static const char *const policy_names[] = {
    [GS_POLICY_RR] = "rr",     [GS_POLICY_FAIR] = "fair",         [GS_POLICY_FIFO] = "fifo",
    [GS_POLICY_SRTF] = "srtf", [GS_POLICY_PRIORITY] = "priority", [GS_POLICY_PACK] = "pack"};
static const char *const class_names[] = {[GS_CLASS_STANDARD] = "standard",
                                          [GS_CLASS_PRODUCTION] = "production",
                                          [GS_CLASS_OPPORTUNISTIC] = "opportunistic"};
static const char *const memory_names[] = {
    [GS_MEMORY_MANAGED] = "managed", [GS_MEMORY_SWAP] = "swap", [GS_MEMORY_OFF] = "off"};

static const char *const spatial_names[] = {[GS_SPATIAL_NONE] = "none", [GS_SPATIAL_MPS] = "mps"};

/* The index, or -EINVAL. */
static int find_name(const char *text, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(text, names[i]) == 0)
      return (int)i;
  return -EINVAL;
}

int parse_mode(const char *text, enum gs_mode *mode) {
  int index = find_name(text, mode_names, NAME_COUNT(mode_names));
  if (index < 0)
    return index;
  *mode = (enum gs_mode)index;
  return 0;
}

const char *mode_name(unsigned mode) { return mode < NAME_COUNT(mode_names) ? mode_names[mode] : "?"; }

int parse_policy(const char *text, enum gs_policy *policy) {
  int index = find_name(text, policy_names, NAME_COUNT(policy_names));
  if (index < 0)
    return index;
  *policy = (enum gs_policy)index;
  return 0;
}

const char *policy_name(unsigned policy) {
  return policy < NAME_COUNT(policy_names) ? policy_names[policy] : "?";
}

int parse_class(const char *text, enum gs_class *class) {
  int index = find_name(text, class_names, NAME_COUNT(class_names));
  if (index < 0)
    return index;
  *class = (enum gs_class)index;
  return 0;
}

const char *class_name(unsigned class) { return class < NAME_COUNT(class_names) ? class_names[class] : "?"; }

int parse_memory(const char *text, enum gs_memory *memory) {
  int index = find_name(text, memory_names, NAME_COUNT(memory_names));
  if (index < 0)
    return index;
  *memory = (enum gs_memory)index;
  return 0;
}

int parse_spatial(const char *text, enum gs_spatial *spatial) {
  int index = find_name(text, spatial_names, NAME_COUNT(spatial_names));
  if (index < 0)
    return index;
  *spatial = (enum gs_spatial)index;
  return 0;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

static bool dash_follows(int byte) { return byte == 3 || byte == 5 || byte == 7 || byte == 9; }

int parse_uuid(const char *text, uint8_t uuid[GS_UUID_SIZE]) {
  uint8_t parsed[GS_UUID_SIZE];
  if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
    text += 4;
  for (int i = 0; i < GS_UUID_SIZE; i++) {
    int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);
    if (low < 0)
      return -EINVAL;
    parsed[i] = (uint8_t)(high << 4 | low);
    text += 2;
    if (dash_follows(i) && *text++ != '-')
      return -EINVAL;
  }
  if (*text)
    return -EINVAL;
  memcpy(uuid, parsed, sizeof parsed);
  return 0;
}

void format_uuid(const uint8_t uuid[GS_UUID_SIZE], char text[GS_UUID_TEXT_SIZE]) {
  static const char hex[] = "0123456789abcdef";
  memcpy(text, "GPU-", 4);
  text += 4;
  for (int i = 0; i < GS_UUID_SIZE; i++) {
    *text++ = hex[uuid[i] >> 4];
    *text++ = hex[uuid[i] & 15];
    if (dash_follows(i))
      *text++ = '-';
  }
  *text = '\0';
}

bool uuid_is_zero(const uint8_t uuid[GS_UUID_SIZE]) {
  static const uint8_t zero[GS_UUID_SIZE];
  return memcmp(uuid, zero, sizeof zero) == 0;
}
