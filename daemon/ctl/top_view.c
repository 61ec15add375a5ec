/* top_view.c - gpusharectl top: rows, selection and keys. */
#include "ctl/top_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/parse.h"

struct top_view top_view_init(uint64_t interval_ns) {
  return (struct top_view){.sort = TOP_JOB, .interval_ns = interval_ns, .page = 1};
}

void top_view_end(struct top_view *view) { free(view->rows); }

const struct top_job *top_view_selected(const struct top_view *view) {
  return view->row_count ? view->rows[view->selected] : NULL;
}

/* ---- order ---- */

static int order(double a, double b) { return (a > b) - (a < b); }

static int order_of_arrival(const struct top_job *a, const struct top_job *b) {
  int by_gpu = order(a->figures.job->gpu, b->figures.job->gpu);
  return by_gpu ? by_gpu : order(a->figures.job->job_status.job, b->figures.job->job_status.job);
}

/* Who holds, then who waits, by their place. */
static double rank_of_state(const struct top_job *job) {
  const struct gs_msg *msg = job->figures.job;
  if (msg->job_status.state == GS_JOB_WAITING)
    return 10 + msg->job_status.queue;
  return msg->job_status.state == GS_JOB_IDLE ? 1e6 : msg->job_status.state == GS_JOB_HOLDING ? 0 : 1;
}

static double rate_of(const struct job_figures *job) {
  return figures_has_limit(job->wait) ? figures_limit_share(job->wait)
                                      : job->terms->terms_status.rate / 100.0;
}

static int order_by(enum top_column column, const struct top_job *a, const struct top_job *b) {
  const struct gs_msg *x = a->figures.job, *y = b->figures.job;
  switch (column) {
  case TOP_JOB:
    return order(x->job_status.job, y->job_status.job);
  case TOP_GPU:
    return order(x->gpu, y->gpu);
  case TOP_PID:
    return order(x->job_status.pid, y->job_status.pid);
  case TOP_USER:
    return strcmp(a->user, b->user);
  case TOP_NAME:
    return strcmp(x->job_status.name, y->job_status.name);
  case TOP_CLASS:
    return order(a->figures.terms->terms_status.class, b->figures.terms->terms_status.class);
  case TOP_STATE:
    return order(rank_of_state(a), rank_of_state(b));
  case TOP_HELD:
    return order(a->held_share, b->held_share);
  case TOP_WAITED:
    return order(a->waited_share, b->waited_share);
  case TOP_CARD:
    return order((double)x->job_status.resident_bytes, (double)y->job_status.resident_bytes);
  case TOP_AWAY:
    return order((double)a->away_bytes, (double)b->away_bytes);
  case TOP_RATE:
    return order(rate_of(&a->figures), rate_of(&b->figures));
  case TOP_LIMIT:
    return order((double)a->figures.terms->terms_status.limit_bytes,
                 (double)b->figures.terms->terms_status.limit_bytes);
  default:
    return strcmp(a->from, b->from);
  }
}

static int compare(const void *x, const void *y, void *argument) {
  const struct top_view *view = argument;
  const struct top_job *a = *(const struct top_job *const *)x, *b = *(const struct top_job *const *)y;
  int by_column = order_by(view->sort, a, b);
  return by_column == 0 ? order_of_arrival(a, b) : view->descends ? -by_column : by_column;
}

static bool is_number(enum top_column column) { return column >= TOP_HELD && column <= TOP_LIMIT; }

/* By numbers, the largest are the most interesting. */
static void sort_by(struct top_view *view, enum top_column column) {
  view->sort = column;
  view->descends = is_number(column);
}

/* ---- rows ---- */

static void select_row(struct top_view *view, size_t row) {
  if (view->row_count == 0) {
    view->selected = view->first = 0;
    return;
  }
  view->selected = row < view->row_count ? row : view->row_count - 1;
  view->job = view->rows[view->selected]->figures.job->job_status.job;
  view->gpu = view->rows[view->selected]->figures.job->gpu;
  if (view->selected < view->first)
    view->first = view->selected;
  else if (view->selected >= view->first + view->page)
    view->first = view->selected - view->page + 1;
}

/* The job that was selected, wherever it is now; if it is not shown any more, who is in its place. */
static void select_again(struct top_view *view) {
  size_t row = view->selected;
  for (size_t i = 0; i < view->row_count; i++)
    if (view->rows[i]->figures.job->job_status.job == view->job &&
        view->rows[i]->figures.job->gpu == view->gpu)
      row = i;
  if (view->first + view->page > view->row_count)
    view->first = view->row_count > view->page ? view->row_count - view->page : 0;
  select_row(view, row);
}

int top_view_arrange(struct top_view *view, const struct top_model *model) {
  const struct top_job **rows = realloc(view->rows, (model->job_count + 1) * sizeof(const struct top_job *));
  const char *filter = view->prompt == TOP_PROMPT_FILTER ? view->typed : view->filter;
  view->row_count = 0;
  if (!rows)
    return -ENOMEM;
  view->rows = rows;
  for (size_t i = 0; i < model->job_count; i++)
    if (top_text_has(&model->jobs[i], filter))
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
    if (top_text_has(view->rows[row], text)) {
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

static void order_pause(struct top_view *view) {
  const struct top_job *job = top_view_selected(view);
  if (!job)
    return;
  view->ordered_job = job->figures.job->job_status.job;
  view->pauses = !job->figures.terms->terms_status.paused;
}

static void step_sort(struct top_view *view, int step) {
  sort_by(view, (enum top_column)(((int)view->sort + step + TOP_COLUMNS) % TOP_COLUMNS));
}

static void scale_interval(struct top_view *view, bool longer) {
  uint64_t ns = longer ? view->interval_ns * 2 : view->interval_ns / 2;
  view->interval_ns = ns < TOP_INTERVAL_MIN_NS   ? TOP_INTERVAL_MIN_NS
                      : ns > TOP_INTERVAL_MAX_NS ? TOP_INTERVAL_MAX_NS
                                                 : ns;
}

/* False: it does not move. */
static bool move(struct top_view *view, int key) {
  size_t row = view->selected;
  switch (key) {
  case TOP_KEY_UP:
    select_row(view, row ? row - 1 : 0);
    return true;
  case TOP_KEY_DOWN:
    select_row(view, row + 1);
    return true;
  case TOP_KEY_PAGE_UP:
    select_row(view, row > view->page ? row - view->page : 0);
    return true;
  case TOP_KEY_PAGE_DOWN:
    select_row(view, row + view->page);
    return true;
  case TOP_KEY_HOME:
    select_row(view, 0);
    return true;
  case TOP_KEY_END:
    select_row(view, SIZE_MAX);
    return true;
  default:
    return false;
  }
}

static void press(struct top_view *view, int key) {
  switch (key) {
  case 'q':
  case TOP_KEY_F10:
    view->quits = true;
    break;
  case 'h':
  case '?':
  case TOP_KEY_F1:
    view->helps = true;
    break;
  case '/':
  case TOP_KEY_F3:
    begin_prompt(view, TOP_PROMPT_SEARCH);
    break;
  case 'n':
    find(view, view->search, view->selected + 1);
    break;
  case '\\':
  case TOP_KEY_F4:
    begin_prompt(view, TOP_PROMPT_FILTER);
    break;
  case '>':
  case '.':
  case TOP_KEY_F6:
    step_sort(view, 1);
    break;
  case '<':
  case ',':
    step_sort(view, -1);
    break;
  case 'I':
    view->descends = !view->descends;
    break;
  case 'N':
    sort_by(view, TOP_JOB);
    break;
  case 'P':
    sort_by(view, TOP_HELD);
    break;
  case 'M':
    sort_by(view, TOP_CARD);
    break;
  case 'T':
    sort_by(view, TOP_WAITED);
    break;
  case 'd':
    begin_prompt(view, TOP_PROMPT_INTERVAL);
    break;
  case '+':
  case '-':
    scale_interval(view, key == '+');
    break;
  case 'p':
    order_pause(view);
    break;
  case 'w':
  case TOP_KEY_ENTER:
    view->explains = !view->explains;
    break;
  case TOP_KEY_ESCAPE:
    view->explains = false;
    break;
  default:
    break;
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
