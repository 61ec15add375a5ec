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

static int compare(const void *x, const void *y, void *argument) {
  const struct top_view *view = argument;
  const struct top_job *a = *(const struct top_job *const *)x, *b = *(const struct top_job *const *)y;
  int by_column = top_text_compare(view->sort, a, b), by_gpu = top_text_compare(TOP_GPU, a, b);
  if (by_column)
    return view->descends ? -by_column : by_column;
  return by_gpu ? by_gpu : top_text_compare(TOP_JOB, a, b); /* in the order of arrival */
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
    view->ordered_job = selected->figures.job->job_status.job;
    view->pauses = !selected->figures.terms->terms_status.paused;
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
