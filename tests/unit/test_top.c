/* test_top.c - gpusharectl top without a terminal: what two answers of a daemon make, lines, keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/wire.h"
#include "ctl/top_view.h"
#include "suite.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct top_model before, model;
static struct top_view view;

/* An answer under way. */
static struct gs_msg msgs[64];
static size_t count;
static uint32_t gpu;

static struct gs_msg *add(enum gs_msg_type type) {
  msgs[count] = wire_msg(type, gpu);
  return &msgs[count++];
}

static void begin(uint64_t uptime_ns) {
  count = gpu = 0;
  struct gs_msg *msg = add(GS_STATUS_DAEMON);
  strcpy(msg->daemon.release, "1.2");
  msg->daemon.pid = 99;
  msg->daemon.uptime_ns = uptime_ns;
}

/* Of 10 GiB; `handovers` in all, each of which took 100 ms and moved 1 GB. */
static struct gs_msg *add_gpu(uint8_t card, uint64_t handovers) {
  gpu = card;
  struct gs_msg *msg = add(GS_STATUS_GPU), *handover = add(GS_STATUS_HANDOVER);
  msg->gpu_status.uuid[0] = card + 1;
  msg->gpu_status.capacity_bytes = 10 * GIB;
  msg->gpu_status.flags = GS_GPU_SERIALIZED;
  msg->gpu_status.mode = GS_MODE_ON;
  msg->gpu_status.policy = GS_POLICY_FAIR;
  msg->gpu_status.tq_ns = 20 * NS_PER_S;
  msg->gpu_status.handovers = handovers;
  msg->gpu_status.moved_bytes = handovers * 1000000000;
  strcpy(msg->gpu_status.name, "Card");
  handover->handover_status.drain_ns = handovers * 40 * NS_PER_MS;
  handover->handover_status.move_ns = handovers * 60 * NS_PER_MS;
  handover->handover_status.left_ns = UINT64_MAX;
  return msg;
}

static struct gs_msg *add_job(uint32_t job, const char *name, uint64_t held_ns, uint64_t waited_ns) {
  struct gs_msg *msg = add(GS_STATUS_JOB);
  msg->job_status.job = job;
  msg->job_status.pid = 1000 + (int)job;
  msg->job_status.held_ns = held_ns;
  msg->job_status.waited_ns = waited_ns;
  strcpy(msg->job_status.name, name);
  return msg;
}

static void set_bytes(struct gs_msg *job, uint64_t used_bytes, uint64_t resident_bytes) {
  job->job_status.used_bytes = used_bytes;
  job->job_status.resident_bytes = resident_bytes;
}

/* It is the model now, and what was it is the one before. */
static void finish(void) {
  struct gs_msg *copy = malloc(sizeof msgs);
  memcpy(copy, msgs, sizeof msgs);
  top_model_clear(&before);
  before = model;
  ck_assert_int_eq(top_model_make(&model, copy, count, &before), 0);
  ck_assert_int_eq(top_view_arrange(&view, &model), 0);
}

static void set_up(void) {
  before = model = (struct top_model){0};
  view = top_view_init(2 * NS_PER_S);
  top_view_resize(&view, 20);
}

static void tear_down(void) {
  top_model_clear(&before);
  top_model_clear(&model);
  top_view_end(&view);
}

/* ---- figures ---- */

static void ck_close(double found, double wanted) { ck_assert_double_eq_tol(found, wanted, 1e-9); }

START_TEST(rates_are_of_the_time_between_two_answers) {
  begin(100 * NS_PER_S);
  add_gpu(0, 10);
  add_job(1, "a", 50 * NS_PER_S, 10 * NS_PER_S);
  finish();
  ck_assert(!model.gpus[0].rated && !model.jobs[0].rated);
  begin(104 * NS_PER_S);
  add_gpu(0, 18);
  add_job(1, "a", 51 * NS_PER_S, 12 * NS_PER_S);
  add_job(2, "new", NS_PER_S, 0);
  finish();
  ck_assert(model.gpus[0].rated && model.jobs[0].rated && model.jobs[1].rated);
  ck_close(model.gpus[0].handovers_per_s, 2);
  ck_close(model.gpus[0].moved_per_s, 2e9);
  ck_close(model.gpus[0].lost_share, 0.2);
  ck_close(model.jobs[0].held_share, 0.25);
  ck_close(model.jobs[0].waited_share, 0.5);
  ck_close(model.jobs[1].held_share, 0.25);
}
END_TEST

START_TEST(another_daemon_has_no_rates) {
  for (int i = 0; i < 3; i++) {
    static const uint64_t up_s[] = {100, 110, 50}; /* in the end its clock has begun anew */
    begin(up_s[i] * NS_PER_S);
    msgs[0].daemon.pid = i == 0 ? 98 : 99;
    add_gpu(0, 10);
    add_job(1, "a", NS_PER_S, 0);
    finish();
    ck_assert(!model.gpus[0].rated && !model.jobs[0].rated);
  }
}
END_TEST

START_TEST(a_job_has_figures_of_its_own_on_each_gpu) {
  for (int i = 0; i < 2; i++) {
    begin((uint64_t)(10 + i) * NS_PER_S);
    add_gpu(0, 0);
    add_job(7, "a", i ? NS_PER_S / 2 : 0, 0);
    add_gpu(1, 0);
    add_job(7, "a", 9 * NS_PER_S, 0);
    finish();
  }
  ck_assert_uint_eq(model.status.job_count, 2);
  ck_close(model.jobs[0].held_share, 0.5);
  ck_close(model.jobs[1].held_share, 0);
  ck_assert(model.jobs[0].figures->gpu == model.gpus[0].figures &&
            model.jobs[1].figures->gpu == model.gpus[1].figures);
}
END_TEST

START_TEST(a_share_is_one_at_most) {
  begin(10 * NS_PER_S);
  add_gpu(0, 0);
  finish();
  begin(11 * NS_PER_S);
  add_gpu(0, 100);
  add_job(1, "a", 5 * NS_PER_S, 5 * NS_PER_S);
  finish();
  ck_close(model.gpus[0].lost_share, 1);
  ck_close(model.jobs[0].held_share, 1);
  ck_close(model.jobs[0].waited_share, 1);
}
END_TEST

START_TEST(memory_is_on_the_card_or_away) {
  begin(NS_PER_S);
  add_gpu(0, 0);
  set_bytes(add_job(1, "a", 0, 0), 6 * GIB, 6 * GIB);
  set_bytes(add_job(2, "b", 0, 0), 6 * GIB, 2 * GIB);
  set_bytes(add_job(3, "c", 0, 0), GIB, 2 * GIB); /* it frees just now */
  finish();
  ck_assert_uint_eq(model.gpus[0].figures->card_bytes, 10 * GIB);
  ck_assert_uint_eq(model.gpus[0].figures->away_bytes, 4 * GIB);
  ck_assert_uint_eq(figures_away_bytes(model.jobs[1].figures->job), 4 * GIB);
  ck_assert_uint_eq(figures_away_bytes(model.jobs[2].figures->job), 0);
}
END_TEST

/* ---- lines ---- */

static char line[TOP_TEXT_SIZE];
#define line_has(text) ck_assert_msg(strstr(line, text), "'%s' is not in: %s", text, line)

START_TEST(what_a_gpu_does) {
  begin(3723 * NS_PER_S);
  add_gpu(0, 0)->gpu_status.waiting = 2;
  msgs[count - 1].handover_status.left_ns = 13240 * NS_PER_MS;
  msgs[1].gpu_status.holders = 5;
  for (uint32_t i = 1; i <= 5; i++)
    add_job(i, i == 2 ? "infer" : "train", 0, 0)->job_status.state = GS_JOB_HOLDING;
  finish();
  top_text_daemon(line, &model);
  line_has("gpushare-daemon 1.2, up 1:02:03, 1 GPU, 0 jobs");
  top_text_gpu(line, &model.gpus[0]);
  ck_assert_str_eq(line, "GPU 0 Card: on, fair, turns of 20 s, 13.2 s left; held by 1 (train), 2 (infer), "
                         "3 (train) and 2 more, 2 wait");
  top_text_handovers(line, &model.gpus[0]);
  line_has("hand-overs -/s");
}
END_TEST

START_TEST(a_gpu_without_turns_or_holders) {
  begin(NS_PER_S);
  add_gpu(0, 0)->gpu_status.flags = 0;
  finish();
  top_text_gpu(line, &model.gpus[0]);
  ck_assert_str_eq(line, "GPU 0 Card: on, fair, all run; held by nobody, 0 wait");
}
END_TEST

static const char *bar_of(uint64_t card_bytes, uint64_t away_bytes) {
  static char bar[21];
  begin(NS_PER_S);
  add_gpu(0, 0);
  set_bytes(add_job(1, "a", 0, 0), card_bytes + away_bytes, card_bytes);
  finish();
  top_text_bar(bar, 20, &model.gpus[0]);
  return bar;
}

START_TEST(bars) {
  ck_assert_str_eq(bar_of(0, 0), "....................");
  ck_assert_str_eq(bar_of(5 * GIB, 0), "||||||||||..........");
  ck_assert_str_eq(bar_of(10 * GIB, 10 * GIB), "||||||||||~~~~~~~~~~");
  ck_assert_str_eq(bar_of(5 * GIB, 10 * GIB), "|||||.....~~~~~~~~~~");
  ck_assert_str_eq(bar_of(MIB, MIB), "|..................~"); /* little, but seen */
  top_text_memory(line, &model.gpus[0]);
  ck_assert_str_eq(line, "1.0 MiB on the card, 1.0 MiB away, of 10.0 GiB");
}
END_TEST

static void play_job(unsigned flags, unsigned queue) {
  begin(NS_PER_S);
  add_gpu(0, 0);
  struct gs_msg *job = add_job(12, "a-name-that-is-too-long", 0, 0);
  job->job_status.state = queue ? GS_JOB_WAITING : GS_JOB_DROPPING;
  job->job_status.flags = (uint8_t)flags;
  job->job_status.queue = (uint16_t)queue;
  set_bytes(job, 3 * GIB, GIB);
  struct gs_msg *terms = add(GS_STATUS_TERMS);
  terms->terms_status.class = GS_CLASS_OPPORTUNISTIC;
  terms->terms_status.rate = 20;
  terms->terms_status.limit_bytes = 4 * GIB;
  struct gs_msg *origin = add(GS_STATUS_ORIGIN);
  origin->origin_status.kind = GS_ORIGIN_DOCKER;
  strcpy(origin->origin_status.name, "3f2a9c1b4d5e");
  finish();
}

START_TEST(a_job_in_its_row) {
  play_job(0, 3);
  unsigned columns = top_text_columns(TOP_TEXT_SIZE, &model);
  top_text_head(line, columns, TOP_HELD);
  ck_assert_str_eq(
      line, "   JOB      PID USER       NAME             CLASS STATE           *GPU%  WAIT%    ON CARD "
            "      AWAY   RATE      LIMIT FROM");
  top_text_job(line, columns, &model.jobs[0]);
  ck_assert_str_eq(
      line, "    12     1012 root       a-name-that-is-t opp   waiting (3)         -      -    1.0 GiB "
            "   2.0 GiB    20%    4.0 GiB docker:3f2a9c1b4d5e");
  play_job(GS_STATE_OVERDUE, 0);
  top_text_job(line, columns, &model.jobs[0]);
  line_has("opp   overdue  ");
}
END_TEST

/* The column is there where it says something, and nothing is cut off it. */
START_TEST(commands_of_jobs) {
  begin(NS_PER_S);
  add_gpu(0, 0);
  add_job(1, "python3", 0, 0);
  strcpy(add(GS_STATUS_COMMAND)->command_status.text,
         "/usr/bin/python3 /home/ada/train.py --lr 0.1 --seed 7");
  add_job(2, "job", 0, 0);
  finish();
  unsigned columns = top_text_columns(119, &model);
  top_text_head(line, columns, TOP_COLUMNS);
  line_has("   RATE COMMAND");
  top_text_job(line, columns, &model.jobs[0]);
  line_has("      - train.py --lr 0.1 --seed 7");
  top_text_head(line, top_text_columns(118, &model), TOP_COLUMNS);
  ck_assert_ptr_null(strstr(line, "COMMAND"));
}
END_TEST

START_TEST(narrow_tables_have_the_columns_that_tell_most) {
  play_job(0, 1);
  static const struct {
    size_t width;
    const char *head;
  } cases[] = {{0, "   JOB"},
               {23, "   JOB NAME"},
               {45, "   JOB NAME             STATE            GPU%"},
               {80, "   JOB USER       NAME             CLASS STATE            GPU%  WAIT%    ON CARD"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    top_text_head(line, top_text_columns(cases[i].width, &model), TOP_COLUMNS);
    ck_assert_str_eq(line, cases[i].head);
  }
  begin(NS_PER_S);
  add_gpu(0, 0);
  add_gpu(1, 0);
  finish();
  top_text_head(line, top_text_columns(23, &model), TOP_COLUMNS);
  ck_assert_str_eq(line, "   JOB GPU");
}
END_TEST

/* ---- order, selection, keys ---- */

/* Characters, and names of other keys: "<DOWN>P". */
static void press(const char *keys) {
  static const struct {
    const char *name;
    int key;
  } named[] = {{"<UP>", TOP_KEY_UP},          {"<DOWN>", TOP_KEY_DOWN},  {"<PGUP>", TOP_KEY_PAGE_UP},
               {"<PGDN>", TOP_KEY_PAGE_DOWN}, {"<HOME>", TOP_KEY_HOME},  {"<END>", TOP_KEY_END},
               {"<ENTER>", TOP_KEY_ENTER},    {"<ESC>", TOP_KEY_ESCAPE}, {"<BACK>", TOP_KEY_BACKSPACE},
               {"<F3>", TOP_KEY_F3},          {"<F4>", TOP_KEY_F4},      {"<F6>", TOP_KEY_F6},
               {"<F10>", TOP_KEY_F10}};
  while (*keys) {
    size_t length = 1;
    int key = *keys;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
      if (strncmp(keys, named[i].name, strlen(named[i].name)) == 0) {
        key = named[i].key;
        length = strlen(named[i].name);
      }
    keys += length;
    top_view_press(&view, key);
    ck_assert_int_eq(top_view_arrange(&view, &model), 0);
  }
}

/* The numbers of the jobs that are shown, with a * at the selected one; and -- beside what there is room for.
 */
static const char *rows(void) {
  static char text[256];
  *text = '\0';
  for (size_t i = 0; i < view.row_count; i++)
    sprintf(text + strlen(text), "%s%s%s%u", i ? " " : "",
            i && (i == view.first || i == view.first + view.page) ? "-- " : "", i == view.selected ? "*" : "",
            view.rows[i]->figures->job->job_status.job);
  return text;
}

struct step {
  const char *keys, *rows;
};

static void step_through(const struct step *steps, size_t step_count) {
  for (size_t i = 0; i < step_count; i++) {
    press(steps[i].keys);
    ck_assert_msg(strcmp(rows(), steps[i].rows) == 0, "step %zu, %s: %s", i, steps[i].keys, rows());
  }
}
#define STEP_THROUGH(...)                                                                                    \
  do {                                                                                                       \
    const struct step steps[] = {__VA_ARGS__};                                                               \
    step_through(steps, sizeof steps / sizeof *steps);                                                       \
  } while (0)

/* From the 2nd on each has had twice as much of the GPU as the one before, and half of its memory. */
static void play_jobs(uint32_t jobs) {
  static const char *const names[] = {"train", "infer", "bench", "train"};
  for (int i = 0; i < 2; i++) {
    begin((uint64_t)(10 + 100 * i) * NS_PER_S);
    add_gpu(0, 0);
    for (uint32_t job = 1; job <= jobs; job++)
      set_bytes(add_job(job, names[job % 4], i * (NS_PER_S << job), 0), 8 * GIB, (16 * GIB) >> job);
    finish();
  }
}

START_TEST(jobs_are_sorted_by_a_column) {
  play_jobs(4);
  STEP_THROUGH({"", "*1 2 3 4"}, {"P", "4 3 2 *1"}, {"I", "*1 2 3 4"}, {"M", "*1 2 3 4"}, {">", "4 3 2 *1"});
  ck_assert_int_eq(view.sort, TOP_AWAY);
  STEP_THROUGH({"<<<<<<", "2 *1 3 4"}); /* bench infer train train */
  ck_assert_int_eq(view.sort, TOP_NAME);
  press("N<");
  ck_assert_int_eq(view.sort, TOP_COMMAND);
  press("<F6>");
  ck_assert_int_eq(view.sort, TOP_JOB);
}
END_TEST

START_TEST(a_selection_stays_with_its_job) {
  play_jobs(4);
  STEP_THROUGH({"<DOWN>", "1 *2 3 4"}, {"P", "4 3 *2 1"});
  play_jobs(1); /* it has ended */
  STEP_THROUGH({"", "*1"});
  begin(NS_PER_S);
  finish();
  STEP_THROUGH({"", ""}, {"<DOWN>", ""}, {"/x", ""});
  ck_assert_ptr_null(top_view_selected(&view));
}
END_TEST

START_TEST(a_long_table_is_scrolled) {
  play_jobs(9);
  top_view_resize(&view, 4);
  STEP_THROUGH({"", "*1 2 3 4 -- 5 6 7 8 9"}, {"<PGDN>", "1 -- 2 3 4 *5 -- 6 7 8 9"},
               {"<END>", "1 2 3 4 5 -- 6 7 8 *9"}, {"<PGUP>", "1 2 3 4 -- *5 6 7 8 -- 9"});
  top_view_resize(&view, 9);
  STEP_THROUGH({"", "1 2 3 4 *5 6 7 8 9"});
  top_view_resize(&view, 0);
  STEP_THROUGH({"", "1 2 3 4 -- *5 -- 6 7 8 9"}, {"<UP>", "1 2 3 -- *4 -- 5 6 7 8 9"},
               {"<HOME>", "*1 -- 2 3 4 5 6 7 8 9"});
}
END_TEST

START_TEST(a_filter_counts_while_it_is_typed) {
  play_jobs(4);
  STEP_THROUGH({"<F4>TRAq", ""}, {"<BACK>", "*3 4"}, {"<ENTER>I", "4 *3"}, {"\\<ESC>", "4 *3 2 1"});
}
END_TEST

START_TEST(a_search_selects_the_next_one) {
  play_jobs(4);
  STEP_THROUGH({"/tr", "1 2 *3 4"}, {"<F3>", "1 2 3 *4"}, {"<ENTER>n", "1 2 *3 4"}, {"/1004", "1 2 3 *4"},
               {"<ESC>n", "1 2 *3 4"}); /* the last one that was entered */
}
END_TEST

START_TEST(the_interval) {
  static const struct {
    const char *keys;
    uint64_t ns;
  } cases[] = {{"+", 4 * NS_PER_S},           {"------", TOP_INTERVAL_MIN_NS},
               {"d0.5<ENTER>", NS_PER_S / 2}, {"dsoon<ENTER>", NS_PER_S / 2},
               {"d0<ENTER>", NS_PER_S / 2},   {"d9h<ENTER>", NS_PER_S / 2},
               {"d<ENTER>", NS_PER_S / 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    press(cases[i].keys);
    ck_assert_msg(view.interval_ns == cases[i].ns && view.prompt == TOP_PROMPT_NONE, "%s", cases[i].keys);
  }
}
END_TEST

START_TEST(help_explanations_and_the_end) {
  static const struct {
    const char *keys;
    bool helps, explains, quits;
  } cases[] = {{"h", true, false, false},       {"q", false, false, false}, /* any key goes back */
               {"<ENTER>", false, true, false}, {"<ESC>", false, false, false},
               {"/q", false, false, false},     {"<ESC><F10>", false, false, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    press(cases[i].keys);
    ck_assert_msg(view.helps == cases[i].helps && view.explains == cases[i].explains &&
                      view.quits == cases[i].quits,
                  "%s", cases[i].keys);
  }
}
END_TEST

START_TEST(a_job_is_paused_and_resumed) {
  press("p");
  ck_assert_uint_eq(view.ordered_job, 0);
  for (int paused = 0; paused < 2; paused++) {
    begin(NS_PER_S);
    add_gpu(0, 0);
    add_job(5, "a", 0, 0);
    add(GS_STATUS_TERMS)->terms_status.paused = (uint32_t)paused;
    finish();
    press("p");
    ck_assert_uint_eq(view.ordered_job, 5);
    ck_assert(view.pauses == !paused);
    press("I");
    ck_assert_uint_eq(view.ordered_job, 0);
  }
  top_text_job(line, 1u << TOP_STATE, &model.jobs[0]);
  ck_assert_str_eq(line, "paused");
}
END_TEST

START_TEST(what_is_typed_has_an_end) {
  press("/");
  for (int i = 0; i < 100; i++)
    press("x");
  ck_assert_uint_eq(strlen(view.typed), sizeof view.typed - 1);
  top_view_press(&view, 0x3fff);
  top_view_press(&view, 0xe9);
  ck_assert_uint_eq(strlen(view.typed), sizeof view.typed - 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {rates_are_of_the_time_between_two_answers,
                                another_daemon_has_no_rates,
                                a_job_has_figures_of_its_own_on_each_gpu,
                                a_share_is_one_at_most,
                                memory_is_on_the_card_or_away,
                                what_a_gpu_does,
                                a_gpu_without_turns_or_holders,
                                bars,
                                a_job_in_its_row,
                                commands_of_jobs,
                                narrow_tables_have_the_columns_that_tell_most,
                                jobs_are_sorted_by_a_column,
                                a_selection_stays_with_its_job,
                                a_long_table_is_scrolled,
                                a_filter_counts_while_it_is_typed,
                                a_search_selects_the_next_one,
                                the_interval,
                                help_explanations_and_the_end,
                                what_is_typed_has_an_end,
                                a_job_is_paused_and_resumed,
                                NULL};
  return suite_main("top", tests, set_up, tear_down);
}
