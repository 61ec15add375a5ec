/* output.c - values into JSON objects, these to stdout, and files that are whole. */
#include "ctl/output.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/ctl.h"

/* ---- JSON ---- */

void output_number(json_t *object, const char *key, uint64_t value) {
  json_object_set_new(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

void output_known(json_t *object, const char *key, uint64_t value) {
  if (value)
    output_number(object, key, value);
  else
    output_text(object, key, NULL);
}

void output_bounded(json_t *object, const char *key, uint64_t value) {
  json_object_set_new(object, key, value > INT64_MAX ? json_null() : json_integer((json_int_t)value));
}

void output_gpu(json_t *object, const char *key, uint32_t number) {
  output_number(object, key, GS_GPU_CARD(number));
  if (GS_GPU_PART(number))
    output_number(object, "instance", GS_GPU_PART(number) - 1);
}

void output_fields(json_t *object, const struct gs_msg *msg, const struct output_field *fields,
                   size_t count) {
  for (size_t i = 0; i < count; i++) {
    const char *at = (const char *)msg + fields[i].at;
    uint64_t value = fields[i].size == sizeof(uint64_t)   ? *(const uint64_t *)(const void *)at
                     : fields[i].size == sizeof(uint32_t) ? *(const uint32_t *)(const void *)at
                                                          : *(const uint16_t *)(const void *)at;
    output_number(object, fields[i].key, value);
  }
}

void output_text(json_t *object, const char *key, const char *text) {
  json_object_set_new(object, key, text ? json_string(text) : json_null());
}

void output_bool(json_t *object, const char *key, bool value) {
  json_object_set_new(object, key, json_boolean(value));
}

static int print(json_t *root, size_t flags) {
  int failed = json_dumpf(root, stdout, flags) < 0;
  if (failed && !ferror(stdout))
    fprintf(stderr, "gpusharectl: out of memory\n");
  printf("\n");
  json_decref(root);
  return failed ? CTL_REFUSED : CTL_OK;
}

int output_json(json_t *root) { return print(root, JSON_INDENT(2)); }

int output_line(json_t *root) { return print(root, JSON_COMPACT); }

/* ---- files ---- */

static int negative_errno(void) { return errno ? -errno : -EIO; }

int draft_open(struct draft *draft, const char *path) {
  struct stat there;
  draft->path = path;
  draft->name[0] = '\0';
  if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
    draft->out = fopen(path, "w");
    return draft->out ? 0 : negative_errno();
  }
  if ((size_t)snprintf(draft->name, sizeof draft->name, "%s.XXXXXX", path) >= sizeof draft->name)
    return -ENAMETOOLONG;
  int fd = mkstemp(draft->name);
  if (fd < 0)
    return negative_errno();
  draft->out = fdopen(fd, "w");
  if (draft->out)
    return 0;
  close(fd);
  unlink(draft->name);
  return -ENOMEM;
}

int draft_keep(struct draft *draft) {
  errno = 0;
  bool written = !ferror(draft->out) && (!*draft->name || fchmod(fileno(draft->out), 0644) == 0);
  written &= fclose(draft->out) == 0;
  if (written && (!*draft->name || rename(draft->name, draft->path) == 0))
    return 0;
  int err = negative_errno();
  if (*draft->name)
    unlink(draft->name);
  return err;
}

void draft_drop(struct draft *draft) {
  fclose(draft->out);
  if (*draft->name)
    unlink(draft->name);
}
