/* top_source.c - gpusharectl top: asks a daemon again and again, without waiting. */
#include "ctl/top_source.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"

#define RETRY_NS NS_PER_S

struct top_source top_source_init(const char *path) {
  return (struct top_source){.path = path, .fd = -1};
}

void top_source_end(struct top_source *source) {
  answer_drop(&source->answer);
  if (source->fd >= 0)
    close(source->fd);
  source->fd = -1;
  source->asking = false;
}

uint64_t top_source_due_ns(const struct top_source *source, uint64_t interval_ns) {
  if (source->asked_ns == 0)
    return 0;
  if (source->asking)
    return source->asked_ns + ASK_ANSWER_MS * NS_PER_MS;
  if (source->again_ns)
    return source->again_ns;
  bool lost = *source->error.text;
  return source->asked_ns + (lost && interval_ns > RETRY_NS ? RETRY_NS : interval_ns);
}

static int connect_to(struct top_source *source) {
  int code = ask_connect_now(source->path, &source->fd, &source->error);
  source->again_ns = wire_connect_again_ns(code == ASK_MORE ? -EAGAIN : 0, &source->full_since_ns,
                                           ASK_ANSWER_MS * NS_PER_MS);
  return code == ASK_MORE && !source->again_ns ? ask_silence(&source->error) : code;
}

static int ask(struct top_source *source) {
  int code = source->fd < 0 ? connect_to(source) : CTL_OK;
  if (code == CTL_OK)
    code = answer_begin(&source->answer, source->fd, &source->error);
  source->asking = code == CTL_OK;
  return code;
}

static int take(struct top_source *source) {
  struct pollfd readable = {.fd = source->fd, .events = POLLIN};
  return poll(&readable, 1, 0) > 0 ? answer_take(&source->answer, source->fd, &source->error) : ASK_MORE;
}

bool top_source_step(struct top_source *source, uint64_t interval_ns, uint64_t now_ns) {
  bool due = now_ns >= top_source_due_ns(source, interval_ns);
  int code = ASK_MORE;
  if (source->asking) {
    code = take(source);
    if (code == ASK_MORE && due)
      code = ask_silence(&source->error);
  } else if (due) {
    source->asked_ns = now_ns;
    code = ask(source);
    code = code == CTL_OK ? ASK_MORE : code;
  }
  if (code == CTL_OK) {
    source->asking = false;
    *source->error.text = '\0';
  } else if (code != ASK_MORE) {
    top_source_end(source);
  }
  return code == CTL_OK;
}
