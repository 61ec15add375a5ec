/* kept.c - see kept.h. */
#include "server/kept.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fnv.h"
#include "common/parse.h"
#include "common/wire.h"
#include "shared/printable.h"

#define FIELDS_MAX 16
#define VERSION 1
#define ALL "all"
#define SUM_DIGITS 16

/* ---- lines ---- */

static size_t line_of(char line[KEPT_LINE_SIZE], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static size_t line_of(char line[KEPT_LINE_SIZE], const char *format, ...) {
  char sum[SUM_DIGITS + 1];
  char *body = line + SUM_DIGITS + 1;
  va_list list;
  va_start(list, format);
  size_t length = (size_t)vsnprintf(body, KEPT_LINE_SIZE - SUM_DIGITS - 2, format, list);
  va_end(list);
  snprintf(sum, sizeof sum, "%016" PRIx64, fnv_add(FNV_BASIS, body, length));
  memcpy(line, sum, SUM_DIGITS);
  line[SUM_DIGITS] = '\t';
  body[length] = '\n';
  return SUM_DIGITS + 1 + length + 1;
}

size_t kept_line_text(char line[KEPT_LINE_SIZE], const char *text) { return line_of(line, "%s", text); }

size_t kept_line_version(char line[KEPT_LINE_SIZE]) { return line_of(line, "gpushare-state\t%d", VERSION); }

size_t kept_line_boot(char line[KEPT_LINE_SIZE], const char *boot) { return line_of(line, "boot\t%s", boot); }

size_t kept_line_job(char line[KEPT_LINE_SIZE], const struct kept_process *process) {
  return line_of(line, "job\t%d\t%" PRIu64 "\t%u\t%u\t%" PRIu64, process->pid, process->start, process->uid,
                 process->job_id, process->started_ns);
}

size_t kept_line_gang(char line[KEPT_LINE_SIZE], const struct kept_process *process) {
  return line_of(line, "gang\t%d\t%u\t%" PRIu64, process->pid, process->job_id, process->gang);
}

size_t kept_line_last(char line[KEPT_LINE_SIZE], uint32_t job_id) {
  return line_of(line, "last\t%u", job_id);
}

size_t kept_line_term(char line[KEPT_LINE_SIZE], pid_t pid, uint32_t job_id, const struct terms *terms,
                      enum gs_term term) {
  return line_of(line, "term\t%d\t%u\t%u\t%" PRIu64 "\t%u", pid, job_id, (unsigned)term,
                 terms_value(&terms->set, term), terms->standing_fields >> term & 1);
}

size_t kept_line_gone(char line[KEPT_LINE_SIZE], pid_t pid, uint32_t job_id) {
  return line_of(line, "gone\t%d\t%u", pid, job_id);
}

static const char *gpu_of(const struct decision *decision, char text[GS_UUID_TEXT_SIZE]) {
  if (decision_is_general(decision))
    return ALL;
  format_uuid(decision->uuid, text);
  return text;
}

size_t kept_line_set(char line[KEPT_LINE_SIZE], const struct decision *decision) {
  char gpu[GS_UUID_TEXT_SIZE];
  return line_of(line, "set\t%s\t%s\t%" PRIu64 "\t%" PRIu64, gpu_of(decision, gpu),
                 decisions_name(decision->field), decision->value, decision->base);
}

size_t kept_line_unset(char line[KEPT_LINE_SIZE], const struct decision *decision) {
  char gpu[GS_UUID_TEXT_SIZE];
  return line_of(line, "unset\t%s\t%s", gpu_of(decision, gpu), decisions_name(decision->field));
}

size_t kept_line_learnt(char line[KEPT_LINE_SIZE], uid_t uid, uint64_t command_hash, uint64_t ns) {
  return line_of(line, "learnt\t%u\t%" PRIu64 "\t%" PRIu64, uid, command_hash, ns);
}

size_t kept_line_event(char line[KEPT_LINE_SIZE], const struct gs_msg *event) {
  if (event->event.kind == GS_EVENT_COMMAND)
    return line_of(line, "command\t%" PRIu64 "\t%u\t%u\t%u\t%.71s", event->event.at_ns, event->event.job,
                   (unsigned)event->event.pid, event->event.uid, event->event.text);
  if (event->event.kind == GS_EVENT_USAGE)
    return line_of(line,
                   "usage\t%" PRIu64 "\t%u\t%u\t%u\t%u\t%u\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
                   "\t%" PRIu64 "\t%" PRIu64 "\t%.31s",
                   event->event.at_ns, event->event.job, (unsigned)event->event.pid, event->event.uid,
                   event->gpu, (unsigned)event->event.detail, event->event.usage.since_ns,
                   event->event.usage.held_ns, event->event.usage.gpu_ns, event->event.usage.waited_ns,
                   event->event.usage.moved_bytes, event->energy_mj, event->event.name);
  return line_of(
      line,
      "ended\t%" PRIu64 "\t%u\t%u\t%u\t%u\t%u\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%.31s",
      event->event.at_ns, event->event.job, (unsigned)event->event.pid, event->event.uid,
      (unsigned)event->event.detail, (unsigned)event->event.end.status, event->event.end.started_ns,
      event->event.end.gpu_ns, event->event.end.waited_ns, event->event.end.turns, event->event.name);
}

/* ---- coming and going ---- */

void kept_init(struct kept *kept) {
  memset(kept, 0, sizeof *kept);
  for (size_t i = 0; i < KEPT_BUCKETS; i++)
    list_init(&kept->processes[i]);
  for (size_t i = 0; i < KEPT_BUCKETS; i++)
    list_init(&kept->gangs[i]);
  list_init(&kept->away);
  history_init(&kept->history);
  record_init(&kept->runs, KEPT_RUNS);
  record_init(&kept->usage, KEPT_USAGE);
}

static struct list *bucket_of(struct kept *kept, pid_t pid) {
  return &kept->processes[(unsigned)pid % KEPT_BUCKETS];
}

static struct kept_process *process_of(struct list *node) {
  return list_entry(node, struct kept_process, link);
}

static struct list *gang_bucket_of(struct kept *kept, uid_t uid, uint64_t gang) {
  return &kept->gangs[(gang ^ uid) % KEPT_BUCKETS];
}

static void put_in_gang(struct kept *kept, struct kept_process *process) {
  list_init(&process->gang_link);
  if (process->gang)
    list_append(gang_bucket_of(kept, process->uid, process->gang), &process->gang_link);
}

static void take_out(struct kept *kept, struct kept_process *process) {
  list_remove(&process->link);
  kept->process_count--;
  kept->away_count -= process->left;
  list_remove(&process->away_link);
  list_remove(&process->gang_link);
}

static void forget_processes(struct kept *kept) {
  for (size_t i = 0; i < KEPT_BUCKETS; i++)
    while (!list_empty(&kept->processes[i])) {
      struct kept_process *process = process_of(list_first(&kept->processes[i]));
      take_out(kept, process);
      free(process);
    }
}

void kept_end(struct kept *kept) {
  forget_processes(kept);
  history_end(&kept->history);
  record_end(&kept->runs);
  record_end(&kept->usage);
}

static struct kept_process *find_job(struct kept *kept, pid_t pid, uint32_t job_id) {
  list_each(node, bucket_of(kept, pid)) {
    if (process_of(node)->pid == pid && process_of(node)->job_id == job_id)
      return process_of(node);
  }
  return NULL;
}

struct kept_process *kept_next(struct kept *kept, const struct kept_process *after, pid_t pid, uint64_t start,
                               uid_t uid) {
  struct list *bucket = bucket_of(kept, pid);
  const struct list *node = after ? &after->link : bucket;
  while ((node = node->next) != bucket) {
    struct kept_process *process = list_entry(node, struct kept_process, link);
    if (process->pid == pid && process->start == start && process->uid == uid)
      return process;
  }
  return NULL;
}

struct kept_process *kept_take(struct kept *kept, pid_t pid, uint64_t start, uid_t uid) {
  struct kept_process *process = kept_next(kept, NULL, pid, start, uid);
  if (process)
    take_out(kept, process);
  return process;
}

/* ---- what has left, and may come back ---- */

static struct kept_process *away_of(struct list *node) {
  return list_entry(node, struct kept_process, away_link);
}

/* What its owner has set himself must not make anything else be forgotten. */
static bool is_dispensable(const struct kept_process *process) { return !process->terms.standing_fields; }

static struct kept_process *choose_given_up(struct kept *kept, struct kept_process *process) {
  struct kept_process *first = NULL, *first_of_user = NULL;
  size_t count = 0;
  list_each(node, &kept->away) {
    struct kept_process *other = away_of(node);
    if (!is_dispensable(other))
      continue;
    first = first ? first : other;
    if (other->uid == process->uid && count++ == 0)
      first_of_user = other;
  }
  if (is_dispensable(process) && count >= KEPT_AWAY_PER_USER)
    return first_of_user;
  if (kept->away_count < KEPT_AWAY_MAX)
    return NULL;
  return first ? first : is_dispensable(process) ? process : away_of(list_first(&kept->away));
}

struct kept_process *kept_leave(struct kept *kept, struct kept_process *process) {
  struct kept_process *given_up = choose_given_up(kept, process);
  if (given_up == process)
    return process;
  if (given_up)
    take_out(kept, given_up);
  process->left = true;
  list_append(bucket_of(kept, process->pid), &process->link);
  list_append(&kept->away, &process->away_link);
  put_in_gang(kept, process);
  kept->process_count++;
  kept->away_count++;
  return given_up;
}

struct kept_process *kept_take_ended(struct kept *kept, bool (*there)(const struct kept_process *process)) {
  struct list *first = list_first(&kept->away);
  if (!first)
    return NULL;
  if (!there(away_of(first))) {
    struct kept_process *ended = away_of(first);
    take_out(kept, ended);
    return ended;
  }
  list_remove(first);
  list_append(&kept->away, first);
  return NULL;
}

struct kept_process *kept_next_of_gang(struct kept *kept, const struct kept_process *last, uid_t uid,
                                       uint64_t gang) {
  struct list *bucket = gang_bucket_of(kept, uid, gang);
  const struct list *node = last ? &last->gang_link : bucket;
  while ((node = node->next) != bucket) {
    struct kept_process *process = list_entry(node, struct kept_process, gang_link);
    if (process->uid == uid && process->gang == gang)
      return process;
  }
  return NULL;
}

/* ---- reading ---- */

/* From 1; what the line is, is text[0]. */
struct fields {
  const char *text[FIELDS_MAX];
  uint64_t value[FIELDS_MAX]; /* of those that are numbers */
  size_t count;
};

struct reader {
  struct kept *kept;
  const char *boot;
  bool other_boot; /* what is said of processes is of others */
  bool later;
};

static bool read_version(struct reader *reader, const struct fields *fields) {
  reader->later = fields->value[1] > VERSION;
  return true;
}

static bool read_boot(struct reader *reader, const struct fields *fields) {
  forget_processes(reader->kept);
  reader->other_boot = !*reader->boot || strcmp(fields->text[1], reader->boot) != 0;
  return true;
}

static void note_job_id(struct kept *kept, uint64_t job_id) {
  if (job_id > kept->last_job_id)
    kept->last_job_id = (uint32_t)job_id;
}

static bool read_last(struct reader *reader, const struct fields *fields) {
  note_job_id(reader->kept, fields->value[1]);
  return true;
}

static bool read_job(struct reader *reader, const struct fields *fields) {
  struct kept *kept = reader->kept;
  pid_t pid = (pid_t)fields->value[1];
  uint32_t job_id = (uint32_t)fields->value[4];
  if (pid == 0 || job_id == 0)
    return false;
  note_job_id(kept, job_id);
  if (reader->other_boot || find_job(kept, pid, job_id))
    return true;
  struct kept_process *process = kept->process_count < KEPT_PROCESSES_MAX ? malloc(sizeof *process) : NULL;
  if (!process)
    return false;
  *process = (struct kept_process){.pid = pid,
                                   .start = fields->value[2],
                                   .uid = (uid_t)fields->value[3],
                                   .job_id = job_id,
                                   .started_ns = fields->value[5]};
  list_append(bucket_of(kept, process->pid), &process->link);
  list_init(&process->away_link);
  put_in_gang(kept, process);
  kept->process_count++;
  return true;
}

static struct kept_process *find_process(const struct reader *reader, const struct fields *fields) {
  return find_job(reader->kept, (pid_t)fields->value[1], (uint32_t)fields->value[2]);
}

static bool read_gang(struct reader *reader, const struct fields *fields) {
  struct kept_process *process = find_process(reader, fields);
  if (!process)
    return true;
  list_remove(&process->gang_link);
  process->gang = fields->value[3];
  put_in_gang(reader->kept, process);
  return true;
}

static bool read_term(struct reader *reader, const struct fields *fields) {
  struct gs_msg msg = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
  msg.set_terms.term = (uint32_t)fields->value[3];
  msg.set_terms.value = fields->value[4];
  if (terms_wrong(&msg))
    return false;
  const struct kept_process *job = find_process(reader, fields);
  struct kept_process *same = NULL;
  while (job && (same = kept_next(reader->kept, same, job->pid, job->start, job->uid)))
    terms_restore(&same->terms, (enum gs_term)msg.set_terms.term, msg.set_terms.value, fields->value[5]);
  return true;
}

static bool read_gone(struct reader *reader, const struct fields *fields) {
  struct kept_process *process = find_process(reader, fields);
  if (process) {
    take_out(reader->kept, process);
    free(process);
  }
  return true;
}

static bool read_what(const struct fields *fields, struct decision *decision) {
  decision->field = decisions_field(fields->text[2]);
  return decision->field &&
         (strcmp(fields->text[1], ALL) == 0 || parse_uuid(fields->text[1], decision->uuid) == 0);
}

static bool read_set(struct reader *reader, const struct fields *fields) {
  struct decisions *decisions = &reader->kept->decisions;
  struct decision decision = {.value = fields->value[3], .base = fields->value[4]};
  if (!read_what(fields, &decision) || decisions_wrong(decision.field, decision.value))
    return false;
  if (decision_is_general(&decision))
    decisions_clear(decisions, decision.field);
  return decisions_put(decisions, &decision);
}

static bool read_unset(struct reader *reader, const struct fields *fields) {
  struct decisions *decisions = &reader->kept->decisions;
  struct decision decision = {0};
  if (!read_what(fields, &decision))
    return false;
  if (decision_is_general(&decision))
    decisions_clear(decisions, decision.field);
  else
    decisions_remove(decisions, &decision);
  return true;
}

static bool read_learnt(struct reader *reader, const struct fields *fields) {
  if (fields->value[2] == 0 || fields->value[3] == 0)
    return false;
  history_put(&reader->kept->history, (uid_t)fields->value[1], fields->value[2], fields->value[3]);
  return true;
}

static struct gs_msg run_event(enum gs_event_kind kind, const struct fields *fields) {
  struct gs_msg event = wire_msg(GS_EVENT, GS_GPU_ALL);
  event.event.kind = kind;
  event.event.at_ns = fields->value[1];
  event.event.job = (uint32_t)fields->value[2];
  event.event.pid = (int32_t)fields->value[3];
  event.event.uid = (uint32_t)fields->value[4];
  return event;
}

static bool read_command(struct reader *reader, const struct fields *fields) {
  struct gs_msg event = run_event(GS_EVENT_COMMAND, fields);
  printable_copy(event.event.text, fields->text[5], sizeof event.event.text);
  record_add(&reader->kept->runs, &event);
  return true;
}

static bool read_ended(struct reader *reader, const struct fields *fields) {
  if (fields->value[5] > GS_END_EVICTED)
    return false;
  struct gs_msg event = run_event(GS_EVENT_ENDED, fields);
  printable_copy(event.event.name, fields->text[11], sizeof event.event.name);
  event.event.detail = (uint16_t)fields->value[5];
  event.event.end.status = (int32_t)fields->value[6];
  event.event.end.started_ns = fields->value[7];
  event.event.end.gpu_ns = fields->value[8];
  event.event.end.waited_ns = fields->value[9];
  event.event.end.turns = fields->value[10];
  record_add(&reader->kept->runs, &event);
  return true;
}

static bool read_usage(struct reader *reader, const struct fields *fields) {
  if (fields->value[6] > GS_CLASS_OPPORTUNISTIC)
    return false;
  struct gs_msg event = run_event(GS_EVENT_USAGE, fields);
  printable_copy(event.event.name, fields->text[fields->count - 1], sizeof event.event.name);
  event.gpu = (uint32_t)fields->value[5];
  event.event.detail = (uint16_t)fields->value[6];
  event.event.usage.since_ns = fields->value[7];
  event.event.usage.held_ns = fields->value[8];
  event.event.usage.gpu_ns = fields->value[9];
  event.event.usage.waited_ns = fields->value[10];
  event.event.usage.moved_bytes = fields->value[11];
  event.energy_mj = fields->count == 14 ? fields->value[12] : 0;
  record_add(&reader->kept->usage, &event);
  return true;
}

/* Fields: t, a text; b, i, u and q, a number of 1, 31, 32 and 64 bits. */
static const struct {
  const char *name, *fields;
  bool (*read)(struct reader *reader, const struct fields *fields);
} kinds[] = {
    {"gpushare-state", "u", read_version},
    {"boot", "t", read_boot},
    {"last", "u", read_last},
    {"job", "iquuq", read_job},
    {"gang", "iuq", read_gang},
    {"term", "iuuqb", read_term},
    {"gone", "iu", read_gone},
    {"set", "ttqq", read_set},
    {"unset", "tt", read_unset},
    {"learnt", "uqq", read_learnt},
    {"command", "quuut", read_command},
    {"ended", "quuuuuqqqqt", read_ended},
    {"usage", "quuuuuqqqqqqt", read_usage},
    {"usage", "quuuuuqqqqqt", read_usage}, /* of a daemon that kept no energy */
};

/* False: there are others, or no such numbers, which are digits alone. */
static bool read_fields(struct fields *fields, const char *types) {
  if (fields->count != strlen(types) + 1)
    return false;
  for (size_t i = 1; i < fields->count; i++) {
    char *end, type = types[i - 1];
    const char *text = fields->text[i];
    uint64_t most = type == 'b' ? 1 : type == 'i' ? INT32_MAX : type == 'u' ? UINT32_MAX : UINT64_MAX;
    if (type == 't')
      continue;
    errno = 0;
    fields->value[i] = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || fields->value[i] > most)
      return false;
  }
  return true;
}

/* A line without its end. It is written to. False: nothing can be learnt from it. */
static bool read_line(struct reader *reader, char *line, size_t length) {
  char sum[SUM_DIGITS + 1];
  char *body = line + SUM_DIGITS + 1;
  if (length <= SUM_DIGITS || line[SUM_DIGITS] != '\t' || memchr(line, 0, length))
    return false;
  snprintf(sum, sizeof sum, "%016" PRIx64, fnv_add(FNV_BASIS, body, length - SUM_DIGITS - 1));
  if (memcmp(line, sum, SUM_DIGITS) != 0)
    return false;
  struct fields fields = {.count = 0};
  for (char *next = body, *field; (field = strsep(&next, "\t"));) {
    if (fields.count == FIELDS_MAX)
      return false;
    fields.text[fields.count++] = field;
  }
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, fields.text[0]) == 0 && read_fields(&fields, kinds[i].fields))
      return kinds[i].read(reader, &fields);
  return false;
}

int kept_read(struct kept *kept, const char *text, size_t size, const char *boot) {
  struct reader reader = {.kept = kept, .boot = boot, .other_boot = true};
  const char *end;
  for (size_t at = 0; at < size && (end = memchr(text + at, '\n', size - at));
       at = (size_t)(end - text) + 1) {
    char line[KEPT_LINE_SIZE];
    size_t length = (size_t)(end - text) - at;
    if (length >= sizeof line) {
      kept->wrong_lines++;
      continue;
    }
    memcpy(line, text + at, length);
    line[length] = '\0';
    kept->wrong_lines += length > 0 && !read_line(&reader, line, length);
    if (reader.later)
      return -EPROTONOSUPPORT;
  }
  kept->this_boot = !reader.other_boot;
  return 0;
}

/* ---- writing all of it ---- */

static int write_process(const struct kept_process *process, struct kept_output *output) {
  char line[KEPT_LINE_SIZE];
  if (output->there && !output->there(process))
    return 0;
  int err = output->put(output, line, kept_line_job(line, process));
  if (err == 0 && process->gang)
    err = output->put(output, line, kept_line_gang(line, process));
  for (unsigned term = 0; err == 0 && term < GS_TERM_COUNT; term++)
    if (process->terms.set_fields >> term & 1)
      err = output->put(
          output, line,
          kept_line_term(line, process->pid, process->job_id, &process->terms, (enum gs_term)term));
  return err;
}

static int write_record(const struct record *record, struct kept_output *output) {
  char line[KEPT_LINE_SIZE];
  int err = 0;
  const struct record_entry *entry = record_next(record, 0);
  for (; err == 0 && entry; entry = record_next(record, entry->msg.event.seq + 1))
    err = output->put(output, line, kept_line_event(line, &entry->msg));
  return err;
}

int kept_write(const struct kept *kept, const char *boot, struct kept_output *output) {
  char line[KEPT_LINE_SIZE];
  int err = output->put(output, line, kept_line_version(line));
  if (err == 0)
    err = output->put(output, line, kept_line_last(line, kept->last_job_id));
  for (int general = 1; general >= 0; general--)
    for (size_t i = 0; err == 0 && i < kept->decisions.count; i++)
      if (decision_is_general(&kept->decisions.list[i]) == general)
        err = output->put(output, line, kept_line_set(line, &kept->decisions.list[i]));
  list_each(node, (struct list *)(uintptr_t)&kept->history.used) {
    const struct history_entry *entry = list_entry(node, struct history_entry, used_link);
    if (err == 0)
      err = output->put(output, line,
                        kept_line_learnt(line, entry->uid, entry->command_hash, entry->expected_ns));
  }
  if (err == 0)
    err = write_record(&kept->runs, output);
  if (err == 0)
    err = write_record(&kept->usage, output);
  if (err == 0)
    err = output->put(output, line, kept_line_boot(line, boot));
  for (size_t i = 0; i < KEPT_BUCKETS; i++)
    list_each(node, (struct list *)(uintptr_t)&kept->processes[i]) {
      if (err == 0)
        err = write_process(process_of(node), output);
    }
  return err;
}
