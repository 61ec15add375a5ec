/* parse.h - text to values, strictly: the whole text must be the value. No allocation. */
#ifndef GS_PARSE_H
#define GS_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpushare/protocol.h"

/* "20", "0.5", "20s", "1ms", "250us", "1h", "2m", "7d" -> ns; a bare number is seconds. 0, -EINVAL or
 * -ERANGE. */
int parse_duration_ns(const char *text, uint64_t *ns);

/* "4096", "16G", "16GiB", "512M", "1.5G" -> bytes; units are powers of 1024. 0, -EINVAL or -ERANGE. */
int parse_bytes(const char *text, uint64_t *bytes);

/* "1", "0", "yes", "no", "true", "false", "on", "off". 0 or -EINVAL. */
int parse_bool(const char *text, bool *value);

/* Digits, with a sign only where there are numbers below zero. 0 or -EINVAL. */
int parse_integer(const char *text, int64_t least, int64_t most, int64_t *value);

/* "20%" -> 20; digits and the sign. 0 or -EINVAL. */
int parse_percent(const char *text, uint32_t least, uint32_t most, uint32_t *percent);

/* "auto" -> 0; otherwise a duration from GS_TQ_MIN_NS to GS_TQ_MAX_NS. 0, -EINVAL or -ERANGE. */
int parse_tq_ns(const char *text, uint64_t *ns);
#define TQ_RANGE "1ms to 24h"

/* "1" to "10000"; "-20" to "20". 0 or -EINVAL. */
int parse_weight(const char *text, uint32_t *weight);
int parse_priority(const char *text, int32_t *priority);
#define WEIGHT_RANGE "1 to 10000"
#define PRIORITY_RANGE "-20 to 20"
#define RATE_RANGE "1% to 100%"

/* "standard", "production", "opportunistic". 0 or -EINVAL. */
int parse_class(const char *text, enum gs_class *class);
const char *class_name(unsigned class);
#define CLASS_NAMES "standard, production or opportunistic"

/* "auto", "on", "off". 0 or -EINVAL. */
int parse_mode(const char *text, enum gs_mode *mode);
const char *mode_name(unsigned mode);

/* "rr", "fair", "fifo", "srtf", "priority", "pack". 0 or -EINVAL. */
int parse_policy(const char *text, enum gs_policy *policy);
const char *policy_name(unsigned policy);
#define POLICY_NAMES "rr, fair, fifo, srtf, priority or pack"

/* "managed", "swap", "off". 0 or -EINVAL. */
int parse_memory(const char *text, enum gs_memory *memory);

/* "none", "mps". 0 or -EINVAL. */
int parse_spatial(const char *text, enum gs_spatial *spatial);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", with or without its prefix. 0 or -EINVAL. */
int parse_uuid(const char *text, uint8_t uuid[GS_UUID_SIZE]);
#define GS_UUID_TEXT_SIZE 41
void format_uuid(const uint8_t uuid[GS_UUID_SIZE], char text[GS_UUID_TEXT_SIZE]);

/* No GPU has it: in messages and settings it stands for all GPUs, or for none. */
bool uuid_is_zero(const uint8_t uuid[GS_UUID_SIZE]);

#endif
