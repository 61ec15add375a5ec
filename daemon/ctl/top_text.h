/* top_text.h - gpusharectl top: a model's lines, for screens and pipes. Pure. */
#ifndef GS_CTL_TOP_TEXT_H
#define GS_CTL_TOP_TEXT_H

#include "ctl/top_model.h"

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

/* Whether any column has this text, in whatever case. */
bool top_text_has(const struct top_job *job, const char *text);

#endif
