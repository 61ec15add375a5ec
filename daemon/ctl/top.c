/* top.c - gpusharectl top: the daemon is asked again and again; line by line, for pipes; and on a terminal,
 * with ncurses: drawing, keys, and the loop. */
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifndef GPUSHARE_NO_NCURSES
#include <curses.h>
#endif

#include "common/clock.h"
#include "common/wire.h"
#include "ctl/ctl.h"
#include "ctl/table.h"
#include "ctl/top_view.h"

/* ---- line by line, for pipes ---- */

#define INTERVAL_NS (2 * NS_PER_S)
#define FIRST_NS (NS_PER_S / 4) /* whoever asks for a line does not wait long for it */

static int print_lines(const struct top_model *model) {
  char line[TOP_TEXT_SIZE];
  size_t screen_width = table_screen_width(), width = screen_width ? screen_width : TOP_TEXT_SIZE;
  unsigned shown = top_text_columns(width, model);
  top_text_daemon(line, model);
  puts(line);
  for (const struct top_gpu *gpu = model->gpus; gpu < model->gpus + model->status.gpu_count; gpu++) {
    top_text_gpu(line, gpu);
    puts(line);
    top_text_memory(line, gpu);
    printf("  %s\n", line);
    top_text_handovers(line, gpu);
    printf("  %s\n", line);
    if (*figures_card(gpu->figures, line))
      printf("  %s\n", line);
  }
  top_text_head(line, shown, TOP_COLUMNS);
  if (model->status.job_count)
    puts(line);
  for (size_t i = 0; i < model->status.job_count; i++) {
    top_text_job(line, shown, &model->jobs[i]);
    printf("%.*s\n", (int)width, line);
  }
  puts("");
  return CTL_OK;
}

static int print_json(const struct top_model *model) { return output_line(status_json(&model->status)); }

/* The next status in place of the last one. */
static int look(int fd, struct top_model *model) {
  struct gs_msg *msgs;
  struct top_model next;
  size_t count;
  struct ask_error error;
  int code = ask_say(ask_try_status(fd, &msgs, &count, &error), &error);
  if (code != CTL_OK)
    return code;
  if (top_model_make(&next, msgs, count, model) < 0 || !next.status.daemon)
    return command_error(CTL_REFUSED, "out of memory");
  top_model_clear(model);
  *model = next;
  return CTL_OK;
}

static void pause_until(uint64_t at_ns) {
  struct timespec at = clock_timespec(at_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
    ;
}

/* Rates need two looks: the first one is not shown, and the second one is after first_ns. `times` 0: without
 * end. */
static int run_batch(int fd, uint64_t first_ns, uint64_t interval_ns, int64_t times,
                     int (*show)(const struct top_model *)) {
  struct top_model model = {0};
  uint64_t at_ns = clock_now_ns();
  int code = look(fd, &model);
  for (int64_t i = 0; code == CTL_OK && (times == 0 || i < times); i++) {
    at_ns += i ? interval_ns : first_ns;
    pause_until(at_ns);
    code = look(fd, &model);
    if (code == CTL_OK)
      code = show(&model);
    fflush(stdout);
    if (ferror(stdout))
      code = CTL_REFUSED; /* ctl_main.c says why */
  }
  top_model_clear(&model);
  return code;
}

/* ---- on a terminal ---- */

#ifdef GPUSHARE_NO_NCURSES

static int top_live(const char *path, uint64_t interval_ns) {
  (void)path, (void)interval_ns;
  return command_error(CTL_REFUSED,
                       "this build has no ncurses: use top --batch, or install libncurses-dev and "
                       "build gpushare again");
}

#else

/* ---- the daemon: asked again and again, without waiting; one that is gone is looked for until it is back
 * ---- */

#define RETRY_NS NS_PER_S

struct source {
  const char *path;
  int fd; /* -1: not connected */
  bool asking;
  uint64_t asked_ns;      /* last; 0: never */
  uint64_t full_since_ns; /* as many wait for the daemon as may; */
  uint64_t again_ns;      /* then it is asked again; 0: the usual time */
  struct answer answer;   /* as far as it has come */
  struct ask_error error; /* empty: all is well */
};

static void disconnect(struct source *source) {
  answer_drop(&source->answer);
  if (source->fd >= 0)
    close(source->fd);
  source->fd = -1;
  source->asking = false;
}

/* When step_source has something to do, even if the connection is not readable. */
static uint64_t due_ns(const struct source *source, uint64_t interval_ns) {
  if (source->asked_ns == 0)
    return 0;
  if (source->asking)
    return source->asked_ns + ASK_ANSWER_MS * NS_PER_MS;
  if (source->again_ns)
    return source->again_ns;
  bool lost = *source->error.text;
  return source->asked_ns + (lost && interval_ns > RETRY_NS ? RETRY_NS : interval_ns);
}

static int ask(struct source *source) {
  int code = CTL_OK;
  if (source->fd < 0) {
    code = ask_connect_now(source->path, &source->fd, &source->error);
    source->again_ns = wire_connect_again_ns(code == ASK_MORE ? -EAGAIN : 0, &source->full_since_ns,
                                             ASK_ANSWER_MS * NS_PER_MS);
    if (code == ASK_MORE && !source->again_ns)
      code = ask_silence(&source->error);
  }
  if (code == CTL_OK)
    code = answer_begin(&source->answer, source->fd, &source->error);
  source->asking = code == CTL_OK;
  return source->asking ? ASK_MORE : code;
}

/* Do what is to be done now. True: source->answer is whole; whoever calls takes it. */
static bool step_source(struct source *source, uint64_t interval_ns, uint64_t now_ns) {
  struct pollfd readable = {.fd = source->fd, .events = POLLIN};
  bool due = now_ns >= due_ns(source, interval_ns);
  int code = ASK_MORE;
  if (source->asking) {
    if (poll(&readable, 1, 0) > 0)
      code = answer_take(&source->answer, source->fd, &source->error);
    if (code == ASK_MORE && due)
      code = ask_silence(&source->error);
  } else if (due) {
    source->asked_ns = now_ns;
    code = ask(source);
  }
  if (code == CTL_OK) {
    source->asking = false;
    *source->error.text = '\0';
  } else if (code != ASK_MORE) {
    disconnect(source);
  }
  return code == CTL_OK;
}

/* ---- what is shown ---- */

struct live {
  struct source source;
  struct top_model model;
  struct top_view view;
  struct ask_error said; /* of the last key's order; empty: nothing */
};

enum { COLOR_CARD_ = 1, COLOR_AWAY_, COLOR_BAD_, COLOR_KEY_ };

/* ---- the terminal ---- */

static bool colors_wanted(void) {
  const char *no_color = getenv("NO_COLOR");
  return !(no_color && *no_color) && has_colors();
}

static SCREEN *begin_screen(void) {
  setlocale(LC_CTYPE, ""); /* no more than that: numbers stay as they are */
  SCREEN *screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? newterm(NULL, stdout, stdin) : NULL;
  if (!screen)
    return NULL;
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);
  curs_set(0);
  if (!colors_wanted())
    return screen;
  start_color();
  use_default_colors();
  init_pair(COLOR_CARD_, COLOR_GREEN, -1);
  init_pair(COLOR_AWAY_, COLOR_YELLOW, -1);
  init_pair(COLOR_BAD_, COLOR_RED, -1);
  init_pair(COLOR_KEY_, COLOR_BLACK, COLOR_CYAN);
  return screen;
}

/* Without colours as bold, or as what stands out. */
static attr_t look_of(int color) {
  if (!colors_wanted())
    return color == COLOR_KEY_ ? A_REVERSE : color == COLOR_BAD_ ? A_BOLD : A_NORMAL;
  return COLOR_PAIR(color) | (color == COLOR_BAD_ ? A_BOLD : A_NORMAL);
}

static void draw(int y, int x, attr_t attributes, const char *text) {
  if (y >= LINES || x >= COLS)
    return;
  attrset(attributes);
  mvaddnstr(y, x, text, COLS - x);
  attrset(A_NORMAL);
}

/* As wide as the screen. */
static void draw_row(int y, attr_t attributes, const char *text) {
  char row[TOP_TEXT_SIZE];
  snprintf(row, sizeof row, "%-*s", COLS < TOP_TEXT_SIZE ? COLS : TOP_TEXT_SIZE - 1, text);
  draw(y, 0, attributes, row);
}

/* ---- above the table ---- */

static void draw_title(const struct live *live) {
  char line[TOP_TEXT_SIZE + 16], every[64];
  if (*live->source.error.text) {
    snprintf(line, sizeof line, "%s (trying again)", live->source.error.text);
    draw(0, 0, look_of(COLOR_BAD_), line);
    return;
  }
  if (!live->model.status.daemon)
    return;
  top_text_daemon(line, &live->model);
  draw(0, 0, A_BOLD, line);
  snprintf(every, sizeof every, "every %g s", (double)live->view.interval_ns / 1e9);
  draw(0, (int)strlen(line) + 2, A_NORMAL, every);
}

/* As much of a bar as there is room for beside the figures. */
static void draw_memory(int y, const struct top_gpu *gpu) {
  char line[TOP_TEXT_SIZE], bar[41];
  top_text_memory(line, gpu);
  int cells = COLS - (int)strlen(line) - 5;
  if (cells < 10) {
    draw(y, 2, A_NORMAL, line);
    return;
  }
  cells = cells > 40 ? 40 : cells;
  top_text_bar(bar, (size_t)cells, gpu);
  draw(y, 2, A_NORMAL, "[");
  for (int x = 0; bar[x]; x++) {
    int color = bar[x] == TOP_CELL_CARD ? COLOR_CARD_ : bar[x] == TOP_CELL_AWAY ? COLOR_AWAY_ : 0;
    draw(y, x + 3, look_of(color), (const char[]){bar[x], '\0'});
  }
  draw(y, cells + 3, A_NORMAL, "]");
  draw(y, cells + 5, A_NORMAL, line);
}

static void draw_gpu(int y, int lines, const struct top_gpu *gpu) {
  char line[TOP_TEXT_SIZE];
  if (lines >= 1) {
    top_text_gpu(line, gpu);
    draw(y, 0, A_NORMAL, line);
  }
  if (lines < 3)
    return;
  draw_memory(y + 1, gpu);
  top_text_handovers(line, gpu);
  draw(y + 2, 2, A_NORMAL, line);
  if (lines > 3)
    draw(y + 3, 2, A_NORMAL, figures_card(gpu->figures, line));
}

/* ---- below the table ---- */

static void draw_bottom(const struct live *live, int y) {
  static const char *const prompts[] = {[TOP_PROMPT_SEARCH] = "Search: ",
                                        [TOP_PROMPT_FILTER] = "Filter: ",
                                        [TOP_PROMPT_INTERVAL] = "Seconds between refreshes: "};
  static const char *const keys[][2] = {{"F1", "Help"}, {"F3", "Search"}, {"F4", "Filter"},
                                        {"F6", "Sort"}, {"Enter", "Why"}, {"F10", "Quit"}};
  char line[TOP_TEXT_SIZE];
  if (live->view.prompt != TOP_PROMPT_NONE) {
    snprintf(line, sizeof line, "%s%s_", prompts[live->view.prompt], live->view.typed);
    draw_row(y, A_REVERSE, line);
  } else if (*live->said.text) {
    draw(y, 0, look_of(COLOR_BAD_), live->said.text);
  } else {
    int x = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
      draw(y, x, A_NORMAL, keys[i][0]);
      x += (int)strlen(keys[i][0]);
      draw(y, x, look_of(COLOR_KEY_), keys[i][1]);
      x += (int)strlen(keys[i][1]) + 1;
    }
    if (*live->view.filter) {
      snprintf(line, sizeof line, "only: %s", live->view.filter);
      draw(y, 48, A_BOLD, line);
    }
  }
}

/* ---- the table ---- */

static void draw_table(const struct live *live, int y) {
  const struct top_view *view = &live->view;
  unsigned columns = top_text_columns((size_t)COLS, &live->model);
  char line[TOP_TEXT_SIZE];
  top_text_head(line, columns, view->sort);
  draw_row(y, look_of(COLOR_KEY_), line);
  for (size_t row = view->first; row < view->row_count && row < view->first + view->page; row++) {
    const struct gs_msg *job = view->rows[row]->figures->job;
    bool bad = job->job_status.flags & (GS_STATE_OVERDUE | GS_STATE_TOO_BIG | GS_STATE_STOPPED);
    top_text_job(line, columns, view->rows[row]);
    draw_row(++y,
             row == view->selected                     ? A_REVERSE
             : bad                                     ? look_of(COLOR_BAD_)
             : job->job_status.state == GS_JOB_HOLDING ? look_of(COLOR_CARD_)
                                                       : A_NORMAL,
             line);
  }
}

/* ---- a screen ---- */

static void draw_help(void) {
  static const char *const lines[] = {
      ("gpusharectl top " GPUSHARE_VERSION),
      "",
      "[||||....~~~~]  memory: on the card, free, away from it",
      "GPU%   share of the time since the last refresh in which the job held the GPU",
      "WAIT%  likewise, in which it waited for it",
      "",
      "Up Down PgUp PgDn Home End   select a job",
      "Enter w      why it waits, or what limits it",
      "F3 /         search; F3, n: the next one",
      "F4 \\         show only what has a text; Esc: everything",
      "F6 > <       sort by the next column, or the one before",
      "N P M T      sort by job, GPU%, memory on the card, WAIT%",
      "I            turn the order round",
      "d + -        seconds between refreshes",
      "p            pause the selected job, or resume it",
      "F10 q        quit",
      "",
      "Any key goes back."};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    draw((int)i, 0, i ? A_NORMAL : A_BOLD, lines[i]);
}

static void draw_all(struct live *live) {
  /* Of each GPU four lines, if NVML tells of one, or three or one, or none: some rows of the table shall be
   * seen, too. */
  int gpus = (int)live->model.status.gpu_count, left = LINES - 6, y = 1, cards = 0;
  for (int i = 0; i < gpus; i++)
    cards += live->model.status.gpus[i].card != NULL;
  int lines = cards && gpus * 4 <= left ? 4 : gpus * 3 <= left ? 3 : gpus <= left ? 1 : 0;
  /* What the selected job does or waits for: as many lines as it takes. */
  const struct top_job *job = live->view.explains ? top_view_selected(&live->view) : NULL;
  char *text = job ? why_text(&live->model.status, job->figures) : NULL;
  int length = text ? (int)strlen(text) : 0;
  int bottom = LINES - 1 - (COLS > 0 ? (length + COLS - 1) / COLS : 0);
  for (int i = 0; i < gpus; i++, y += lines)
    draw_gpu(y, lines, &live->model.gpus[i]);
  top_view_resize(&live->view, bottom > y + 1 ? (size_t)(bottom - y - 1) : 1);
  draw_table(live, y);
  for (int at = 0, row = bottom; at < length; at += COLS)
    draw(row++, 0, A_BOLD, text + at);
  draw_title(live);
  if (LINES > 2)
    draw_bottom(live, LINES - 1);
  free(text);
}

static void show(struct live *live) {
  erase();
  if (live->view.helps)
    draw_help();
  else
    draw_all(live);
  refresh();
}

/* ---- keys ---- */

static int key_of(int key) {
  static const struct {
    int curses, ours;
  } keys[] = {{KEY_UP, TOP_KEY_UP},
              {KEY_DOWN, TOP_KEY_DOWN},
              {KEY_PPAGE, TOP_KEY_PAGE_UP},
              {KEY_NPAGE, TOP_KEY_PAGE_DOWN},
              {KEY_HOME, TOP_KEY_HOME},
              {KEY_END, TOP_KEY_END},
              {KEY_ENTER, TOP_KEY_ENTER},
              {'\r', TOP_KEY_ENTER},
              {'\n', TOP_KEY_ENTER},
              {27, TOP_KEY_ESCAPE},
              {KEY_BACKSPACE, TOP_KEY_BACKSPACE},
              {127, TOP_KEY_BACKSPACE},
              {'\b', TOP_KEY_BACKSPACE}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (keys[i].curses == key)
      return keys[i].ours;
  return key >= KEY_F(1) && key <= KEY_F(10) ? TOP_KEY_F1 + key - KEY_F(1) : key;
}

/* On a connection of its own: the other one may be in the middle of an answer. What is wrong is said. */
static void carry_out(struct live *live) {
  struct gs_msg msg = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
  int fd;
  *live->said.text = '\0';
  if (!live->view.ordered_job || ask_try_connect(live->source.path, &fd, &live->said) != CTL_OK)
    return;
  msg.set_terms.job = live->view.ordered_job;
  msg.set_terms.term = GS_TERM_PAUSED;
  msg.set_terms.value = live->view.pauses;
  ask_try_change(fd, &msg, &live->said);
  close(fd);
}

/* True: there was one. */
static bool press(struct live *live) {
  int key = getch();
  if (key == ERR)
    return false;
  if (key == KEY_RESIZE)
    return true;
  top_view_press(&live->view, key_of(key));
  carry_out(live);
  return true;
}

/* ---- the loop ---- */

static void take_answer(struct live *live) {
  struct top_model next;
  struct answer answer = live->source.answer;
  live->source.answer = (struct answer){0};
  if (top_model_make(&next, answer.msgs, answer.count, &live->model) < 0)
    return; /* the next one may have room */
  top_model_clear(&live->model);
  live->model = next;
}

/* False: the terminal is gone. */
static bool await(const struct live *live) {
  struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = live->source.fd, .events = POLLIN}};
  uint64_t now_ns = clock_now_ns(), at_ns = due_ns(&live->source, live->view.interval_ns);
  int ready = poll(fds, 2, at_ns <= now_ns ? 0 : (int)((at_ns - now_ns) / NS_PER_MS + 1));
  return ready < 0 ? errno == EINTR : !(fds[0].revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* True: there is something else to be seen. Keys first: they are for the rows that are seen now. */
static bool step(struct live *live) {
  bool lost = *live->source.error.text, pressed = false;
  while (!live->view.quits && press(live)) /* no key counts after that */
    pressed = true;
  bool answered = step_source(&live->source, live->view.interval_ns, clock_now_ns());
  if (answered)
    take_answer(live);
  if (!live->source.asking && *live->source.error.text)
    top_model_clear(&live->model);
  return answered || pressed || lost != (bool)*live->source.error.text;
}

static void run(struct live *live) {
  bool there = true, changed = true;
  while (there && !live->view.quits) {
    if (changed && top_view_arrange(&live->view, &live->model) == 0)
      show(live);
    there = await(live);
    changed = step(live);
  }
}

static int top_live(const char *path, uint64_t interval_ns) {
  struct live live = {.source = {.path = path, .fd = -1}, .view = top_view_init(interval_ns)};
  SCREEN *screen = begin_screen();
  if (!screen) {
    fprintf(stderr,
            "gpusharectl: top needs a terminal that ncurses knows (TERM); use top --batch for pipes\n");
    return CTL_USAGE;
  }
  run(&live);
  endwin();
  delscreen(screen);
  disconnect(&live.source);
  top_model_clear(&live.model);
  top_view_end(&live.view);
  return CTL_OK;
}

#endif

/* ---- the command ---- */

/* Of a terminal that can only write line after line. */
static bool screen_is_plain(void) { return isatty(STDOUT_FILENO) && table_screen_is_dumb(); }

bool top_is_live(const struct request *request) { return !request->batch && !screen_is_plain(); }

int top_check(const struct request *request, uint64_t *interval_ns, int64_t *times) {
  const char *delay = request->delay, *count = request->run.slots;
  *interval_ns = INTERVAL_NS;
  *times = 0;
  if (delay && (parse_duration_ns(delay, interval_ns) < 0 || *interval_ns < TOP_INTERVAL_MIN_NS ||
                *interval_ns > TOP_INTERVAL_MAX_NS))
    return usage_error("the delay is 0.1 to 3600 (seconds), not", delay);
  if (count && parse_integer(count, 1, INT32_MAX, times) < 0)
    return usage_error("not a number of times:", count);
  if (!request->batch && (count || request->json))
    return usage_error(count ? "-n of top is for --batch" : "--json of top is for --batch", NULL);
  return CTL_OK;
}

int top_command(const struct request *request) {
  uint64_t interval_ns;
  int64_t times;
  int fd, code = top_check(request, &interval_ns, &times);
  if (code != CTL_OK)
    return code;
  if (top_is_live(request))
    return top_live(daemon_path(&request->run), interval_ns);
  code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = run_batch(fd, request->delay ? interval_ns : FIRST_NS, interval_ns, times,
                   request->json ? print_json : print_lines);
  close(fd);
  return code;
}
