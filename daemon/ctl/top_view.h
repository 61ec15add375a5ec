/* top_view.h - gpusharectl top, as far as it knows no terminal: what is shown of GPUs and jobs, from one
 * status and the one before; its lines, for screens and pipes; which jobs are shown, in which order, which
 * one is selected, and what keys make of that. Pure. */
#ifndef GS_CTL_TOP_VIEW_H
#define GS_CTL_TOP_VIEW_H

#include <stddef.h>

#include "ctl/figures.h"

/* ---- the model ---- */

struct top_gpu {
  const struct gpu_figures *figures;
  bool rated; /* since the status before: */
  double handovers_per_s, moved_per_s;
  double lost_share; /* of the time, in hand-overs */
};

struct top_job {
  const struct job_figures *figures;
  char user[32];
  bool rated;                      /* since the status before: */
  double held_share, waited_share; /* of the time */
};

struct top_model {
  struct status status;
  struct top_gpu *gpus; /* so many, and in this order, as of the status */
  struct top_job *jobs;
};

/* Of a daemon's whole answer, which it takes over (from malloc). `before`: an earlier one, perhaps of another
 * daemon, or an empty one. 0 or -ENOMEM, and *model is empty. */
int top_model_make(struct top_model *model, struct gs_msg *msgs, size_t count,
                   const struct top_model *before);

/* It is empty then. */
void top_model_clear(struct top_model *model);

/* ---- as lines ---- */

/* Of the jobs' table, from left to right. */
enum top_column {
  TOP_JOB,
  TOP_GPU,
  TOP_PID,
  TOP_USER,
  TOP_NAME,
  TOP_CLASS,
  TOP_STATE,
  TOP_HELD,
  TOP_WAITED,
  TOP_CARD,
  TOP_AWAY,
  TOP_RATE,
  TOP_LIMIT,
  TOP_FROM,
  TOP_COMMAND,
  TOP_COLUMNS
};

#define TOP_TEXT_SIZE 512 /* of every line */

/* Those that a width has room for, as bits; the most telling ones, and the first one in any case. There is no
 * TOP_COMMAND if no command may be seen. */
unsigned top_text_columns(size_t width, const struct top_model *model);

/* The table's head, with a mark at a column (TOP_COLUMNS: none), and a row. */
void top_text_head(char *line, unsigned columns, enum top_column marked);
void top_text_job(char *line, unsigned columns, const struct top_job *job);

/* Of the daemon; of a GPU: its settings and who holds it, its hand-overs. */
void top_text_daemon(char *line, const struct top_model *model);
void top_text_gpu(char *line, const struct top_gpu *gpu);
void top_text_handovers(char *line, const struct top_gpu *gpu);

/* The memory of a GPU: "[|||||....~~~~] 5.0 GiB on the card, 4.0 GiB away, of 9.0 GiB". A bar of `cells`, and
 * what is behind it. */
enum top_cell { TOP_CELL_CARD = '|', TOP_CELL_FREE = '.', TOP_CELL_AWAY = '~' };
void top_text_bar(char *bar, size_t cells, const struct top_gpu *gpu);
void top_text_memory(char *line, const struct top_gpu *gpu);

/* ---- the view ---- */

/* Beside characters. */
enum top_key {
  TOP_KEY_UP = 0x1000,
  TOP_KEY_DOWN,
  TOP_KEY_PAGE_UP,
  TOP_KEY_PAGE_DOWN,
  TOP_KEY_HOME,
  TOP_KEY_END,
  TOP_KEY_ENTER,
  TOP_KEY_ESCAPE,
  TOP_KEY_BACKSPACE,
  TOP_KEY_F1,
  TOP_KEY_F3 = TOP_KEY_F1 + 2,
  TOP_KEY_F4,
  TOP_KEY_F6 = TOP_KEY_F1 + 5,
  TOP_KEY_F10 = TOP_KEY_F1 + 9
};

/* What is typed, and where it goes. */
enum top_prompt { TOP_PROMPT_NONE, TOP_PROMPT_SEARCH, TOP_PROMPT_FILTER, TOP_PROMPT_INTERVAL };

#define TOP_INTERVAL_MIN_NS (NS_PER_S / 10)
#define TOP_INTERVAL_MAX_NS (3600 * NS_PER_S)

struct top_view {
  enum top_column sort;
  bool descends;
  char filter[48], search[48], typed[48];
  enum top_prompt prompt;
  uint64_t interval_ns;
  bool helps, explains, quits;
  uint32_t ordered_job; /* by the last key: 0: none; to be paused, else resumed */
  bool pauses;
  const struct top_job **rows; /* of the model that was arranged last; from malloc */
  size_t row_count;
  size_t selected, first, page; /* rows: the selected one, the topmost one; how many have room */
  uint32_t job, gpu;            /* of the selected one */
};

struct top_view top_view_init(uint64_t interval_ns);

/* Rows and selection, for this model. Afterwards the model must stay until the next time. 0 or -ENOMEM: no
 * rows. */
int top_view_arrange(struct top_view *view, const struct top_model *model);

/* So many rows have room. */
void top_view_resize(struct top_view *view, size_t page);

/* A character or enum top_key. The view is arranged anew after it. */
void top_view_press(struct top_view *view, int key);

/* NULL: there is none. */
const struct top_job *top_view_selected(const struct top_view *view);

void top_view_end(struct top_view *view);

#endif
