/* exposition.c - Prometheus' text format, and OpenMetrics'. */
#include "metrics/exposition.h"

#include <inttypes.h>

#define NS_DIGITS 9

static const char *const types[] = {
    [FAMILY_GAUGE] = "gauge", [FAMILY_COUNTER] = "counter", [FAMILY_HISTOGRAM] = "histogram"};
static const char *const units[] = {[UNIT_BYTES] = "bytes",
                                    [UNIT_BYTES_PER_SECOND] = "bytes_per_second",
                                    [UNIT_SECONDS] = "seconds",
                                    [UNIT_RATIO] = "ratio"};

/* What a sample's name has beyond the family's. */
static const char *suffix_of(const struct family *family) {
  return family->type == FAMILY_COUNTER ? "_total" : family->type == FAMILY_INFO ? "_info" : "";
}

static const char *type_of(const struct exposition *exposition) {
  if (exposition->family->type != FAMILY_INFO)
    return types[exposition->family->type];
  return exposition->dialect == DIALECT_OPENMETRICS ? "info" : "gauge";
}

static void begin_line(const struct exposition *exposition, const char *what) {
  const struct family *family = exposition->family;
  bool suffix = exposition->dialect == DIALECT_PROMETHEUS; /* there, a family is called as its samples are */
  fprintf(exposition->out, "# %s %s%s ", what, family->name, suffix ? suffix_of(family) : "");
}

void exposition_begin(struct exposition *exposition, const struct family *family) {
  exposition->family = family;
  begin_line(exposition, "HELP");
  fprintf(exposition->out, "%s\n", family->help);
  begin_line(exposition, "TYPE");
  fprintf(exposition->out, "%s\n", type_of(exposition));
  if (exposition->dialect != DIALECT_OPENMETRICS || family->unit == UNIT_NONE)
    return;
  begin_line(exposition, "UNIT");
  fprintf(exposition->out, "%s\n", units[family->unit]);
}

static void put_character(FILE *out, char c) {
  if (c == '\\' || c == '"' || c == '\n')
    putc_unlocked('\\', out);
  if (c == '\n')
    putc_unlocked('n', out);
  else
    putc_unlocked(c >= ' ' && c <= '~' ? c : '?', out);
}

static void put_label(FILE *out, const struct label *label, char before) {
  putc_unlocked(before, out);
  fputs_unlocked(label->name, out);
  fputs_unlocked("=\"", out);
  for (const char *c = label->value; *c; c++)
    put_character(out, *c);
  putc_unlocked('"', out);
}

static void put_labels(const struct exposition *exposition, const struct label *more, size_t count) {
  size_t own = exposition->label_count;
  for (size_t i = 0; i < own + count; i++)
    put_label(exposition->out, i < own ? &exposition->labels[i] : &more[i - own], i ? ',' : '{');
  if (own + count > 0)
    putc_unlocked('}', exposition->out);
}

/* Without the zeros at the end, so that 1.5 is 1.5. */
static void format_ns(char text[32], uint64_t ns) {
  int digits = NS_DIGITS;
  uint64_t fraction = ns % 1000000000;
  for (; digits > 1 && fraction % 10 == 0; digits--)
    fraction /= 10;
  snprintf(text, 32, "%" PRIu64 ".%0*" PRIu64, ns / 1000000000, digits, fraction);
}

/* The most frequent of all lines: so without fprintf, which takes as long as all else together. */
static void put_line(const struct exposition *exposition, const char *suffix, const struct label *more,
                     size_t more_count, const char *value) {
  FILE *out = exposition->out;
  fputs_unlocked(exposition->family->name, out);
  fputs_unlocked(suffix, out);
  put_labels(exposition, more, more_count);
  putc_unlocked(' ', out);
  fputs_unlocked(value, out);
  putc_unlocked('\n', out);
}

static void put_sample(const struct exposition *exposition, const char *suffix, const struct label *more,
                       size_t more_count, uint64_t value) {
  enum family_unit unit = exposition->family->unit;
  char text[32];
  if (unit == UNIT_SECONDS || unit == UNIT_RATIO)
    format_ns(text, value);
  else
    snprintf(text, sizeof text, "%" PRIu64, value);
  put_line(exposition, suffix, more, more_count, text);
}

void exposition_put(const struct exposition *exposition, uint64_t value) {
  put_sample(exposition, suffix_of(exposition->family), NULL, 0, value);
}

void exposition_put_with(const struct exposition *exposition, const char *label, const char *value_of_label,
                         uint64_t value) {
  put_sample(exposition, suffix_of(exposition->family), &(struct label){label, value_of_label}, 1, value);
}

void exposition_put_info(const struct exposition *exposition, const struct label *labels, size_t count) {
  put_sample(exposition, suffix_of(exposition->family), labels, count, 1);
}

/* How many there are, whatever the family's unit. */
static void put_count(const struct exposition *exposition, const char *suffix, const char *bound,
                      uint64_t count) {
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, count);
  put_line(exposition, suffix, &(struct label){"le", bound}, bound ? 1 : 0, text);
}

void exposition_put_histogram(const struct exposition *exposition, const uint64_t *bounds_ns,
                              const uint64_t *counts, size_t bounds, uint64_t sum_ns) {
  uint64_t count = 0;
  for (size_t i = 0; i <= bounds; i++) {
    char bound[32] = "+Inf";
    count += counts[i];
    if (i < bounds)
      format_ns(bound, bounds_ns[i]);
    put_count(exposition, "_bucket", bound, count);
  }
  put_sample(exposition, "_sum", NULL, 0, sum_ns);
  put_count(exposition, "_count", NULL, count);
}

void exposition_end(const struct exposition *exposition) {
  if (exposition->dialect == DIALECT_OPENMETRICS)
    fputs("# EOF\n", exposition->out);
}
