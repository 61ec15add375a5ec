/* top_model.h - gpusharectl top: what is shown of GPUs and jobs, from one status and the one before; and its
 * lines, for screens and pipes. Pure. */
#ifndef GS_CTL_TOP_MODEL_H
#define GS_CTL_TOP_MODEL_H

#include <stddef.h>

#include "ctl/figures.h"

struct top_gpu {
  struct gpu_figures figures;
  uint64_t card_bytes, away_bytes; /* of its jobs: on the card, and not */
  bool rated;                      /* since the status before: */
  double handovers_per_s, moved_per_s;
  double lost_share; /* of the time, in hand-overs */
};

struct top_job {
  struct job_figures figures;
  const struct top_gpu *gpu;
  char user[32], from[FIGURES_FROM_SIZE];
  uint64_t away_bytes;
  bool waits_for_room;
  bool rated;                      /* since the status before: */
  double held_share, waited_share; /* of the time */
};

struct top_model {
  struct gs_msg *msgs; /* all others point there */
  const struct gs_msg *end;
  const struct gs_msg *daemon; /* STATUS_DAEMON; NULL: nothing is known */
  struct top_gpu *gpus;
  struct top_job *jobs; /* in the order of their GPUs */
  size_t gpu_count, job_count;
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
  TOP_COLUMNS
};

#define TOP_TEXT_SIZE 512 /* of every line */

/* Those that a width has room for, as bits; the most telling ones, and the first one in any case. */
unsigned top_text_columns(size_t width, const struct top_model *model);

/* The table's head, with a mark at a column (TOP_COLUMNS: none), and a row. */
void top_text_head(char *line, unsigned columns, enum top_column marked);
void top_text_job(char *line, unsigned columns, const struct top_job *job);

/* Of the daemon; of a GPU: its settings and who holds it, its hand-overs. */
void top_text_daemon(char *line, const struct top_model *model);
void top_text_gpu(char *line, const struct top_model *model, const struct top_gpu *gpu);
void top_text_handovers(char *line, const struct top_gpu *gpu);

/* The memory of a GPU: "[|||||....~~~~] 5.0 GiB on the card, 4.0 GiB away, of 9.0 GiB". A bar of `cells`, and
 * what is behind it. */
enum top_cell { TOP_CELL_CARD = '|', TOP_CELL_FREE = '.', TOP_CELL_AWAY = '~' };
void top_text_bar(char *bar, size_t cells, const struct top_gpu *gpu);
void top_text_memory(char *line, const struct top_gpu *gpu);

/* <0, 0 or >0: how two stand in a column. */
int top_text_compare(enum top_column column, const struct top_job *a, const struct top_job *b);

/* Whether any column has this text, in whatever case. */
bool top_text_has(const struct top_job *job, const char *text);

#endif
