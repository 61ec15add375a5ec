/* json_put.h - values into JSON objects, and these to stdout. Without memory a value is missing. */
#ifndef GS_CTL_JSON_PUT_H
#define GS_CTL_JSON_PUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* What is beyond the integers of JSON becomes the largest. */
void json_put_number(json_t *object, const char *key, uint64_t value);

/* 0: null. There is none, or nobody knows. */
void json_put_known(json_t *object, const char *key, uint64_t value);

/* The card's index; and, if it is a MIG instance, which of the card, as "instance". */
void json_put_gpu(json_t *object, const char *key, uint32_t number);

void json_put_text(json_t *object, const char *key, const char *text);
void json_put_bool(json_t *object, const char *key, bool value);

/* The end of it, on several lines. CTL_OK; or CTL_REFUSED, after a line on stderr: no memory. (A write error
 * is told by ctl_main.c, for all commands.) */
int json_print(json_t *root);

/* Likewise, in one line. */
int json_print_line(json_t *root);

#endif
