/* output.h - what a command puts out: values into JSON objects, these to stdout, and files that are whole or
 * as they were before, never in between. Without memory a value is missing. */
#ifndef GS_CTL_OUTPUT_H
#define GS_CTL_OUTPUT_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gpushare/protocol.h"

/* What is beyond the integers of JSON becomes the largest. */
void output_number(json_t *object, const char *key, uint64_t value);

/* null, if it is 0; or UINT64_MAX, or what is beyond the integers of JSON. There is none, or nobody knows. */
void output_known(json_t *object, const char *key, uint64_t value);
void output_bounded(json_t *object, const char *key, uint64_t value);

/* The card's index; and, if it is a MIG instance, which of the card, as "instance". */
void output_gpu(json_t *object, const char *key, uint32_t number);

/* Numbers without a sign, of a message: under their names there. */
struct output_field {
  const char *key;
  size_t at, size;
};
#define OUTPUT_FIELD(part, name)                                                                             \
  { #name, offsetof(struct gs_msg, part.name), sizeof((struct gs_msg *)0)->part.name }
#define OUTPUT_FIELDS(object, msg, fields)                                                                   \
  output_fields(object, msg, fields, sizeof(fields) / sizeof *(fields))
void output_fields(json_t *object, const struct gs_msg *msg, const struct output_field *fields, size_t count);

/* NULL: null. */
void output_text(json_t *object, const char *key, const char *text);
void output_bool(json_t *object, const char *key, bool value);

/* The end of the object, on several lines or in one. CTL_OK; or CTL_REFUSED, after a line on stderr: no
 * memory. (A write error is told by ctl_main.c, for all commands.) */
int output_json(json_t *root);
int output_line(json_t *root);

struct draft {
  FILE *out;
  const char *path;
  char name[PATH_MAX]; /* of what will become the file; empty: it is written as it stands */
};

/* What is not an ordinary file (/dev/stdout, a pipe, a link) is not replaced but written to. 0 or -errno. */
int draft_open(struct draft *draft, const char *path);

/* All is written: now it is the file. 0 or -errno, and the file is as it was. */
int draft_keep(struct draft *draft);

void draft_drop(struct draft *draft);

#endif
