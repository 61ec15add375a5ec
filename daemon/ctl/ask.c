/* ask.c - gpusharectl's side of the conversation with the daemon; and what every command does with its
 * request: says what is wrong with it, and reaches its daemon. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "common/wire.h"
#include "ctl/ctl.h"
#include "shared/printable.h"

#define GONE "the daemon has closed the connection: see gpushare-daemon's log"
#define NONSENSE "the daemon's answer makes no sense: install the same version of both"

int ask_complain(struct ask_error *error, int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(error->text, sizeof error->text, format, list);
  va_end(list);
  return code;
}

int ask_say(int code, const struct ask_error *error) {
  if (code != CTL_OK)
    fprintf(stderr, "gpusharectl: %s\n", error->text);
  return code;
}

int ask_silence(struct ask_error *error) {
  return ask_complain(error, CTL_NO_DAEMON, "the daemon does not answer: see gpushare-daemon's log");
}

/* ---- a connection ---- */

/* What an attempt has brought. ASK_MORE: as many wait as may. */
static int take_connection(int result, const char *path, int *fd, struct ask_error *error) {
  if (result == -EAGAIN)
    return ASK_MORE;
  if (result == -ENOENT || result == -ECONNREFUSED)
    return ask_complain(
        error, CTL_NO_DAEMON,
        "no daemon at %s: start gpushare-daemon (as root for the default socket), or name its "
        "socket with --socket",
        path);
  if (result < 0)
    return ask_complain(error, CTL_NO_DAEMON, "can't reach a daemon at %s: %s", path, strerror(-result));
  *fd = result;
  return CTL_OK;
}

int ask_connect_now(const char *path, int *fd, struct ask_error *error) {
  return take_connection(wire_connect(path), path, fd, error);
}

int ask_try_connect(const char *path, int *fd, struct ask_error *error) {
  int code = take_connection(wire_connect_patiently(path, ASK_ANSWER_MS * NS_PER_MS), path, fd, error);
  return code == ASK_MORE ? ask_silence(error) : code;
}

/* ---- a message ---- */

static int rejected(const struct gs_msg *msg, struct ask_error *error) {
  if (msg->registered.reason == GS_REJECT_LIMIT)
    return ask_complain(
        error, CTL_REFUSED,
        "the daemon has no room for another connection of this user (limit %lu): end some of them",
        (unsigned long)msg->registered.value);
  return ask_complain(error, CTL_REFUSED,
                      "the daemon speaks protocol %lu, this program %u: install the same version",
                      (unsigned long)msg->registered.value, GS_PROTOCOL_VERSION);
}

/* A daemon's texts go to terminals. The copy is of the same text. */
static void make_printable(struct gs_msg *msg) {
#define MAKE_PRINTABLE(field) printable_copy(field, field, sizeof field)
  if (msg->type == GS_REPLY) {
    MAKE_PRINTABLE(msg->reply.text);
  } else if (msg->type == GS_NOTE) {
    MAKE_PRINTABLE(msg->note.text);
  } else if (msg->type == GS_STATUS_DAEMON) {
    MAKE_PRINTABLE(msg->daemon.release);
  } else if (msg->type == GS_STATUS_GPU) {
    MAKE_PRINTABLE(msg->gpu_status.name);
  } else if (msg->type == GS_STATUS_JOB) {
    MAKE_PRINTABLE(msg->job_status.name);
  } else if (msg->type == GS_STATUS_TERMS) {
    MAKE_PRINTABLE(msg->terms_status.gang);
  } else if (msg->type == GS_STATUS_ORIGIN) {
    MAKE_PRINTABLE(msg->origin_status.name);
    MAKE_PRINTABLE(msg->origin_status.container);
  } else if (msg->type == GS_STATUS_COMMAND) {
    MAKE_PRINTABLE(msg->command_status.text);
  } else if (msg->type == GS_EVENT && msg->event.kind == GS_EVENT_COMMAND) {
    MAKE_PRINTABLE(msg->event.text);
  } else if (msg->type == GS_EVENT) {
    MAKE_PRINTABLE(msg->event.name);
  }
#undef MAKE_PRINTABLE
}

int ask_take(int fd, struct gs_msg *msg, struct ask_error *error) {
  int err = wire_recv(fd, msg);
  if (err == -EAGAIN)
    return ASK_MORE;
  if (err == -EPROTONOSUPPORT)
    return ask_complain(error, CTL_NO_DAEMON,
                        "the daemon speaks another version: install the same version of both");
  if (err < 0)
    return ask_complain(error, CTL_NO_DAEMON, GONE);
  make_printable(msg);
  return msg->type == GS_REJECTED ? rejected(msg, error) : CTL_OK;
}

/* Wait until there is something. ms -1: however long it takes. */
static int await(int fd, int ms, struct ask_error *error) {
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  int ready;
  do
    ready = poll(&readable, 1, ms);
  while (ready < 0 && errno == EINTR); /* stopped and continued */
  return ready == 0 ? ask_silence(error) : CTL_OK;
}

static int receive(int fd, int ms, struct gs_msg *msg, struct ask_error *error) {
  int code = ASK_MORE;
  while (code == ASK_MORE)
    if ((code = await(fd, ms, error)) == CTL_OK)
      code = ask_take(fd, msg, error);
  return code;
}

static int refused(const struct gs_msg *msg, struct ask_error *error) {
  return ask_complain(error, CTL_REFUSED, "%s",
                      *msg->reply.text ? msg->reply.text : strerror((int)(0 - (uint32_t)msg->status)));
}

static int send_question(int fd, const struct gs_msg *question, struct ask_error *error) {
  return wire_send(fd, question) < 0 ? ask_complain(error, CTL_NO_DAEMON, GONE) : CTL_OK;
}

int ask_try_change(int fd, const struct gs_msg *question, struct ask_error *error) {
  struct gs_msg answer;
  int code = send_question(fd, question, error);
  if (code == CTL_OK)
    code = receive(fd, ASK_ANSWER_MS, &answer, error);
  if (code == CTL_OK && answer.type != GS_REPLY)
    return ask_complain(error, CTL_NO_DAEMON, NONSENSE);
  return code == CTL_OK && answer.status != 0 ? refused(&answer, error) : code;
}

int ask_process(const char *path, uint32_t job, int *process, struct ask_error *told) {
  struct gs_msg msg = wire_msg(GS_GET_PROCESS, GS_GPU_ALL);
  int fd, passed = -1, code = ask_try_connect(path, &fd, told);
  if (code != CTL_OK)
    return code;
  msg.get_process.job = job;
  code = send_question(fd, &msg, told);
  if (code == CTL_OK)
    code = await(fd, ASK_ANSWER_MS, told);
  if (code == CTL_OK) {
    ssize_t size = wire_recv_passed(fd, &msg, sizeof msg, &passed);
    code = size <= 0 || wire_check(&msg, (size_t)size) < 0 ? ask_complain(told, CTL_NO_DAEMON, GONE) : CTL_OK;
  }
  close(fd);
  if (code != CTL_OK)
    return code;
  make_printable(&msg);
  if (msg.type == GS_REJECTED)
    return rejected(&msg, told);
  if (msg.type == GS_REPLY && msg.status != 0)
    return refused(&msg, told);
  if (msg.type != GS_REPLY || passed < 0)
    return ask_complain(told, CTL_NO_DAEMON, NONSENSE);
  *process = passed;
  return ask_complain(told, CTL_OK, "%s", msg.reply.text);
}

int ask_try_reload(int fd, bool only_looks,
                   void (*take_note)(void *argument, enum gs_note kind, const char *text), void *argument,
                   struct ask_error *error) {
  struct gs_msg question = wire_msg(GS_RELOAD, GS_GPU_ALL), msg;
  char text[1024] = "";
  question.reload.only_looks = only_looks;
  int code = send_question(fd, &question, error);
  while (code == CTL_OK && (code = receive(fd, ASK_ANSWER_MS, &msg, error)) == CTL_OK &&
         msg.type == GS_NOTE) {
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "%s", msg.note.text);
    if (msg.note.more)
      continue;
    take_note(argument, (enum gs_note)msg.note.kind, text);
    *text = '\0';
  }
  if (code == CTL_OK && msg.type != GS_REPLY)
    return ask_complain(error, CTL_NO_DAEMON, NONSENSE);
  return code == CTL_OK && msg.status != 0 ? refused(&msg, error) : code;
}

/* ---- status ---- */

int answer_begin(struct answer *answer, int fd, struct ask_error *error) {
  struct gs_msg question = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  question.get_status.details = GS_DETAILS_CARDS;
  *answer = (struct answer){0};
  return send_question(fd, &question, error);
}

/* Room for one more. False: no memory. */
static bool make_room(struct answer *answer) {
  if (answer->count < answer->room)
    return true;
  size_t more = answer->room ? 2 * answer->room : 64;
  struct gs_msg *grown = realloc(answer->msgs, more * sizeof *grown);
  if (!grown)
    return false;
  answer->msgs = grown;
  answer->room = more;
  return true;
}

int answer_take(struct answer *answer, int fd, struct ask_error *error) {
  for (;;) {
    struct gs_msg msg;
    int code = ask_take(fd, &msg, error);
    if (code != CTL_OK || msg.type == GS_STATUS_END)
      return code;
    if (msg.type == GS_REPLY)
      return refused(&msg, error);
    if (msg.type == GS_STATUS_JOB && !answer->has_gpu) /* who reads relies on that */
      return ask_complain(error, CTL_NO_DAEMON, NONSENSE);
    answer->has_gpu |= msg.type == GS_STATUS_GPU;
    if (!make_room(answer))
      return ask_complain(error, CTL_NO_DAEMON, "out of memory");
    answer->msgs[answer->count++] = msg;
  }
}

void answer_drop(struct answer *answer) {
  free(answer->msgs);
  *answer = (struct answer){0};
}

int ask_try_status(int fd, struct gs_msg **msgs, size_t *count, struct ask_error *error) {
  struct answer answer;
  int code = answer_begin(&answer, fd, error);
  if (code == CTL_OK)
    code = ASK_MORE;
  while (code == ASK_MORE)
    if ((code = await(fd, ASK_ANSWER_MS, error)) == CTL_OK)
      code = answer_take(&answer, fd, error);
  if (code != CTL_OK) {
    answer_drop(&answer);
    return code;
  }
  *msgs = answer.msgs;
  *count = answer.count;
  return CTL_OK;
}

int ask_status(const char *path, struct gs_msg **msgs, size_t *count, struct ask_error *error) {
  int fd, code = ask_try_connect(path, &fd, error);
  if (code != CTL_OK)
    return code;
  code = ask_try_status(fd, msgs, count, error);
  close(fd);
  return code;
}

/* ---- events ---- */

int ask_events(int fd, const struct gs_msg *question,
               int (*take_event)(void *reader, const struct gs_msg *msg), void *reader) {
  struct ask_error error;
  struct gs_msg msg;
  int ms = question->get_events.follow ? -1 : ASK_ANSWER_MS;
  int code = ask_say(send_question(fd, question, &error), &error);
  while (code == CTL_OK) {
    code = receive(fd, ms, &msg, &error);
    if (code == CTL_OK && msg.type == GS_REPLY)
      code = refused(&msg, &error);
    if (ask_say(code, &error) == CTL_OK) {
      if (msg.type == GS_EVENTS_END)
        break;
      code = take_event(reader, &msg);
    }
  }
  return code;
}

/* ---- what every command does with its request ---- */

int usage_error(const char *what, const char *word) {
  fprintf(stderr, "gpusharectl: %s%s%s%s; try --help\n", what, word ? " '" : "", word ? word : "",
          word ? "'" : "");
  return CTL_USAGE;
}

int usage_error_near(const char *what, const char *word, const char *meant) {
  if (!meant)
    return usage_error(what, word);
  fprintf(stderr, "gpusharectl: %s '%s'; did you mean '%s'?\n", what, word, meant);
  return CTL_USAGE;
}

int command_error(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "gpusharectl: ");
  vfprintf(stderr, format, list);
  fprintf(stderr, "\n");
  va_end(list);
  return code;
}

const char *daemon_path(const struct run_request *request) {
  const char *environment = getenv("GPUSHARE_SOCKET");
  const char *path = environment && *environment ? environment : GS_DEFAULT_SOCKET;
  return request->socket ? request->socket : path;
}

int connect_daemon(const struct request *request, int *fd) {
  struct ask_error error;
  return ask_say(ask_try_connect(daemon_path(&request->run), fd, &error), &error);
}

int read_job(const char *text, uint32_t *job) {
  int64_t number;
  if (parse_integer(text, 1, UINT32_MAX, &number) < 0)
    return usage_error("not the number of a job (see gpusharectl status):", text);
  *job = (uint32_t)number;
  return CTL_OK;
}

int for_each_job(const struct request *request, int end,
                 int (*act)(void *context, uint32_t job, struct ask_error *error), void *context) {
  int first_code = CTL_OK;
  uint32_t job;
  for (int i = 1; i < end; i++)
    if (read_job(request->words[i], &job) != CTL_OK)
      return CTL_USAGE;
  for (int i = 1; i < end; i++) {
    struct ask_error error = {0};
    read_job(request->words[i], &job);
    int code = act(context, job, &error);
    if (code != CTL_OK && end > 2)
      command_error(code, "job %u: %s", job, error.text);
    else
      ask_say(code, &error);
    first_code = first_code == CTL_OK ? code : first_code;
  }
  return first_code;
}
