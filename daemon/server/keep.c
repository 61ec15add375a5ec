/* keep.c - see keep.h. */
#include "server/keep.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/process.h"

/* ---- settings ---- */

static const unsigned fields[] = {OVERRIDE_TQ, OVERRIDE_MODE, OVERRIDE_POLICY, OVERRIDE_CAPACITY};

unsigned keep_field(unsigned type) {
  return type == GS_SET_TQ       ? OVERRIDE_TQ
         : type == GS_SET_MODE   ? OVERRIDE_MODE
         : type == GS_SET_POLICY ? OVERRIDE_POLICY
                                 : OVERRIDE_CAPACITY;
}

/* Of GPUs that are known they are set apart from this; others, and new ones, find them here. */
static void merge(struct daemon *daemon) {
  daemon->scheduler.defaults = daemon->configured_general;
  daemon->overrides = daemon->configured_overrides;
  decisions_apply(&daemon->kept.decisions, &daemon->scheduler.defaults, &daemon->overrides);
}

static void add_decision(struct daemon *daemon, const struct decision *decision, bool made, uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  size_t length = made ? kept_line_set(line, decision) : kept_line_unset(line, decision);
  state_add(daemon->state, line, length, now_ns);
}

/* All that is decided of this setting, the general word first: it takes away those of single GPUs. */
static void add_decisions(struct daemon *daemon, unsigned field, uint64_t now_ns) {
  const struct decisions *decisions = &daemon->kept.decisions;
  struct decision none = {.field = field};
  const struct decision *general = decisions_find(decisions, none.uuid, field);
  add_decision(daemon, general ? general : &none, general, now_ns);
  for (size_t i = 0; i < decisions->count; i++)
    if (decisions->list[i].field == field && &decisions->list[i] != general)
      add_decision(daemon, &decisions->list[i], true, now_ns);
}

void keep_configure(struct daemon *daemon, const struct sched_settings *general,
                    const struct overrides *overrides, uint64_t now_ns) {
  daemon->configured_general = *general;
  daemon->configured_overrides = *overrides;
  size_t count = decisions_review(&daemon->kept.decisions, general, overrides);
  if (count > 0) {
    log_info(
        "the configuration has changed since: it counts again in place of %zu settings made by gpusharectl",
        count);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
      add_decisions(daemon, fields[i], now_ns);
    state_write(daemon->state, true, now_ns);
  }
  if (daemon->kept.decisions.count > 0)
    log_info("%zu settings made by gpusharectl count more than the configuration",
             daemon->kept.decisions.count);
  merge(daemon);
}

void keep_setting(struct daemon *daemon, const uint8_t *uuid, unsigned type, uint64_t value,
                  uint64_t now_ns) {
  unsigned field = keep_field(type);
  struct decisions *decisions = &daemon->kept.decisions;
  decisions_set(decisions, &daemon->configured_general, &daemon->configured_overrides, uuid, field, value);
  merge(daemon);
  if (!uuid) {
    add_decisions(daemon, field, now_ns);
  } else {
    struct decision none = {.field = field};
    memcpy(none.uuid, uuid, GS_UUID_SIZE);
    const struct decision *made = decisions_find(decisions, uuid, field);
    add_decision(daemon, made ? made : &none, made, now_ns);
  }
  state_write(daemon->state, true, now_ns);
}

/* ---- jobs ---- */

/* What has been set of them. */
static struct terms set_of(const struct terms *terms) {
  return (struct terms){
      .set = terms->set, .set_fields = terms->set_fields, .standing_fields = terms->standing_fields};
}

static struct kept_process process_of(const struct peer *peer) {
  return (struct kept_process){.pid = peer->pid,
                               .start = peer->start_ticks,
                               .uid = peer->uid,
                               .job_id = peer->job_id,
                               .started_ns = peer->started_ns,
                               .terms = set_of(&peer->terms),
                               .gang = peer->kept_gang};
}

static void add_term(struct daemon *daemon, const struct kept_process *process, enum gs_term term,
                     uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  size_t length = kept_line_term(line, process->pid, process->job_id, &process->terms, term);
  state_add(daemon->state, line, length, now_ns);
}

/* A process that the daemon can't see (in another pid namespace) can't be known again; its number is not
 * given away twice all the same. */
static void add_job(struct daemon *daemon, const struct kept_process *process, uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  bool seen = process->start;
  size_t length = seen ? kept_line_job(line, process) : kept_line_last(line, process->job_id);
  state_add(daemon->state, line, length, now_ns);
  if (seen && process->gang)
    state_add(daemon->state, line, kept_line_gang(line, process), now_ns);
  for (unsigned term = 0; seen && term < GS_TERM_COUNT; term++)
    if (process->terms.set_fields >> term & 1)
      add_term(daemon, process, (enum gs_term)term, now_ns);
  state_write(daemon->state, false, now_ns);
}

/* While the descriptor of the process is there, its number is nobody else's. 0: it can't be told. */
static uint64_t start_of(const struct peer *peer) {
  uint64_t start_ticks = process_start_ticks(peer->pid);
  return process_has_ended(peer->pidfd) ? 0 : start_ticks;
}

static bool is_there(const struct kept_process *process) {
  return process_start_ticks(process->pid) == process->start;
}

static void forget(struct daemon *daemon, struct kept_process *process, uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  state_add(daemon->state, line, kept_line_gone(line, process->pid, process->job_id), now_ns);
  free(process);
}

#define LOOKS 4 /* at who may have ended, for each that leaves: so they don't pile up */

void keep_register(struct daemon *daemon, struct peer *peer, uint64_t now_ns) {
  list_init(&peer->returning_link);
  peer->start_ticks = start_of(peer);
  const struct peer *same = peer->start_ticks ? daemon_next_of_process(daemon, peer, NULL) : NULL;
  struct kept_process *kept =
      peer->start_ticks ? kept_take(&daemon->kept, peer->pid, peer->start_ticks, peer->uid) : NULL;
  if (kept) {
    peer->job_id = kept->job_id; /* it has come before: after a restart, or its connection has ended */
    peer->terms = kept->terms;
    peer->kept_gang = kept->gang;
    if (peer->kept_gang)
      list_append(&daemon->returning, &peer->returning_link);
    peer->resumed = !kept->left;
    if (peer->resumed)
      peer->started_ns = kept->started_ns;
    free(kept);
    log_info("job %u is here again: pid %d, uid %u, %s", peer->job_id, peer->pid, peer->uid, peer->name);
    return;
  }
  if (++daemon->last_job_id == 0)
    daemon->last_job_id = 1;
  peer->job_id = daemon->last_job_id;
  if (same)
    peer->terms = set_of(&same->terms);
  struct kept_process process = process_of(peer);
  add_job(daemon, &process, now_ns);
}

void keep_term(struct daemon *daemon, const struct peer *peer, enum gs_term term, uint64_t now_ns) {
  struct kept_process process = process_of(peer), *away = NULL;
  uint64_t value = terms_value(&peer->terms.set, term);
  add_term(daemon, &process, term, now_ns);
  while (process.start && (away = kept_next(&daemon->kept, away, process.pid, process.start, process.uid)))
    terms_restore(&away->terms, term, value, process.terms.standing_fields >> term & 1);
  state_write(daemon->state, false, now_ns);
}

void keep_gang(struct daemon *daemon, struct peer *peer, uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  uint64_t gang = gang_key(peer->gang);
  list_remove(&peer->returning_link);
  if (peer->kept_gang == gang)
    return;
  peer->kept_gang = gang;
  struct kept_process process = process_of(peer);
  if (process.start)
    state_add(daemon->state, line, kept_line_gang(line, &process), now_ns);
  state_write(daemon->state, false, now_ns);
}

void keep_gang_term(struct daemon *daemon, uid_t uid, uint64_t gang, const struct gs_msg *msg, bool by_owner,
                    uint64_t now_ns) {
  struct kept_process *process = NULL;
  while ((process = kept_next_of_gang(&daemon->kept, process, uid, gang))) {
    if (by_owner && !terms_owner_may(&process->terms, msg))
      continue;
    terms_set(&process->terms, msg, by_owner);
    add_term(daemon, process, (enum gs_term)msg->set_terms.term, now_ns);
  }
  state_write(daemon->state, false, now_ns);
}

void keep_end_of(struct daemon *daemon, struct peer *peer, uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  list_remove(&peer->returning_link);
  /* The connection has ended, its process perhaps not: what was set for it stays set, or who is told to wait
   * could come again instead. */
  bool comes_back = peer->terms.set_fields && peer->start_ticks && start_of(peer) == peer->start_ticks;
  struct kept_process *process = comes_back ? malloc(sizeof *process) : NULL, *ended, *given_up;
  if (process) {
    *process = process_of(peer);
    for (int i = 0; i < LOOKS; i++)
      if ((ended = kept_take_ended(&daemon->kept, is_there)))
        forget(daemon, ended, now_ns);
    if ((given_up = kept_leave(&daemon->kept, process)))
      forget(daemon, given_up, now_ns);
  } else {
    state_add(daemon->state, line, kept_line_gone(line, peer->pid, peer->job_id), now_ns);
  }
  uint64_t expected_ns = peer->gpu_ns > HISTORY_RUN_MIN_NS
                             ? history_expected_ns(&daemon->history, peer->uid, peer->command_hash)
                             : 0;
  if (expected_ns)
    state_add(daemon->state, line, kept_line_learnt(line, peer->uid, peer->command_hash, expected_ns),
              now_ns);
}

/* ---- runs ---- */

/* Their times are on the clock on the wall there. Before the boot they are less than 0 on ours, which is
 * right for whoever reckons with differences. */
static uint64_t wall_ns(void) { return clock_realtime_ns() - clock_now_ns(); }

static void move_times(struct gs_msg *event, uint64_t by_ns) {
  event->event.at_ns += by_ns;
  if (event->event.kind == GS_EVENT_ENDED)
    event->event.end.started_ns += by_ns;
  else if (event->event.kind == GS_EVENT_USAGE)
    event->event.usage.since_ns += by_ns;
}

void keep_record(struct daemon *daemon, const struct gs_msg *event, uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  struct gs_msg moved = *event;
  move_times(&moved, wall_ns());
  state_add(daemon->state, line, kept_line_event(line, &moved), now_ns);
}

/* ---- what was lost while the disk was full ---- */

/* What somebody has set, and the numbers: ends of runs don't come back. */
static void add_all(struct daemon *daemon, uint64_t now_ns) {
  char line[KEPT_LINE_SIZE];
  state_add(daemon->state, line, kept_line_last(line, daemon->last_job_id), now_ns);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    add_decisions(daemon, fields[i], now_ns);
  state_write(daemon->state, true, now_ns);
  for (size_t i = 0; i < DAEMON_CLIENT_BUCKETS; i++)
    list_each(node, &daemon->clients[i]) {
      const struct peer *peer = list_entry(node, struct peer, client_link);
      struct kept_process process = process_of(peer);
      if (process.start && (process.terms.set_fields || process.gang))
        add_job(daemon, &process, now_ns);
    }
  list_each(node, &daemon->kept.away) {
    add_job(daemon, list_entry(node, struct kept_process, away_link), now_ns);
  }
  state_end_loss(daemon->state);
}

/* ---- answers that wait for the disk ---- */

struct held {
  struct list link;
  struct peer *peer;
  uint64_t added; /* bytes, that are to be written before */
  uint64_t until_ns;
  struct gs_msg msg;
};

static struct held *first_held(const struct daemon *daemon) {
  struct list *first = list_first(&daemon->held);
  return first ? list_entry(first, struct held, link) : NULL;
}

void keep_answer(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  bool waits = state_waits(daemon->state) && !peer->held && !peer->closed;
  struct held *held = waits ? malloc(sizeof *held) : NULL;
  if (!held) {
    peer_send(peer, msg);
    return;
  }
  *held = (struct held){
      .peer = peer, .added = state_added(daemon->state), .until_ns = now_ns + HELD_NS, .msg = *msg};
  list_append(&daemon->held, &held->link);
  peer->held = held;
  state_write(daemon->state, false, now_ns);
}

void keep_drop_answer(struct peer *peer) {
  if (!peer->held)
    return;
  list_remove(&peer->held->link);
  free(peer->held);
  peer->held = NULL;
}

/* What it has sent meanwhile is received now. */
static void answer_first(struct daemon *daemon) {
  struct held *held = first_held(daemon);
  struct peer *peer = held->peer;
  struct gs_msg msg = held->msg;
  keep_drop_answer(peer);
  peer_send(peer, &msg);
  peer_set_ready(peer);
}

void keep_on_written(struct daemon *daemon) {
  daemon->disk_is_slow = false;
  uint64_t tried = state_hear(daemon->state);
  const struct held *first;
  while ((first = first_held(daemon)) && first->added <= tried)
    answer_first(daemon);
}

uint64_t keep_deadline_ns(const struct daemon *daemon) {
  const struct held *first = first_held(daemon);
  uint64_t state_ns = state_deadline_ns(daemon->state);
  return first && first->until_ns < state_ns ? first->until_ns : state_ns;
}

void keep_on_time(struct daemon *daemon, uint64_t now_ns) {
  const struct held *first;
  if (!daemon->disk_is_slow && (first = first_held(daemon)) && now_ns >= first->until_ns) {
    daemon->disk_is_slow = true;
    log_warn("the disk does not answer: what is set counts, and is kept once it does");
  }
  while ((first = first_held(daemon)) && now_ns >= first->until_ns)
    answer_first(daemon);
  state_on_time(daemon->state, now_ns);
  if (state_take_loss(daemon->state))
    add_all(daemon, now_ns);
}

/* ---- it begins, and ends ---- */

/* The clock on the wall may have been set since: what has been is in order all the same, and over. */
static void take_record(struct record *record, const struct record *kept, uint64_t now_ns) {
  int64_t last_ns = INT64_MIN;
  const struct record_entry *entry = record_next(kept, 0);
  for (; entry; entry = record_next(kept, entry->msg.event.seq + 1)) {
    struct gs_msg event = entry->msg;
    move_times(&event, -wall_ns());
    int64_t at_ns = (int64_t)event.event.at_ns;
    last_ns = at_ns > (int64_t)now_ns ? (int64_t)now_ns : at_ns < last_ns ? last_ns : at_ns;
    event.event.at_ns = (uint64_t)last_ns;
    record_add(record, &event);
  }
}

void keep_open(struct daemon *daemon, const char *folder, uint64_t now_ns) {
  struct kept *kept = &daemon->kept;
  daemon->state = state_open(folder, kept);
  daemon->last_job_id = kept->last_job_id;
  take_record(&daemon->runs, &kept->runs, now_ns);
  take_record(&daemon->usage, &kept->usage, now_ns);
  list_each(node, &kept->history.used) {
    const struct history_entry *entry = list_entry(node, struct history_entry, used_link);
    history_put(&daemon->history, entry->uid, entry->command_hash, entry->expected_ns);
  }
  if (kept->process_count + kept->history.count + kept->runs.count + kept->usage.count > 0)
    log_info(
        "of before: %zu jobs, what %zu commands take, and %zu lines of runs and %zu of accounts, from %s",
        kept->process_count, kept->history.count, kept->runs.count, kept->usage.count, folder);
  history_end(&kept->history);
  record_end(&kept->runs);
  record_end(&kept->usage);
}

void keep_stop(struct daemon *daemon) {
  uint64_t now_ns = clock_now_ns();
  state_write(daemon->state, true, now_ns);
  state_await(daemon->state, now_ns + HELD_NS);
  while (first_held(daemon))
    answer_first(daemon);
  if (state_take_loss(daemon->state))
    add_all(daemon, now_ns);
  daemon->ending = daemon->state;
  daemon->state = NULL;
}
