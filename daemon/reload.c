/* reload.c - the daemon's configuration is read again, by SIGHUP or gpusharectl reload, and what came of it
 * is told. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "program.h"
#include "server/events.h"

/* ---- who has asked ---- */

/* The question is older than what is being read: that answers it. */
static bool is_answered(const struct program *program, const struct peer *peer) {
  return peer->reload_ns <= program->read_ns;
}

/* To all whom it answers. A long text goes in parts. */
static void tell(struct program *program, enum gs_note kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void tell(struct program *program, enum gs_note kind, const char *format, ...) {
  char text[600];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  for (size_t at = 0, part; text[at]; at += part) {
    struct gs_msg msg = wire_msg(GS_NOTE, GS_GPU_ALL);
    part = strnlen(text + at, sizeof msg.note.text - 1);
    msg.note.kind = kind;
    msg.note.more = text[at + part] != '\0';
    memcpy(msg.note.text, text + at, part);
    list_each(node, &program->server.reloads) {
      struct peer *peer = list_entry(node, struct peer, reload_link);
      if (is_answered(program, peer))
        peer_send(peer, &msg);
    }
  }
}

static void answer(struct program *program) {
  struct list *next;
  for (struct list *node = program->server.reloads.next; node != &program->server.reloads; node = next) {
    struct peer *peer = list_entry(node, struct peer, reload_link);
    next = node->next;
    if (!is_answered(program, peer))
      continue;
    list_remove(node);
    if (program->files.err < 0)
      peer_reply(peer, -EINVAL, "the configuration is wrong, and stays as it was");
    else
      peer_reply(peer, 0, "");
    peer_set_ready(peer);
  }
}

/* ---- what is different ---- */

/* What counts only from the start on, and stays as it is. */
static const char *const lasting[] = {"socket", "state", "spatial"};

static void tell_change(void *program, const char *setting, const char *change) {
  for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
    if (strcmp(setting, lasting[i]) == 0)
      return;
  tell(program, GS_NOTE_CHANGED, "%s", change);
}

static void keep_lasting(struct program *program, struct config *fresh) {
  const struct config *config = &program->config;
  struct {
    bool differs;
    char text[400];
  } kept[] = {{.differs = !program->server.passed && strcmp(fresh->socket, config->socket) != 0},
              {.differs = strcmp(fresh->state, config->state) != 0},
              {.differs = program_spatial_changes(program, fresh)}};
  snprintf(kept[0].text, sizeof kept[0].text, "another socket needs a restart: it stays %s", config->socket);
  snprintf(kept[1].text, sizeof kept[1].text, "another folder for the state needs a restart: it stays %s",
           config->state);
  snprintf(kept[2].text, sizeof kept[2].text, "a change of spatial needs a restart: it stays as it was");
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    if (!kept[i].differs)
      continue;
    if (program->applies)
      log_warn("%s", kept[i].text);
    tell(program, GS_NOTE_RESTART, "%s", kept[i].text);
  }
  strcpy(fresh->socket, config->socket);
  strcpy(fresh->state, config->state);
}

static void apply(struct program *program) {
  struct config *fresh = &program->files.config;
  char changes[300];
  config_changes(&program->config, fresh, changes, sizeof changes);
  program->config = *fresh;
  events_on_reload(&program->daemon, clock_now_ns());
  program_apply(program);
  program_ask_for_cards(program);
  log_info("the configuration has been read again, by %s of %s: %s", program->reads_how,
           program->reads_by.text, *changes ? changes : "nothing has changed");
}

/* ---- reading ---- */

/* SIGRTMIN tells the loop. */
static void read_and_tell(struct program *program) {
  files_read(&program->arguments, &program->files);
  atomic_store(&program->has_read, true);
  kill(getpid(), SIGRTMIN);
}

static void *read_apart(void *program) {
  thread_begin("files");
  read_and_tell(program);
  return NULL;
}

/* Without a thread the loop waits for the files. */
static void begin(struct program *program) {
  program->reads = true;
  program->read_ns = clock_now_ns();
  program->applies = program->signalled;
  program->signalled = false;
  list_each(node, &program->server.reloads) program->applies |=
      !list_entry(node, struct peer, reload_link)->only_looks;
  if (thread_start(NULL, read_apart, program) < 0)
    read_and_tell(program);
}

static void end(struct program *program) {
  struct files *files = &program->files;
  program->reads = false;
  if (files->err < 0) {
    tell(program, GS_NOTE_WRONG, "%s", files->error);
  } else {
    keep_lasting(program, &files->config);
    config_each_change(&program->config, &files->config, tell_change, program);
  }
  if (program->applies && program_check_files(program) < 0)
    log_error("the configuration stays as it was");
  else if (program->applies)
    apply(program);
  else
    user_names_free(&files->names);
  answer(program);
  if (program->signalled || !list_empty(&program->server.reloads))
    begin(program);
  else
    notify_ready(&program->notify, program->daemon.client_count);
}

void reload_on_read(struct program *program) {
  if (atomic_exchange(&program->has_read, false))
    end(program);
}

void reload_on_signal(struct program *program, struct log_text by) {
  program->reads_how = "SIGHUP";
  program->reads_by = by;
  program->signalled = true;
  notify_reloading(&program->notify, clock_now_ns());
  if (!program->reads)
    begin(program);
}

void reload_on_peer(struct server *server, const struct peer *peer) {
  struct program *program = program_of(server);
  if (!peer->only_looks) {
    program->reads_how = "gpusharectl reload";
    program->reads_by = label_peer(peer);
    notify_reloading(&program->notify, clock_now_ns());
  }
  if (!program->reads)
    begin(program);
}
