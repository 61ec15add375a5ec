/* ask.c - gpusharectl's side of the conversation with the daemon. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "ctl/ctl.h"

#define ANSWER_MS 10000

int ask_connect(const char *path, int *fd) {
  int result = wire_connect(path);
  if (result >= 0) {
    *fd = result;
    return CTL_OK;
  }
  if (result == -ENOENT || result == -ECONNREFUSED)
    fprintf(
        stderr,
        "gpusharectl: no daemon at %s: start gpushare-daemon (as root for the default socket), or name its "
        "socket with --socket\n",
        path);
  else
    fprintf(stderr, "gpusharectl: can't reach a daemon at %s: %s\n", path, strerror(-result));
  return CTL_NO_DAEMON;
}

static int complain(const char *what) {
  fprintf(stderr, "gpusharectl: %s\n", what);
  return CTL_NO_DAEMON;
}

static int refuse_version(const struct gs_msg *msg) {
  fprintf(stderr, "gpusharectl: the daemon speaks protocol %lu, this program %u: install the same version\n",
          (unsigned long)msg->registered.value, GS_PROTOCOL_VERSION);
  return CTL_REFUSED;
}

/* -1: however long it takes. */
static int receive_within(int fd, int ms, struct gs_msg *msg) {
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  int ready;
  do
    ready = poll(&readable, 1, ms);
  while (ready < 0 && errno == EINTR); /* stopped and continued */
  if (ready == 0)
    return complain("the daemon does not answer");
  int err = ready < 0 ? -errno : wire_recv(fd, msg);
  if (err == -EPROTONOSUPPORT)
    return complain("the daemon speaks another version: install the same version of both");
  if (err < 0)
    return complain("the daemon has closed the connection");
  return msg->type == GS_REJECTED ? refuse_version(msg) : CTL_OK;
}

static int receive(int fd, struct gs_msg *msg) { return receive_within(fd, ANSWER_MS, msg); }

static int refused(const struct gs_msg *msg) {
  fprintf(stderr, "gpusharectl: %s\n", *msg->reply.text ? msg->reply.text : strerror(-msg->status));
  return CTL_REFUSED;
}

static int send_question(int fd, const struct gs_msg *question) {
  return wire_send(fd, question) < 0 ? complain("the daemon has closed the connection") : CTL_OK;
}

int ask_change(int fd, const struct gs_msg *question) {
  struct gs_msg answer;
  int code = send_question(fd, question);
  if (code == CTL_OK)
    code = receive(fd, &answer);
  return code == CTL_OK && answer.status != 0 ? refused(&answer) : code;
}

static int append(struct gs_msg **msgs, size_t *count, size_t *room, const struct gs_msg *msg) {
  if (*count == *room) {
    size_t more = *room ? 2 * *room : 64;
    struct gs_msg *grown = realloc(*msgs, more * sizeof *grown);
    if (!grown)
      return complain("out of memory");
    *msgs = grown;
    *room = more;
  }
  (*msgs)[(*count)++] = *msg;
  return CTL_OK;
}

int ask_status(int fd, struct gs_msg **msgs, size_t *count) {
  struct gs_msg msg = wire_msg(GS_GET_STATUS, GS_GPU_ALL), *all = NULL;
  size_t have = 0, room = 0;
  int code = send_question(fd, &msg);
  while (code == CTL_OK && (code = receive(fd, &msg)) == CTL_OK && msg.type != GS_STATUS_END)
    code = msg.type == GS_REPLY ? refused(&msg) : append(&all, &have, &room, &msg);
  if (code != CTL_OK) {
    free(all);
    return code;
  }
  *msgs = all;
  *count = have;
  return CTL_OK;
}

int ask_events(int fd, const struct gs_msg *question, int (*take)(void *reader, const struct gs_msg *msg),
               void *reader) {
  struct gs_msg msg;
  int code = send_question(fd, question), ms = question->get_events.follow ? -1 : ANSWER_MS;
  while (code == CTL_OK && (code = receive_within(fd, ms, &msg)) == CTL_OK && msg.type != GS_EVENTS_END)
    code = msg.type == GS_REPLY ? refused(&msg) : take(reader, &msg);
  return code;
}
