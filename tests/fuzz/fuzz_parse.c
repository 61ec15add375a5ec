/* fuzz_parse.c - bytes as each kind of value that a text may have. See fuzz_text.h. */
#include "common/clock.h"
#include "common/parse.h"
#include "fuzz_files.h"

static const char *const words[] = {"1",          "0",     "9",          "18446744073709551615",
                                    "4294967296", ".",     "-",          "%",
                                    "s",          "ms",    "h",          "K",
                                    "GiB",        "T",     "B",          "auto",
                                    "fair",       "on",    "GPU-",       "MIG-",
                                    "deadbeef-",  "0000-", "production", "managed",
                                    " "};

static void check_uuid(const char *text) {
  uint8_t uuid[GS_UUID_SIZE], again[GS_UUID_SIZE];
  char formatted[GS_UUID_TEXT_SIZE];
  if (parse_uuid(text, uuid) < 0)
    return;
  format_uuid(uuid, formatted);
  fuzz_require(parse_uuid(formatted, again) == 0 && memcmp(uuid, again, sizeof uuid) == 0,
               "a UUID is not what it was");
}

static void check_numbers(const char *text) {
  uint64_t number;
  uint32_t percent, weight;
  int32_t priority;
  int64_t integer;
  parse_duration_ns(text, &number);
  parse_bytes(text, &number);
  if (parse_tq_ns(text, &number) == 0)
    fuzz_require(number == 0 || (number >= GS_TQ_MIN_NS && number <= GS_TQ_MAX_NS), "an impossible quantum");
  if (parse_percent(text, 3, 70, &percent) == 0)
    fuzz_require(percent >= 3 && percent <= 70, "an impossible percentage");
  if (parse_weight(text, &weight) == 0)
    fuzz_require(weight >= 1 && weight <= GS_WEIGHT_MAX, "an impossible weight");
  if (parse_priority(text, &priority) == 0)
    fuzz_require(priority >= -GS_PRIORITY_MAX && priority <= GS_PRIORITY_MAX, "an impossible priority");
  if (parse_integer(text, INT64_MIN, INT64_MAX, &integer) == 0 && parse_integer(text, -5, 5, &integer) == 0)
    fuzz_require(integer >= -5 && integer <= 5, "an impossible number");
}

static void check_names(const char *text) {
  enum gs_mode mode;
  enum gs_policy policy;
  enum gs_class class;
  enum gs_memory memory;
  enum gs_spatial spatial;
  bool value;
  fuzz_require(parse_mode(text, &mode) < 0 || strcmp(mode_name(mode), text) == 0, "another mode");
  fuzz_require(parse_policy(text, &policy) < 0 || strcmp(policy_name(policy), text) == 0, "another policy");
  fuzz_require(parse_class(text, &class) < 0 || strcmp(class_name(class), text) == 0, "another class");
  parse_memory(text, &memory);
  parse_spatial(text, &spatial);
  parse_bool(text, &value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *copy = fuzz_text_of(data, size);
  check_uuid(copy);
  check_numbers(copy);
  check_names(copy);
  free(copy);
  return 0;
}

#include "fuzz_text.h"
