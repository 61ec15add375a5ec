/* top_text.c - gpusharectl top: a model's lines, for screens and pipes. */
#include "ctl/top_text.h"
#include "common/gpu_number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/parse.h"
#include "common/words.h"

/* Where there is no room for all, the most important ones are shown. */
static const struct {
  const char *title;
  int width; /* below 0: to the left */
  int importance;
} columns[TOP_COLUMNS] = {
    [TOP_JOB] = {"JOB", 6, 14},       [TOP_GPU] = {"GPU", 3, 13},     [TOP_PID] = {"PID", 8, 3},
    [TOP_USER] = {"USER", -10, 6},    [TOP_NAME] = {"NAME", -16, 12}, [TOP_CLASS] = {"CLASS", -5, 5},
    [TOP_STATE] = {"STATE", -14, 11}, [TOP_HELD] = {"GPU%", 6, 10},   [TOP_WAITED] = {"WAIT%", 6, 7},
    [TOP_CARD] = {"ON CARD", 10, 9},  [TOP_AWAY] = {"AWAY", 10, 8},   [TOP_RATE] = {"RATE", 6, 4},
    [TOP_LIMIT] = {"LIMIT", 10, 1},   [TOP_FROM] = {"FROM", -22, 2},
};

/* ---- lines that grow ---- */

__attribute__((format(printf, 2, 3))) static void append(char *line, const char *format, ...) {
  size_t used = strlen(line);
  va_list list;
  va_start(list, format);
  vsnprintf(line + used, TOP_TEXT_SIZE - used, format, list);
  va_end(list);
}

/* "1:02:03" */
static void append_time(char *line, uint64_t ns) {
  unsigned long s = ns / NS_PER_S;
  append(line, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
}

static void trim(char *line) {
  size_t used = strlen(line);
  while (used > 0 && line[used - 1] == ' ')
    line[--used] = '\0';
}

static double seconds(uint64_t ns) { return (double)ns / 1e9; }

/* ---- the jobs' table ---- */

static size_t width_of(int column) {
  return (size_t)(columns[column].width < 0 ? -columns[column].width : columns[column].width);
}

static int most_important(unsigned among) {
  int best = -1;
  for (int i = 0; i < TOP_COLUMNS; i++)
    if (among & 1u << i && (best < 0 || columns[i].importance > columns[best].importance))
      best = i;
  return best;
}

unsigned top_text_columns(size_t width, const struct top_model *model) {
  unsigned left = (1u << TOP_COLUMNS) - 1, chosen = 1u << TOP_JOB;
  size_t used = width_of(TOP_JOB);
  if (model->gpu_count < 2)
    left &= ~(1u << TOP_GPU);
  for (int column; (column = most_important(left & ~chosen)) >= 0; chosen |= 1u << column) {
    used += 1 + width_of(column);
    if (used > width)
      break;
  }
  return chosen;
}

static const char *class_short_name(unsigned class) {
  return class == GS_CLASS_PRODUCTION ? "prod" : class == GS_CLASS_OPPORTUNISTIC ? "opp" : "std";
}

static void put_state(char *cell, const struct top_job *job) {
  const struct gs_msg *msg = job->figures.job;
  if (msg->job_status.flags & GS_STATE_STOPPED)
    append(cell, "stopped");
  else if (msg->job_status.flags & GS_STATE_OVERDUE)
    append(cell, "overdue");
  else if (msg->job_status.flags & GS_STATE_TOO_BIG)
    append(cell, "too big");
  else if (job->figures.terms->terms_status.paused)
    append(cell, "paused");
  else if (job->waits_for_room)
    append(cell, "waits for room");
  else if (figures_waits_for_memory(&job->figures))
    append(cell, "waits for memory");
  else if (msg->job_status.queue)
    append(cell, "%s (%u)", figures_state_name(msg->job_status.state), msg->job_status.queue);
  else
    append(cell, "%s", figures_state_name(msg->job_status.state));
}

static void put_share(char *cell, bool known, double share) {
  append(cell, known ? "%.1f" : "-", 100 * share);
}

static void put_rate(char *cell, const struct job_figures *job) {
  if (figures_has_limit(job->wait))
    append(cell, "%.1f%%", 100 * figures_limit_share(job->wait));
  else if (job->terms->terms_status.rate)
    append(cell, "%u%%", job->terms->terms_status.rate);
  else
    append(cell, "-");
}

static void put_bytes(char *cell, uint64_t bytes) {
  char text[24];
  append(cell, "%s", words_bytes(bytes, text));
}

static void put_cell(char *cell, enum top_column column, const struct top_job *job) {
  const struct gs_msg *msg = job->figures.job;
  const struct gs_msg *terms = job->figures.terms;
  *cell = '\0';
  switch (column) {
  case TOP_JOB:
    append(cell, "%u", msg->job_status.job);
    break;
  case TOP_GPU:
    append(cell, "%s", GPU_NUMBER_TEXT(msg->gpu));
    break;
  case TOP_PID:
    append(cell, msg->job_status.pid ? "%d" : "-", msg->job_status.pid);
    break;
  case TOP_USER:
    append(cell, "%s", job->user);
    break;
  case TOP_NAME:
    append(cell, "%s", msg->job_status.name);
    break;
  case TOP_CLASS:
    append(cell, "%s", class_short_name(terms->terms_status.class));
    break;
  case TOP_STATE:
    put_state(cell, job);
    break;
  case TOP_HELD:
    put_share(cell, job->rated, job->held_share);
    break;
  case TOP_WAITED:
    put_share(cell, job->rated, job->waited_share);
    break;
  case TOP_CARD:
    put_bytes(cell, msg->job_status.resident_bytes);
    break;
  case TOP_AWAY:
    put_bytes(cell, job->away_bytes);
    break;
  case TOP_RATE:
    put_rate(cell, &job->figures);
    break;
  case TOP_LIMIT:
    if (terms->terms_status.limit_bytes)
      put_bytes(cell, terms->terms_status.limit_bytes);
    else
      append(cell, "-");
    break;
  default:
    append(cell, "%s", *job->from ? job->from : "-");
    break;
  }
}

/* What is too long is cut, so that the columns stay where they are. */
static void append_cell(char *line, int column, const char *text) {
  append(line, "%s%*.*s", *line ? " " : "", columns[column].width, (int)width_of(column), text);
}

void top_text_head(char *line, unsigned shown, enum top_column marked) {
  *line = '\0';
  for (int i = 0; i < TOP_COLUMNS; i++) {
    char title[16];
    snprintf(title, sizeof title, "%s%s", (int)marked == i ? "*" : "", columns[i].title);
    if (shown & 1u << i)
      append_cell(line, i, title);
  }
  trim(line);
}

void top_text_job(char *line, unsigned shown, const struct top_job *job) {
  char cell[TOP_TEXT_SIZE];
  *line = '\0';
  for (int i = 0; i < TOP_COLUMNS; i++)
    if (shown & 1u << i) {
      put_cell(cell, (enum top_column)i, job);
      append_cell(line, i, cell);
    }
  trim(line);
}

bool top_text_has(const struct top_job *job, const char *text) {
  char cell[TOP_TEXT_SIZE];
  for (int i = 0; i < TOP_COLUMNS; i++) {
    put_cell(cell, (enum top_column)i, job);
    if (strcasestr(cell, text))
      return true;
  }
  return strcasestr(class_name(job->figures.terms->terms_status.class), text);
}

/* ---- the daemon and its GPUs ---- */

void top_text_daemon(char *line, const struct top_model *model) {
  const struct gs_msg *msg = model->daemon;
  *line = '\0';
  append(line, "gpushare-daemon %s, up ", msg->daemon.release);
  append_time(line, msg->daemon.uptime_ns);
  append(line, ", %zu GPU%s, %u job%s", model->gpu_count, model->gpu_count == 1 ? "" : "s", msg->daemon.jobs,
         msg->daemon.jobs == 1 ? "" : "s");
}

static void append_turns(char *line, const struct top_gpu *gpu) {
  const struct gs_msg *msg = gpu->figures.gpu;
  uint64_t left_ns = gpu->figures.handover->handover_status.left_ns;
  append(line, "%s, %s", mode_name(msg->gpu_status.mode), policy_name(msg->gpu_status.policy));
  if (!(msg->gpu_status.flags & GS_GPU_SERIALIZED)) {
    append(line, ", all run");
    return;
  }
  append(line, ", turns of %.4g s", seconds(msg->gpu_status.tq_ns));
  if (left_ns != UINT64_MAX)
    append(line, ", %.1f s left", seconds(left_ns));
}

static void append_holders(char *line, const struct top_model *model, const struct top_gpu *gpu) {
  unsigned shown = 0;
  for (size_t i = 0; i < model->job_count; i++) {
    const struct gs_msg *msg = model->jobs[i].figures.job;
    if (model->jobs[i].gpu != gpu || msg->job_status.state != GS_JOB_HOLDING || shown == 3)
      continue;
    append(line, "%s %u (%s)", shown++ ? "," : "; held by", msg->job_status.job, msg->job_status.name);
  }
  unsigned more = gpu->figures.gpu->gpu_status.holders - shown;
  if (gpu->figures.gpu->gpu_status.holders > shown)
    append(line, " and %u more", more);
  append(line, "%s, %u wait", shown ? "" : "; held by nobody", gpu->figures.gpu->gpu_status.waiting);
}

void top_text_gpu(char *line, const struct top_model *model, const struct top_gpu *gpu) {
  *line = '\0';
  append(line, "GPU %s %s: ", GPU_NUMBER_TEXT(gpu->figures.gpu->gpu), gpu->figures.gpu->gpu_status.name);
  append_turns(line, gpu);
  append_holders(line, model, gpu);
}

void top_text_handovers(char *line, const struct top_gpu *gpu) {
  *line = '\0';
  if (gpu->rated)
    append(line, "hand-overs %.2f/s, %.2f GB/s moved, %.1f %% of the time lost", gpu->handovers_per_s,
           gpu->moved_per_s / 1e9, 100 * gpu->lost_share);
  else
    append(line, "hand-overs -/s, - GB/s moved, - %% of the time lost");
}

void top_text_memory(char *line, const struct top_gpu *gpu) {
  char card[24], away[24], capacity[24];
  *line = '\0';
  append(line, "%s on the card, %s away, of %s", words_bytes(gpu->card_bytes, card),
         words_bytes(gpu->away_bytes, away),
         words_bytes(gpu->figures.gpu->gpu_status.capacity_bytes, capacity));
}

/* Something that is there is seen, however little it is. */
static size_t cells_of(uint64_t bytes, double bytes_per_cell) {
  size_t cells = (size_t)((double)bytes / bytes_per_cell + 0.5);
  return bytes && !cells ? 1 : cells;
}

void top_text_bar(char *bar, size_t cells, const struct top_gpu *gpu) {
  uint64_t capacity_bytes = gpu->figures.gpu->gpu_status.capacity_bytes, card_bytes = gpu->card_bytes;
  uint64_t free_bytes = capacity_bytes > card_bytes ? capacity_bytes - card_bytes : 0;
  double per_cell = (double)(card_bytes + free_bytes + gpu->away_bytes + 1) / (double)cells;
  size_t card = cells_of(card_bytes, per_cell), away = cells_of(gpu->away_bytes, per_cell);
  for (size_t i = 0; i < cells; i++)
    bar[i] = i < card ? TOP_CELL_CARD : i + away >= cells ? TOP_CELL_AWAY : TOP_CELL_FREE;
  bar[cells] = '\0';
}
