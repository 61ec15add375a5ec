/* words.c - see words.h. */
#include "common/words.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "common/parse.h"
#include "gpushare/protocol.h"

/* ---- amounts ---- */

const char *words_bytes(uint64_t bytes, char buffer[WORDS_SIZE]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
    value /= 1024;
  snprintf(buffer, WORDS_SIZE, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return buffer;
}

const char *words_duration(uint64_t ns, char buffer[WORDS_SIZE]) {
  double seconds = (double)ns / (double)NS_PER_S;
  if (ns < NS_PER_MS)
    snprintf(buffer, WORDS_SIZE, "%.3g us", seconds * 1e6);
  else if (ns < NS_PER_S)
    snprintf(buffer, WORDS_SIZE, "%.3g ms", seconds * 1000);
  else if (ns < 120 * NS_PER_S)
    snprintf(buffer, WORDS_SIZE, "%.3g s", seconds);
  else if (ns < 7200 * NS_PER_S)
    snprintf(buffer, WORDS_SIZE, "%.0f minutes", seconds / 60);
  else if (ns < 2 * WORDS_DAY_NS)
    snprintf(buffer, WORDS_SIZE, "%.1f hours", seconds / 3600);
  else
    snprintf(buffer, WORDS_SIZE, "%.0f days", seconds / 86400);
  return buffer;
}

static const char *number(uint64_t value, char buffer[WORDS_SIZE]) {
  snprintf(buffer, WORDS_SIZE, "%" PRId64, (int64_t)value);
  return buffer;
}

/* ---- terms of jobs ---- */

static const struct {
  const char *name, *title;
} terms[GS_TERM_COUNT] = {
    [GS_TERM_WEIGHT] = {"weight", "weight"},
    [GS_TERM_PRIORITY] = {"priority", "priority"},
    [GS_TERM_EXPECTED] = {"expected", "expected run time"},
    [GS_TERM_LIMIT] = {"limit", "memory limit"},
    [GS_TERM_SOFT_LIMIT] = {"soft_limit", "soft memory limit"},
    [GS_TERM_CLASS] = {"class", "class"},
    [GS_TERM_RATE] = {"rate", "rate"},
    [GS_TERM_PAUSED] = {"paused", "pause"},
    [GS_TERM_EXPECTED_MEMORY] = {"expected_memory", "expected memory"},
};

const char *words_term(unsigned term) { return term < GS_TERM_COUNT ? terms[term].name : "unknown"; }

const char *words_term_title(unsigned term) { return term < GS_TERM_COUNT ? terms[term].title : "unknown"; }

const char *words_of_term(unsigned term, uint64_t value) {
  return term == GS_TERM_CLASS ? class_name(value > UINT32_MAX ? UINT32_MAX : (unsigned)value) : NULL;
}

const char *words_term_value(unsigned term, uint64_t value, char buffer[WORDS_SIZE]) {
  const char *word = words_of_term(term, value);
  if (word)
    return word;
  switch (term) {
  case GS_TERM_EXPECTED:
    return value ? words_duration(value, buffer) : "unknown";
  case GS_TERM_EXPECTED_MEMORY:
    return value ? words_bytes(value, buffer) : "unknown";
  case GS_TERM_LIMIT:
  case GS_TERM_SOFT_LIMIT:
    return value ? words_bytes(value, buffer) : "none";
  case GS_TERM_RATE:
    if (value == 0)
      return "auto";
    snprintf(buffer, WORDS_SIZE, "%" PRIu64 " %%", value);
    return buffer;
  default:
    return number(value, buffer);
  }
}

/* ---- settings of GPUs ---- */

static const struct {
  unsigned type;
  const char *name, *title;
} settings[] = {
    {GS_SET_TQ, "tq", "quantum"},
    {GS_SET_MODE, "mode", "mode"},
    {GS_SET_CAPACITY, "capacity", "capacity"},
    {GS_SET_POLICY, "policy", "policy"},
};
#define SETTINGS (sizeof settings / sizeof *settings)

const char *words_setting(unsigned type) {
  for (size_t i = 0; i < SETTINGS; i++)
    if (settings[i].type == type)
      return settings[i].name;
  return "unknown";
}

const char *words_setting_title(unsigned type) {
  for (size_t i = 0; i < SETTINGS; i++)
    if (settings[i].type == type)
      return settings[i].title;
  return "unknown";
}

const char *words_of_setting(unsigned type, uint64_t value) {
  unsigned number = value > UINT32_MAX ? UINT32_MAX : (unsigned)value;
  if (type == GS_SET_MODE)
    return mode_name(number);
  return type == GS_SET_POLICY ? policy_name(number) : NULL;
}

const char *words_setting_value(unsigned type, uint64_t value, char buffer[WORDS_SIZE]) {
  const char *word = words_of_setting(type, value);
  if (word)
    return word;
  if (type == GS_SET_TQ)
    return value ? words_duration(value, buffer) : "auto";
  if (type == GS_SET_CAPACITY)
    return value ? words_bytes(value, buffer) : "all of the card";
  return number(value, buffer);
}

const char *words_end(unsigned end) {
  static const char *const words[] = {[GS_END_EXIT] = "exit",
                                      [GS_END_ABRUPT] = "abrupt",
                                      [GS_END_CLOSED] = "closed",
                                      [GS_END_EVICTED] = "evicted"};
  return end < sizeof words / sizeof *words ? words[end] : "unknown";
}

const char *words_refusal(unsigned why) {
  static const char *const words[] = {
      [GS_REFUSAL_UNKNOWN] = "",
      [GS_REFUSAL_LIMIT] = "its memory limit is less",
      [GS_REFUSAL_CAPACITY] = "without page faults all must fit the GPU, beside what others have pinned",
      [GS_REFUSAL_PINNED] = "it can't leave the card, and others' pinned memory neither",
      [GS_REFUSAL_SPENT] = "card and host memory are spent",
      [GS_REFUSAL_OTHERS] =
          "it can't leave the card, and a job that has memory there could not run beside it",
  };
  return why < sizeof words / sizeof *words ? words[why] : "";
}

/* ---- memory that can't leave the card ---- */

const char *words_pinned_name(enum gs_pinned kind) {
  static const char *const names[] = {
#define X(name, value, word) [value] = (word),
      GS_PINNED_KINDS(X)
#undef X
  };
  return names[kind];
}

struct words_pinned words_pinned(enum gs_pinned kind) {
  static const struct words_pinned words[GS_PINNED_COUNT] = {
      [GS_PINNED_OTHER] = {"other memory", "it stays until it is freed"},
      [GS_PINNED_PLAIN] = {"plain allocations", "with GPUSHARE_MEMORY=swap or managed they can leave"},
      [GS_PINNED_SMALL] = {"small allocations", "they stay until they are freed: 64 MiB at most"},
      [GS_PINNED_ARRAYS] = {"arrays", "they stay until they are destroyed; linear memory can leave"},
      [GS_PINNED_GRAPHS] = {"memory of graphs", "cuDeviceGraphMemTrim gives back what no graph uses; memory "
                                                "allocated outside of graphs can leave"},
      [GS_PINNED_POOLS] = {"stream-ordered memory", "it can leave unless GPUSHARE_MEMORY is off, or its pool "
                                                    "is one for export"},
      [GS_PINNED_SHARED] = {"exported memory", "it can leave if no other process or device is given it"},
  };
  return words[kind];
}
