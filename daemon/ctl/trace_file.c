/* trace_file.c - a file in the Trace Event Format. */
#include "ctl/trace_file.h"

#include "ctl/json_put.h"

static double microseconds(const struct trace_file *file, uint64_t at_ns) {
  return at_ns > file->origin_ns ? (double)(at_ns - file->origin_ns) / 1000 : 0;
}

static json_t *entry(const char *phase, const char *name, uint32_t gpu, uint64_t thread) {
  json_t *object = json_object();
  json_put_text(object, "ph", phase);
  json_put_text(object, "name", name);
  json_put_number(object, "pid", gpu + UINT64_C(1));
  json_put_number(object, "tid", thread);
  return object;
}

/* The end of the object. args NULL: it has none. */
static void write_entry(struct trace_file *file, json_t *object, json_t *args) {
  if (args)
    json_object_set_new(object, "args", args);
  fputs(file->entries++ ? ",\n" : "\n", file->out);
  if (json_dumpf(object, file->out, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0 && !ferror(file->out))
    file->failed = true;
  json_decref(object);
}

static void write_at(struct trace_file *file, json_t *object, uint64_t at_ns, json_t *args) {
  json_object_set_new(object, "ts", json_real(microseconds(file, at_ns)));
  write_entry(file, object, args);
}

void trace_file_slice(struct trace_file *file, struct trace_lane *lane, const char *name, uint64_t from_ns,
                      uint64_t to_ns, json_t *args) {
  from_ns = from_ns > lane->end_ns ? from_ns : lane->end_ns;
  from_ns = from_ns > file->origin_ns ? from_ns : file->origin_ns;
  to_ns = to_ns > from_ns ? to_ns : from_ns;
  lane->end_ns = to_ns;
  json_t *object = entry("X", name, lane->gpu, lane->thread);
  json_object_set_new(object, "dur", json_real((double)(to_ns - from_ns) / 1000));
  write_at(file, object, from_ns, args);
}

void trace_file_instant(struct trace_file *file, uint32_t gpu, uint64_t thread, const char *name,
                        uint64_t at_ns, json_t *args) {
  json_t *object = entry("i", name, gpu, thread);
  json_put_text(object, "s", "t");
  write_at(file, object, at_ns, args);
}

void trace_file_counter(struct trace_file *file, uint32_t gpu, const char *name, uint64_t at_ns,
                        const char *key, double value) {
  json_t *args = json_object();
  json_object_set_new(args, key, json_real(value));
  write_at(file, entry("C", name, gpu, 0), at_ns, args);
}

void trace_file_name(struct trace_file *file, uint32_t gpu, uint64_t thread, const char *what,
                     const char *name) {
  json_t *args = json_object();
  json_put_text(args, "name", name);
  write_entry(file, entry("M", what, gpu, thread), args);
}

void trace_file_thread(struct trace_file *file, uint32_t gpu, uint64_t thread, const char *name) {
  json_t *args = json_object();
  json_put_number(args, "sort_index", thread);
  trace_file_name(file, gpu, thread, "thread_name", name);
  write_entry(file, entry("M", "thread_sort_index", gpu, thread), args);
}

void trace_file_begin(struct trace_file *file, FILE *out) {
  *file = (struct trace_file){.out = out, .origin_ns = UINT64_MAX};
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
}

void trace_file_end(struct trace_file *file, const char *begin) {
  fprintf(file->out, "\n],\"otherData\":{\"begin\":\"%s\"}}\n", begin);
}
