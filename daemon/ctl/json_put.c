/* json_put.c - values into JSON objects, and these to stdout. */
#include "ctl/json_put.h"

#include <stdio.h>

#include "ctl/ctl.h"
#include "gpushare/protocol.h"

void json_put_number(json_t *object, const char *key, uint64_t value) {
  json_object_set_new(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

/* null: there is none, or nobody knows. */
void json_put_known(json_t *object, const char *key, uint64_t value) {
  if (value)
    json_put_number(object, key, value);
  else
    json_object_set_new(object, key, json_null());
}

void json_put_gpu(json_t *object, const char *key, uint32_t number) {
  json_put_number(object, key, GS_GPU_CARD(number));
  if (GS_GPU_PART(number))
    json_put_number(object, "instance", GS_GPU_PART(number) - 1);
}

void json_put_text(json_t *object, const char *key, const char *text) {
  json_object_set_new(object, key, json_string(text));
}

void json_put_bool(json_t *object, const char *key, bool value) {
  json_object_set_new(object, key, json_boolean(value));
}

static int print(json_t *root, size_t flags) {
  int failed = json_dumpf(root, stdout, flags) < 0;
  if (failed && !ferror(stdout)) /* a write error is told by ctl_main.c, for all commands */
    fprintf(stderr, "gpusharectl: out of memory\n");
  printf("\n");
  json_decref(root);
  return failed ? CTL_REFUSED : CTL_OK;
}

int json_print(json_t *root) { return print(root, JSON_INDENT(2)); }

int json_print_line(json_t *root) { return print(root, JSON_COMPACT); }
