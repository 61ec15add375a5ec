/* report.c - gpusharectl report: what users, jobs, GPUs and classes have had of the GPUs, by the daemon's
 * accounts. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "ctl/event.h"
#include "ctl/figures.h"

enum by { BY_USER, BY_JOB, BY_GPU, BY_CLASS };
static const char *const bys[] = {"user", "job", "gpu", "class"};
#define BYS (sizeof bys / sizeof *bys)

struct report {
  enum by by;
  uint64_t age_ns; /* 0: all */
  struct gs_msg begin;
  struct gs_msg *spans; /* USAGE, from malloc */
  size_t count, room;
};

/* What a row is for, and what it sums up. */
struct row {
  const struct gs_msg *last; /* span */
  size_t jobs;
  uint64_t held_ns, gpu_ns, waited_ns, moved_bytes, energy_mj;
  uint64_t since_ns, until_ns; /* on the clock on the wall */
};

/* ---- spans ---- */

static int take_span(void *argument, const struct gs_msg *msg) {
  struct report *report = argument;
  if (msg->type == GS_EVENTS_BEGIN && msg->events.record != GS_RECORD_USAGE)
    return command_error(CTL_NO_DAEMON,
                         "the daemon is older than this program, and keeps no accounts: restart it");
  if (msg->type == GS_EVENTS_BEGIN)
    report->begin = *msg;
  if (msg->type != GS_EVENT || msg->event.kind != GS_EVENT_USAGE)
    return CTL_OK;
  uint64_t now_ns = report->begin.events.realtime_ns,
           until_ns = event_realtime_ns(&report->begin, msg->event.at_ns);
  if (report->age_ns && until_ns + report->age_ns < now_ns) /* the daemon may not know how long ago it was */
    return CTL_OK;
  if (report->count == report->room) {
    size_t room = report->room ? 2 * report->room : 256;
    struct gs_msg *grown = realloc(report->spans, room * sizeof *grown);
    if (!grown)
      return command_error(CTL_REFUSED, "out of memory");
    report->spans = grown;
    report->room = room;
  }
  report->spans[report->count++] = *msg;
  return CTL_OK;
}

static uint64_t key_of(enum by by, const struct gs_msg *span) {
  return by == BY_USER  ? span->event.uid
         : by == BY_JOB ? span->event.job
         : by == BY_GPU ? span->gpu
                        : span->event.detail;
}

/* By row, and within it by job. */
static int compare(const void *a, const void *b, void *by) {
  const struct gs_msg *one = a, *other = b;
  uint64_t key = key_of(*(enum by *)by, one), other_key = key_of(*(enum by *)by, other);
  if (key != other_key)
    return key < other_key ? -1 : 1;
  if (one->event.job != other->event.job)
    return one->event.job < other->event.job ? -1 : 1;
  return one->event.seq < other->event.seq ? -1 : one->event.seq > other->event.seq;
}

/* Adds up the spans from the first one on that are of its row: how many. */
static size_t sum_up(const struct report *report, size_t first, struct row *row) {
  uint64_t key = key_of(report->by, &report->spans[first]);
  size_t at = first;
  *row = (struct row){.since_ns = UINT64_MAX};
  for (; at < report->count && key_of(report->by, &report->spans[at]) == key; at++) {
    const struct gs_msg *span = &report->spans[at];
    uint64_t since_ns = event_realtime_ns(&report->begin, span->event.usage.since_ns);
    uint64_t until_ns = event_realtime_ns(&report->begin, span->event.at_ns);
    row->jobs += at == first || span->event.job != row->last->event.job;
    row->last = span;
    row->held_ns += span->event.usage.held_ns;
    row->gpu_ns += span->event.usage.gpu_ns;
    row->waited_ns += span->event.usage.waited_ns;
    row->moved_bytes += span->event.usage.moved_bytes;
    row->energy_mj += span->energy_mj;
    row->since_ns = since_ns < row->since_ns ? since_ns : row->since_ns;
    row->until_ns = until_ns > row->until_ns ? until_ns : row->until_ns;
  }
  return at - first;
}

/* ---- for people ---- */

static void print_titles(enum by by) {
  static const char *const titles[] = {"USER", "JOB", "GPU", "CLASS"};
  printf("%-14s ", titles[by]);
  if (by == BY_JOB)
    printf("%-10s %-16s ", "USER", "NAME");
  else
    printf("%6s ", "JOBS");
  printf("%10s %10s %10s %11s %10s\n", "GPU HOURS", "COMPUTED", "WAITED", "MOVED", "KWH");
}

static const char *key_text(const struct report *report, const struct row *row, char text[WORDS_SIZE]) {
  if (report->by == BY_JOB)
    snprintf(text, WORDS_SIZE, "%u", row->last->event.job);
  return report->by == BY_USER  ? user_name(row->last->event.uid)
         : report->by == BY_JOB ? text
         : report->by == BY_GPU ? gpu_number_format(row->last->gpu, text)
                                : class_name(row->last->event.detail);
}

static double hours(uint64_t ns) { return (double)ns / 3600 / (double)NS_PER_S; }

static void print_row(const struct report *report, const struct row *row) {
  char key[WORDS_SIZE];
  printf("%-14s ", key_text(report, row, key));
  if (report->by == BY_JOB)
    printf("%-10s %-16s ", user_name(row->last->event.uid), row->last->event.name);
  else
    printf("%6zu ", row->jobs);
  printf("%10.3f %10.3f %10.3f %11s", hours(row->held_ns), hours(row->gpu_ns), hours(row->waited_ns),
         BYTES_TEXT(row->moved_bytes));
  if (row->energy_mj)
    printf(" %10.3f", (double)row->energy_mj / MILLIJOULES_PER_KWH);
  putchar('\n');
}

/* ---- for programs ---- */

/* Names are printable, but may have quotes; and are their users': a spreadsheet takes what begins like a
 * formula for one. */
static void print_quoted(const char *text) {
  putchar('"');
  if (*text && strchr("=+-@", *text))
    putchar('\'');
  for (; *text; text++)
    printf(*text == '"' ? "\"\"" : "%c", *text);
  putchar('"');
}

static void print_csv(const struct report *report, const struct row *row) {
  char key[WORDS_SIZE], since[EVENT_TIME_SIZE], until[EVENT_TIME_SIZE];
  event_utc_time(row->since_ns, since);
  event_utc_time(row->until_ns, until);
  print_quoted(key_text(report, row, key));
  if (report->by == BY_JOB) {
    putchar(',');
    print_quoted(user_name(row->last->event.uid));
    putchar(',');
    print_quoted(row->last->event.name);
  }
  printf(",%zu,%.3f,%.3f,%.3f,%lu,%s,%s,", row->jobs, (double)row->held_ns / NS_PER_S,
         (double)row->gpu_ns / NS_PER_S, (double)row->waited_ns / NS_PER_S, row->moved_bytes, since, until);
  if (row->energy_mj)
    printf("%.3f", (double)row->energy_mj / 1e3);
  putchar('\n');
}

static json_t *row_json(const struct report *report, const struct row *row) {
  char since[EVENT_TIME_SIZE], until[EVENT_TIME_SIZE];
  json_t *object = json_object();
  event_utc_time(row->since_ns, since);
  event_utc_time(row->until_ns, until);
  if (report->by == BY_USER || report->by == BY_JOB) {
    output_number(object, "uid", row->last->event.uid);
    output_text(object, "user", user_name(row->last->event.uid));
  }
  if (report->by == BY_JOB) {
    output_number(object, "job", row->last->event.job);
    output_text(object, "name", row->last->event.name);
  } else if (report->by == BY_GPU) {
    output_gpu(object, "gpu", row->last->gpu);
  } else if (report->by == BY_CLASS) {
    output_text(object, "class", class_name(row->last->event.detail));
  }
  output_number(object, "jobs", row->jobs);
  output_number(object, "held_ns", row->held_ns);
  output_number(object, "gpu_ns", row->gpu_ns);
  output_number(object, "waited_ns", row->waited_ns);
  output_number(object, "moved_bytes", row->moved_bytes);
  output_text(object, "since", since);
  output_text(object, "until", until);
  json_object_set_new(object, "energy_joules",
                      row->energy_mj ? json_real((double)row->energy_mj / 1e3) : json_null());
  return object;
}

/* ---- all of it ---- */

static int show(const struct request *request, const struct report *report) {
  json_t *rows = json_array();
  struct row row;
  if (request->csv)
    printf("%s,%sjobs,held_seconds,gpu_seconds,waited_seconds,moved_bytes,since,until,energy_joules\n",
           bys[report->by], report->by == BY_JOB ? "user,name," : "");
  else if (!request->json && report->count)
    print_titles(report->by);
  for (size_t i = 0; i < report->count;) {
    i += sum_up(report, i, &row);
    if (request->json)
      json_array_append_new(rows, row_json(report, &row));
    else if (request->csv)
      print_csv(report, &row);
    else
      print_row(report, &row);
  }
  if (!request->json && !request->csv && !report->count)
    puts("no job has had a GPU in that time, of those that you may see");
  if (request->json)
    return output_json(json_pack("{ss so}", "by", bys[report->by], "rows", rows));
  json_decref(rows);
  return CTL_OK;
}

static bool find_by(const char *text, enum by *by) {
  for (size_t i = 0; i < BYS; i++)
    if (strcmp(bys[i], text) == 0) {
      *by = (enum by)i;
      return true;
    }
  return false;
}

/* CTL_OK, or CTL_USAGE after a line on stderr. */
static int read_request(const struct request *request, enum by *by, uint64_t *age_ns) {
  if (request->by && !find_by(request->by, by))
    return usage_error("--by is user, job, gpu or class, not", request->by);
  if (request->csv && request->json)
    return usage_error("--csv and --json exclude each other", NULL);
  if (request->since && parse_duration_ns(request->since, age_ns) < 0)
    return usage_error("not a duration (90, 15m, 2.5h, 7d):", request->since);
  return CTL_OK;
}

int report_check(const struct request *request) {
  return read_request(request, &(enum by){0}, &(uint64_t){0});
}

int report_command(const struct request *request) {
  struct report report = {.by = BY_USER};
  int code = read_request(request, &report.by, &report.age_ns);
  if (code != CTL_OK)
    return code;
  code = event_read(request, GS_RECORD_USAGE, take_span, &report);
  if (report.count)
    qsort_r(report.spans, report.count, sizeof *report.spans, compare, &report.by);
  if (code == CTL_OK)
    code = show(request, &report);
  free(report.spans);
  return code;
}
