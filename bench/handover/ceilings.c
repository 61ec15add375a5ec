/* ceilings.c - what the bus and paging reach without gpushare; see measure.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "measure.h"
#include "probe/table.h"
#include "stage.h"

enum { ROUNDS = 3, HOLDER_SECONDS = 60, EXIT_NO_GPU = 77 };

static bool look_at_card(struct card *card) {
  struct child worker;
  char text[CHILD_TEXT_SIZE];
  bool told = stage_worker(&worker, "card", 0) && child_hear(&worker, text) &&
              sscanf(text, "%lu %lu %63[^\n]", &card->free_bytes, &card->total_bytes, card->name) == 3;
  child_kill(&worker);
  return told;
}

int measure_begin(const struct stage_paths *paths, bool *simulate, struct card *card) {
  if (!stage_begin(paths, *simulate))
    return EXIT_FAILURE;
  if (!look_at_card(card)) {
    stage_end();
    complain("no NVIDIA GPU that works here (--simulate takes the simulated driver)");
    return EXIT_NO_GPU;
  }
  *simulate |= strncmp(card->name, "Simulated", 9) == 0;
  return 0;
}

/* ---- copies ---- */

static double best(double a, double b) { return a > b ? a : b; }

/* A ceiling is the best of the rounds. */
static bool copy_rounds(const struct table *t, struct ceilings *c) {
  for (int round = 0; round < ROUNDS; round++) {
    double out, in, both;
    struct copies copies;
    if (!one_copy(t->out, t->bytes, 0, &out) || !one_copy(t->in, 0, t->bytes, &in) ||
        !one_copy(t->out, t->bytes / 2, t->bytes / 2, &both) || !both_copy(t, &copies))
      return false;
    c->out = best(c->out, out);
    c->in = best(c->in, in);
    c->both_one = best(c->both_one, both);
    c->both_two = best(c->both_two, copies.both);
  }
  return true;
}

/* Its answers are not waited for without a bound. */
static bool holder_start(struct child *child) {
  struct timeval bound = {.tv_sec = HOLDER_SECONDS};
  return stage_worker(child, "holder", 0) &&
         setsockopt(child->fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) == 0;
}

static bool holders_run(const struct child holders[2], uint64_t bytes, struct ceilings *ceilings) {
  struct table table = {.out = holders[0].fd, .in = holders[1].fd, .bytes = bytes};
  struct order open = {.op = HOLDER_OPEN};
  struct report reports[2];
  return both_do(&table, open, open, reports) && slabs_make(&table, reports) && copies_prepare(&table) &&
         copy_rounds(&table, ceilings);
}

bool measure_ceilings(uint64_t bytes, struct ceilings *ceilings) {
  struct child holders[2] = {{0}, {0}};
  *ceilings = (struct ceilings){0};
  bool ok = holder_start(&holders[0]) && holder_start(&holders[1]) && holders_run(holders, bytes, ceilings);
  child_kill(&holders[0]);
  child_kill(&holders[1]);
  return ok || complain("the plain copies failed");
}

/* ---- paging ---- */

/* The one answer of a worker; `text` is empty if there is none. */
static bool ask_worker(const char *role, uint64_t bytes, char text[CHILD_TEXT_SIZE]) {
  struct child worker;
  if (!stage_worker(&worker, role, bytes))
    return false;
  if (child_hear(&worker, text))
    return child_wait(&worker);
  child_kill(&worker);
  return complain("%s failed", role);
}

bool measure_paging(uint64_t bytes, struct paging *paging) {
  char text[CHILD_TEXT_SIZE];
  return ask_worker("paging", bytes, text) &&
         sscanf(text, "%lf %lf %lf", &paging->prefetch_out, &paging->prefetch_in, &paging->faults_in) == 3;
}
