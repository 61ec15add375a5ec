/* top_view.h - gpusharectl top: which jobs are shown, in which order, which one is selected, and what keys
 * make of that. Pure: knows no terminal. */
#ifndef GS_CTL_TOP_VIEW_H
#define GS_CTL_TOP_VIEW_H

#include "ctl/top_model.h"

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
