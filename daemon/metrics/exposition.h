/*
 * exposition.h - Prometheus' text format, and OpenMetrics', which differs in few places: families of samples
 * with labels. One family after the other, each with its samples.
 *
 * https://prometheus.io/docs/instrumenting/exposition_formats/ (0.0.4) and
 * https://github.com/prometheus/OpenMetrics (1.0.0).
 */
#ifndef GS_EXPOSITION_H
#define GS_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum dialect { DIALECT_PROMETHEUS, DIALECT_OPENMETRICS, DIALECTS };

enum family_type { FAMILY_GAUGE, FAMILY_COUNTER, FAMILY_HISTOGRAM, FAMILY_INFO };

/* Values are integers: seconds in ns, ratios likewise in billionths. */
enum family_unit { UNIT_NONE, UNIT_BYTES, UNIT_BYTES_PER_SECOND, UNIT_SECONDS, UNIT_RATIO };

struct family {
  const char *name; /* with its unit at the end; without _total and _info */
  enum family_type type;
  enum family_unit unit;
  const char *help; /* one sentence, without '\' and '"' */
};

struct label {
  const char *name, *value; /* the value may be any text; what is no ASCII becomes '?' */
};

#define EXPOSITION_LABELS 4
struct exposition {
  FILE *out;
  enum dialect dialect;
  const struct family *family;
  struct label labels[EXPOSITION_LABELS]; /* that all samples have which are written now */
  size_t label_count;
};

/* Samples written from now on are of this family. */
void exposition_begin(struct exposition *exposition, const struct family *family);

/* A sample; with one label more than all have; with several, and no value (FAMILY_INFO). */
void exposition_put(const struct exposition *exposition, uint64_t value);
void exposition_put_with(const struct exposition *exposition, const char *label, const char *value_of_label,
                         uint64_t value);

void exposition_put_info(const struct exposition *exposition, const struct label *labels, size_t count);

/* The samples of a histogram: counts[i] of those up to bounds_ns[i] and beyond the bound before,
 * counts[bounds] of the rest. */
void exposition_put_histogram(const struct exposition *exposition, const uint64_t *bounds_ns,
                              const uint64_t *counts, size_t bounds, uint64_t sum_ns);

/* All families are written. */
void exposition_end(const struct exposition *exposition);

#endif
