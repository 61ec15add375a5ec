/*
 * snapshot.h - what the daemon tells the page: its state, and the events of the last minute, as texts. Asked
 * for in steps, without waiting, over one connection that stays. It has what an unprivileged user of the host
 * may see, whoever runs this program.
 */
#ifndef GS_WEB_SNAPSHOT_H
#define GS_WEB_SNAPSHOT_H

#include "ctl/ctl.h"

#define SNAPSHOT_NEVER UINT64_MAX

/* An event as a line of JSON; they are in their order. */
struct snapshot_line {
  uint64_t seq, at_ns;
  size_t end; /* of the line, in the text of all */
};

struct snapshot {
  const char *socket; /* the daemon's */
  int fd;             /* -1: none */
  enum snapshot_step { SNAPSHOT_RESTS, SNAPSHOT_CONNECTS, SNAPSHOT_STATUS, SNAPSHOT_EVENTS } step;
  uint64_t begun_ns, made_ns; /* the last one, or that in the making */
  struct answer answer;
  /* Made: both of the same moment, from malloc; NULL: the taker has them, or there is the error instead. */
  char *status, *why;
  struct ask_error error; /* empty: none */
  /* Events. */
  struct gs_msg begin; /* EVENTS_BEGIN */
  uint64_t next_seq;
  struct snapshot_line *lines;
  size_t line_count, line_room;
  char *text;
  size_t size, room;
};

void snapshot_open(struct snapshot *snapshot, const char *socket);

/* Ask for a new one, unless that is going on. */
void snapshot_begin(struct snapshot *snapshot, uint64_t now_ns);

/* True: one has been made, or there is an error. */
bool snapshot_go_on(struct snapshot *snapshot, uint64_t now_ns);

/* Before then there is nothing to do unless the connection is readable; SNAPSHOT_NEVER. */
uint64_t snapshot_deadline_ns(const struct snapshot *snapshot);

/* A line {"event":"now"}, and the events behind this number: lines of JSON, from malloc. NULL: no memory. */
char *snapshot_events(const struct snapshot *snapshot, uint64_t after_seq, size_t *size);

#endif
