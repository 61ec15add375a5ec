/* top_view.c - gpusharectl top, as far as it knows no terminal: what is shown of GPUs and jobs, from one
 * status and the one before; its lines, for screens and pipes; rows, selection and keys. */
#include "ctl/top_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"

static double less(uint64_t now, uint64_t before) { return now > before ? (double)(now - before) : 0; }

static double at_most_one(double share) { return share < 1 ? share : 1; }

/* By the daemon's clock; 0: they have nothing to do with each other. */
static double elapsed_ns(const struct top_model *now, const struct top_model *before) {
  const struct gs_msg *one = now->status.daemon, *other = before->status.daemon;
  if (!one || !other || one->daemon.pid != other->daemon.pid)
    return 0;
  return less(one->daemon.uptime_ns, other->daemon.uptime_ns);
}

/* ---- what it was before ---- */

static const struct top_gpu *find_gpu(const struct top_model *model, const struct gs_msg *gpu) {
  for (size_t i = 0; i < model->status.gpu_count; i++)
    if (memcmp(model->gpus[i].figures->gpu->gpu_status.uuid, gpu->gpu_status.uuid, GS_UUID_SIZE) == 0)
      return &model->gpus[i];
  return NULL;
}

static const struct gs_msg *find_job(const struct top_model *model, const struct top_job *job) {
  const struct top_gpu *gpu = find_gpu(model, job->figures->gpu->gpu);
  for (size_t i = 0; gpu && i < gpu->figures->job_count; i++)
    if (gpu->figures->jobs[i].job->job_status.job == job->figures->job->job_status.job)
      return gpu->figures->jobs[i].job;
  return NULL;
}

static double handover_ns(const struct gs_msg *handover) {
  return (double)(handover->handover_status.drain_ns + handover->handover_status.move_ns);
}

/* A job that was not there had nothing; of a GPU that was not, nothing is told. */
static void rate_all(struct top_model *model, const struct top_model *before) {
  double ns = elapsed_ns(model, before);
  if (ns <= 0)
    return;
  for (size_t i = 0; i < model->status.gpu_count; i++) {
    struct top_gpu *gpu = &model->gpus[i];
    const struct gs_msg *now = gpu->figures->gpu;
    const struct top_gpu *then = find_gpu(before, now);
    if (!then)
      continue;
    const struct gs_msg *old = then->figures->gpu;
    double lost_ns = handover_ns(gpu->figures->handover) - handover_ns(then->figures->handover);
    gpu->rated = true;
    gpu->handovers_per_s = less(now->gpu_status.handovers, old->gpu_status.handovers) * 1e9 / ns;
    gpu->moved_per_s = less(now->gpu_status.moved_bytes, old->gpu_status.moved_bytes) * 1e9 / ns;
    gpu->lost_share = lost_ns > 0 ? at_most_one(lost_ns / ns) : 0;
  }
  for (size_t i = 0; i < model->status.job_count; i++) {
    struct top_job *job = &model->jobs[i];
    const struct gs_msg *now = job->figures->job, *old = find_job(before, job);
    uint64_t held_ns = old ? old->job_status.held_ns : 0, waited_ns = old ? old->job_status.waited_ns : 0;
    job->rated = true;
    job->held_share = at_most_one(less(now->job_status.held_ns, held_ns) / ns);
    job->waited_share = at_most_one(less(now->job_status.waited_ns, waited_ns) / ns);
  }
}

/* ---- what it is ---- */

int top_model_make(struct top_model *model, struct gs_msg *msgs, size_t count,
                   const struct top_model *before) {
  *model = (struct top_model){0};
  if (status_read(&model->status, msgs, count) < 0)
    return -ENOMEM;
  model->gpus = calloc(model->status.gpu_count + 1, sizeof *model->gpus);
  model->jobs = calloc(model->status.job_count + 1, sizeof *model->jobs);
  if (!model->gpus || !model->jobs) {
    top_model_clear(model);
    return -ENOMEM;
  }
  for (size_t i = 0; i < model->status.gpu_count; i++)
    model->gpus[i].figures = &model->status.gpus[i];
  for (size_t i = 0; i < model->status.job_count; i++) {
    struct top_job *job = &model->jobs[i];
    job->figures = &model->status.jobs[i];
    snprintf(job->user, sizeof job->user, "%s", user_name(job->figures->job->job_status.uid));
  }
  rate_all(model, before);
  return 0;
}

void top_model_clear(struct top_model *model) {
  status_free(&model->status);
  free(model->gpus);
  free(model->jobs);
  *model = (struct top_model){0};
}

/* Where there is no room for all, the most important ones are shown. */
static const struct {
  const char *title;
  int width; /* below 0: to the left */
  int importance;
} columns[TOP_COLUMNS] = {
    [TOP_JOB] = {"JOB", 6, 15},       [TOP_GPU] = {"GPU", 3, 14},     [TOP_PID] = {"PID", 8, 3},
    [TOP_USER] = {"USER", -10, 10},   [TOP_NAME] = {"NAME", -16, 13}, [TOP_CLASS] = {"CLASS", -5, 9},
    [TOP_STATE] = {"STATE", -14, 12}, [TOP_HELD] = {"GPU%", 6, 11},   [TOP_WAITED] = {"WAIT%", 6, 7},
    [TOP_CARD] = {"ON CARD", 10, 8},  [TOP_AWAY] = {"AWAY", 10, 6},   [TOP_RATE] = {"RATE", 6, 5},
    [TOP_LIMIT] = {"LIMIT", 10, 1},   [TOP_FROM] = {"FROM", -22, 2},  [TOP_COMMAND] = {"COMMAND", -20, 4},
};

/* ---- lines that grow ---- */

static void trim(char *line) {
  size_t used = strlen(line);
  while (used > 0 && line[used - 1] == ' ')
    line[--used] = '\0';
}

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
  if (model->status.gpu_count < 2)
    left &= ~(1u << TOP_GPU);
  bool commands = false;
  for (size_t i = 0; i < model->status.job_count; i++)
    commands |= *model->status.jobs[i].command->command_status.text;
  if (!commands)
    left &= ~(1u << TOP_COMMAND);
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

static const char *state_text(const struct top_job *job, char text[32]) {
  const struct gs_msg *msg = job->figures->job;
  unsigned flags = msg->job_status.flags;
  const char *word = flags & GS_STATE_STOPPED                   ? "stopped"
                     : flags & GS_STATE_OVERDUE                 ? "overdue"
                     : flags & GS_STATE_TOO_BIG                 ? "too big"
                     : job->figures->terms->terms_status.paused ? "paused"
                     : figures_waits_for_room(job->figures)     ? "waits for room"
                     : figures_waits_for_memory(job->figures)   ? "waits for memory"
                                                                : NULL;
  if (word)
    return word;
  word = figures_state_name(msg->job_status.state);
  snprintf(text, 32, msg->job_status.queue ? "%s (%u)" : "%s", word, msg->job_status.queue);
  return text;
}

/* By state: who holds, then who waits, by their place. */
static double rank_of_state(const struct gs_msg *msg) {
  if (msg->job_status.state == GS_JOB_WAITING)
    return 10 + msg->job_status.queue;
  return msg->job_status.state == GS_JOB_IDLE ? 1e6 : msg->job_status.state == GS_JOB_HOLDING ? 0 : 1;
}

/* What stands in a column; and the number by which that is sorted, 0 if it is by the text. */
static double describe(enum top_column column, const struct top_job *job, char cell[TOP_TEXT_SIZE]) {
  const struct gs_msg *msg = job->figures->job, *terms = job->figures->terms, *wait = job->figures->wait;
  uint64_t bytes = 0;
  double share = 0;
  char state[32];
  *cell = '\0';
  switch (column) {
  case TOP_JOB:
    append_text(cell, TOP_TEXT_SIZE, "%u", msg->job_status.job);
    return msg->job_status.job;
  case TOP_GPU:
    append_text(cell, TOP_TEXT_SIZE, "%s", GPU_NUMBER_TEXT(msg->gpu));
    return msg->gpu;
  case TOP_PID:
    append_text(cell, TOP_TEXT_SIZE, msg->job_status.pid ? "%d" : "-", msg->job_status.pid);
    return msg->job_status.pid;
  case TOP_CLASS:
    append_text(cell, TOP_TEXT_SIZE, "%s", class_short_name(terms->terms_status.class));
    return terms->terms_status.class;
  case TOP_STATE:
    append_text(cell, TOP_TEXT_SIZE, "%s", state_text(job, state));
    return rank_of_state(msg);
  case TOP_HELD:
  case TOP_WAITED:
    share = column == TOP_HELD ? job->held_share : job->waited_share;
    append_text(cell, TOP_TEXT_SIZE, job->rated ? "%.1f" : "-", 100 * share);
    return share;
  case TOP_RATE:
    if (figures_has_limit(wait)) {
      append_text(cell, TOP_TEXT_SIZE, "%.1f%%", 100 * figures_limit_share(wait));
      return figures_limit_share(wait);
    }
    append_text(cell, TOP_TEXT_SIZE, terms->terms_status.rate ? "%u%%" : "-", terms->terms_status.rate);
    return terms->terms_status.rate / 100.0;
  case TOP_CARD:
  case TOP_AWAY:
  case TOP_LIMIT:
    bytes = column == TOP_CARD   ? msg->job_status.resident_bytes
            : column == TOP_AWAY ? figures_away_bytes(msg)
                                 : terms->terms_status.limit_bytes;
    append_text(cell, TOP_TEXT_SIZE, "%s", column == TOP_LIMIT && !bytes ? "-" : BYTES_TEXT(bytes));
    return (double)bytes;
  case TOP_USER:
    append_text(cell, TOP_TEXT_SIZE, "%s", job->user);
    return 0;
  case TOP_NAME:
    append_text(cell, TOP_TEXT_SIZE, "%s", msg->job_status.name);
    return 0;
  case TOP_COMMAND:
    append_text(cell, TOP_TEXT_SIZE, "%s",
                figures_command(job->figures->command, (char[GS_COMMAND_SIZE]){0}));
    return 0;
  default:
    append_text(cell, TOP_TEXT_SIZE, "%s", figures_from(job->figures->origin, (char[FIGURES_FROM_SIZE]){0}));
    return 0;
  }
}

static void put_cell(char *cell, int column, const struct top_job *job) {
  describe((enum top_column)column, job, cell);
  if (column == TOP_FROM && !*cell)
    strcpy(cell, "-");
}

/* <0, 0 or >0: how two stand in a column. */
static int compare_jobs(enum top_column column, const struct top_job *a, const struct top_job *b) {
  char one[TOP_TEXT_SIZE], other[TOP_TEXT_SIZE];
  double x = describe(column, a, one), y = describe(column, b, other);
  bool by_text = column == TOP_USER || column == TOP_NAME || column == TOP_FROM || column == TOP_COMMAND;
  return by_text ? strcmp(one, other) : (x > y) - (x < y);
}

/* What is too long is cut, so that the columns stay where they are. Behind the last one there are none. */
static void append_cell(char *line, int column, const char *text) {
  int size = column == TOP_COLUMNS - 1 ? TOP_TEXT_SIZE : (int)width_of(column);
  append_text(line, TOP_TEXT_SIZE, "%s%*.*s", *line ? " " : "", columns[column].width, size, text);
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
      put_cell(cell, i, job);
      append_cell(line, i, cell);
    }
  trim(line);
}

/* Whether any column has this text, in whatever case. */
static bool has_text(const struct top_job *job, const char *text) {
  char cell[TOP_TEXT_SIZE];
  for (int i = 0; i < TOP_COLUMNS; i++) {
    put_cell(cell, i, job);
    if (strcasestr(cell, text))
      return true;
  }
  return strcasestr(class_name(job->figures->terms->terms_status.class), text);
}

/* ---- the daemon and its GPUs ---- */

void top_text_daemon(char *line, const struct top_model *model) {
  const struct gs_msg *msg = model->status.daemon;
  unsigned long up_s = msg->daemon.uptime_ns / NS_PER_S;
  snprintf(line, TOP_TEXT_SIZE, "gpushare-daemon %s, up %lu:%02lu:%02lu, %zu GPU%s, %u job%s",
           msg->daemon.release, up_s / 3600, up_s / 60 % 60, up_s % 60, model->status.gpu_count,
           model->status.gpu_count == 1 ? "" : "s", msg->daemon.jobs, msg->daemon.jobs == 1 ? "" : "s");
}

void top_text_gpu(char *line, const struct top_gpu *gpu) {
  const struct gs_msg *msg = gpu->figures->gpu;
  uint64_t left_ns = gpu->figures->handover->handover_status.left_ns;
  bool serialized = msg->gpu_status.flags & GS_GPU_SERIALIZED;
  unsigned shown = 0;
  *line = '\0';
  append_text(line, TOP_TEXT_SIZE, "GPU %s %s: %s, %s", GPU_NUMBER_TEXT(msg->gpu), msg->gpu_status.name,
              mode_name(msg->gpu_status.mode), policy_name(msg->gpu_status.policy));
  append_text(line, TOP_TEXT_SIZE, serialized ? ", turns of %.4g s" : ", all run",
              (double)msg->gpu_status.tq_ns / 1e9);
  if (serialized && left_ns != UINT64_MAX)
    append_text(line, TOP_TEXT_SIZE, ", %.1f s left", (double)left_ns / 1e9);
  for (size_t i = 0; i < gpu->figures->job_count && shown < 3; i++) {
    const struct gs_msg *job = gpu->figures->jobs[i].job;
    if (job->job_status.state == GS_JOB_HOLDING)
      append_text(line, TOP_TEXT_SIZE, "%s %u (%s)", shown++ ? "," : "; held by", job->job_status.job,
                  job->job_status.name);
  }
  if (msg->gpu_status.holders > shown)
    append_text(line, TOP_TEXT_SIZE, " and %u more", msg->gpu_status.holders - shown);
  append_text(line, TOP_TEXT_SIZE, "%s, %u wait", shown ? "" : "; held by nobody", msg->gpu_status.waiting);
}

void top_text_handovers(char *line, const struct top_gpu *gpu) {
  if (gpu->rated)
    snprintf(line, TOP_TEXT_SIZE, "hand-overs %.2f/s, %.2f GB/s moved, %.1f %% of the time lost",
             gpu->handovers_per_s, gpu->moved_per_s / 1e9, 100 * gpu->lost_share);
  else
    snprintf(line, TOP_TEXT_SIZE, "hand-overs -/s, - GB/s moved, - %% of the time lost");
}

void top_text_memory(char *line, const struct top_gpu *gpu) {
  snprintf(line, TOP_TEXT_SIZE, "%s on the card, %s away, of %s", BYTES_TEXT(gpu->figures->card_bytes),
           BYTES_TEXT(gpu->figures->away_bytes), BYTES_TEXT(gpu->figures->gpu->gpu_status.capacity_bytes));
}

/* Something that is there is seen, however little it is. */
static size_t cells_of(uint64_t bytes, double bytes_per_cell) {
  size_t cells = (size_t)((double)bytes / bytes_per_cell + 0.5);
  return bytes && !cells ? 1 : cells;
}

void top_text_bar(char *bar, size_t cells, const struct top_gpu *gpu) {
  uint64_t capacity_bytes = gpu->figures->gpu->gpu_status.capacity_bytes,
           card_bytes = gpu->figures->card_bytes;
  uint64_t free_bytes = capacity_bytes > card_bytes ? capacity_bytes - card_bytes : 0;
  double per_cell = (double)(card_bytes + free_bytes + gpu->figures->away_bytes + 1) / (double)cells;
  size_t card = cells_of(card_bytes, per_cell), away = cells_of(gpu->figures->away_bytes, per_cell);
  for (size_t i = 0; i < cells; i++)
    bar[i] = i < card ? TOP_CELL_CARD : i + away >= cells ? TOP_CELL_AWAY : TOP_CELL_FREE;
  bar[cells] = '\0';
}

/* ---- what keys do ---- */

struct top_view top_view_init(uint64_t interval_ns) {
  return (struct top_view){.sort = TOP_JOB, .interval_ns = interval_ns, .page = 1};
}

void top_view_end(struct top_view *view) { free(view->rows); }

const struct top_job *top_view_selected(const struct top_view *view) {
  return view->row_count ? view->rows[view->selected] : NULL;
}

/* ---- order ---- */

static int compare(const void *x, const void *y, void *argument) {
  const struct top_view *view = argument;
  const struct top_job *a = *(const struct top_job *const *)x, *b = *(const struct top_job *const *)y;
  int by_column = compare_jobs(view->sort, a, b), by_gpu = compare_jobs(TOP_GPU, a, b);
  if (by_column)
    return view->descends ? -by_column : by_column;
  return by_gpu ? by_gpu : compare_jobs(TOP_JOB, a, b); /* in the order of arrival */
}

/* By numbers, the largest are the most interesting. */
static void sort_by(struct top_view *view, enum top_column column) {
  view->sort = column;
  view->descends = column >= TOP_HELD && column <= TOP_LIMIT;
}

/* ---- rows ---- */

static void select_row(struct top_view *view, size_t row) {
  if (view->row_count == 0) {
    view->selected = view->first = 0;
    return;
  }
  view->selected = row < view->row_count ? row : view->row_count - 1;
  view->job = view->rows[view->selected]->figures->job->job_status.job;
  view->gpu = view->rows[view->selected]->figures->job->gpu;
  if (view->selected < view->first)
    view->first = view->selected;
  else if (view->selected >= view->first + view->page)
    view->first = view->selected - view->page + 1;
}

/* The job that was selected, wherever it is now; if it is not shown any more, who is in its place. */
static void select_again(struct top_view *view) {
  size_t row = view->selected;
  for (size_t i = 0; i < view->row_count; i++)
    if (view->rows[i]->figures->job->job_status.job == view->job &&
        view->rows[i]->figures->job->gpu == view->gpu)
      row = i;
  if (view->first + view->page > view->row_count)
    view->first = view->row_count > view->page ? view->row_count - view->page : 0;
  select_row(view, row);
}

int top_view_arrange(struct top_view *view, const struct top_model *model) {
  const struct top_job **rows =
      realloc(view->rows, (model->status.job_count + 1) * sizeof(const struct top_job *));
  const char *filter = view->prompt == TOP_PROMPT_FILTER ? view->typed : view->filter;
  view->row_count = 0;
  if (!rows)
    return -ENOMEM;
  view->rows = rows;
  for (size_t i = 0; i < model->status.job_count; i++)
    if (has_text(&model->jobs[i], filter))
      rows[view->row_count++] = &model->jobs[i];
  qsort_r(rows, view->row_count, sizeof(const struct top_job *), compare, view);
  select_again(view);
  return 0;
}

void top_view_resize(struct top_view *view, size_t page) {
  view->page = page ? page : 1;
  select_again(view);
}

/* From a row on, and from the beginning after the last one. */
static void find(struct top_view *view, const char *text, size_t from) {
  for (size_t i = 0; *text && i < view->row_count; i++) {
    size_t row = (from + i) % view->row_count;
    if (has_text(view->rows[row], text)) {
      select_row(view, row);
      return;
    }
  }
}

/* ---- typing ---- */

static void begin_prompt(struct top_view *view, enum top_prompt prompt) {
  view->prompt = prompt;
  strcpy(view->typed, prompt == TOP_PROMPT_FILTER ? view->filter : "");
}

static void accept(struct top_view *view) {
  uint64_t ns;
  if (view->prompt == TOP_PROMPT_FILTER)
    strcpy(view->filter, view->typed);
  else if (view->prompt == TOP_PROMPT_SEARCH && *view->typed)
    strcpy(view->search, view->typed);
  else if (view->prompt == TOP_PROMPT_INTERVAL && parse_duration_ns(view->typed, &ns) == 0 &&
           ns >= TOP_INTERVAL_MIN_NS && ns <= TOP_INTERVAL_MAX_NS)
    view->interval_ns = ns;
  view->prompt = TOP_PROMPT_NONE;
}

static void type(struct top_view *view, int key) {
  size_t used = strlen(view->typed);
  if (key == TOP_KEY_BACKSPACE && used > 0)
    view->typed[used - 1] = '\0';
  else if (key >= ' ' && key <= '~' && used + 1 < sizeof view->typed)
    memcpy(view->typed + used, (const char[]){(char)key, '\0'}, 2);
  if (view->prompt == TOP_PROMPT_SEARCH)
    find(view, view->typed, view->selected);
}

static void press_in_prompt(struct top_view *view, int key) {
  if (key == TOP_KEY_ENTER) {
    accept(view);
  } else if (key == TOP_KEY_ESCAPE) {
    if (view->prompt == TOP_PROMPT_FILTER)
      *view->filter = '\0';
    view->prompt = TOP_PROMPT_NONE;
  } else if (key == TOP_KEY_F3 && view->prompt == TOP_PROMPT_SEARCH) {
    find(view, view->typed, view->selected + 1);
  } else {
    type(view, key);
  }
}

/* ---- keys ---- */

static void scale_interval(struct top_view *view, bool longer) {
  uint64_t ns = longer ? view->interval_ns * 2 : view->interval_ns / 2;
  view->interval_ns = ns < TOP_INTERVAL_MIN_NS   ? TOP_INTERVAL_MIN_NS
                      : ns > TOP_INTERVAL_MAX_NS ? TOP_INTERVAL_MAX_NS
                                                 : ns;
}

/* False: it does not move. */
static bool move(struct top_view *view, int key) {
  size_t row = view->selected, page = view->page;
  if (key == TOP_KEY_UP)
    row = row ? row - 1 : 0;
  else if (key == TOP_KEY_DOWN)
    row++;
  else if (key == TOP_KEY_PAGE_UP)
    row = row > page ? row - page : 0;
  else if (key == TOP_KEY_PAGE_DOWN)
    row += page;
  else if (key == TOP_KEY_HOME || key == TOP_KEY_END)
    row = key == TOP_KEY_HOME ? 0 : SIZE_MAX;
  else
    return false;
  select_row(view, row);
  return true;
}

static void press(struct top_view *view, int key) {
  static const struct {
    int key;
    enum top_column column;
  } sorts[] = {{'N', TOP_JOB}, {'P', TOP_HELD}, {'M', TOP_CARD}, {'T', TOP_WAITED}};
  const struct top_job *selected = top_view_selected(view);
  bool next = key == '>' || key == '.' || key == TOP_KEY_F6;
  for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
    if (key == sorts[i].key)
      sort_by(view, sorts[i].column);
  if (key == 'q' || key == TOP_KEY_F10) {
    view->quits = true;
  } else if (key == 'h' || key == '?' || key == TOP_KEY_F1) {
    view->helps = true;
  } else if (key == '/' || key == TOP_KEY_F3) {
    begin_prompt(view, TOP_PROMPT_SEARCH);
  } else if (key == 'n') {
    find(view, view->search, view->selected + 1);
  } else if (key == '\\' || key == TOP_KEY_F4) {
    begin_prompt(view, TOP_PROMPT_FILTER);
  } else if (next || key == '<' || key == ',') {
    sort_by(view, (enum top_column)(((int)view->sort + (next ? 1 : TOP_COLUMNS - 1)) % TOP_COLUMNS));
  } else if (key == 'I') {
    view->descends = !view->descends;
  } else if (key == 'd') {
    begin_prompt(view, TOP_PROMPT_INTERVAL);
  } else if (key == '+' || key == '-') {
    scale_interval(view, key == '+');
  } else if (key == 'p' && selected) {
    view->ordered_job = selected->figures->job->job_status.job;
    view->pauses = !selected->figures->terms->terms_status.paused;
  } else if (key == 'w' || key == TOP_KEY_ENTER) {
    view->explains = !view->explains;
  } else if (key == TOP_KEY_ESCAPE) {
    view->explains = false;
  }
}

void top_view_press(struct top_view *view, int key) {
  view->ordered_job = 0;
  if (view->prompt != TOP_PROMPT_NONE)
    press_in_prompt(view, key);
  else if (view->helps)
    view->helps = false;
  else if (!move(view, key))
    press(view, key);
}
