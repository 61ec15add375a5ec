/* fake_daemon.c - see fake_daemon.h. */
#include "fake_daemon.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire.h"
#include "process.h"
#include "runner.h"

void fake_listen(struct fake_daemon *fake, const char *socket_path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  *fake = (struct fake_daemon){.fd = -1};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
  fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  CHECK(bind(fake->listener, (struct sockaddr *)&address, sizeof address) == 0, "%s", strerror(errno));
  CHECK(listen(fake->listener, 8) == 0, "%s", strerror(errno));
}

static void tell(struct fake_daemon *fake, const struct gs_msg *msg) {
  int err = wire_send(fake->fd, msg);
  CHECK(err == 0, "%s: %s", wire_type_name(msg->type), strerror(-err));
}

/* ---- what the client says ---- */

static bool is_readable(int fd, int ms) {
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  return poll(&readable, 1, ms) > 0;
}

static struct gs_msg receive(struct fake_daemon *fake) {
  struct gs_msg msg;
  CHECK(is_readable(fake->fd, deadline_left_ms(deadline_in(PROCESS_LIMIT_S))), "nothing comes");
  int err = wire_recv(fake->fd, &msg);
  CHECK(err == 0, "receive: %s", strerror(-err));
  return msg;
}

static void grant_memory(struct fake_daemon *fake, const struct gs_msg *msg) {
  struct gs_msg reply = wire_msg(GS_MEM_REPLY, msg->gpu);
  fake->used_bytes = msg->mem.total_bytes;
  fake->pinned_bytes = msg->mem.pinned_bytes;
  memcpy(fake->kind_bytes, msg->mem.kind_bytes, sizeof fake->kind_bytes);
  reply.mem_reply.granted_bytes = fake->used_bytes + fake->slack_bytes;
  reply.mem_reply.pinned_bytes = fake->pinned_bytes + fake->slack_bytes;
  if (msg->type == GS_MEM_REQUEST)
    tell(fake, &reply);
}

static void note_resident(struct fake_daemon *fake, const struct gs_msg *msg) {
  CHECK(msg->resident.room_seq <= fake->room_seq, "it knows a room that nobody has told");
  fake->resident_bytes = msg->resident.resident_bytes;
  fake->evicted_bytes += msg->resident.evicted_bytes;
  fake->restored_bytes += msg->resident.restored_bytes;
  fake->reports++;
}

static void note_progress(struct fake_daemon *fake, const struct gs_msg *msg) {
  bool active = msg->progress.flags & GS_PROGRESS_ACTIVE;
  fake->returns += active && !fake->active;
  fake->active = active;
  fake->progresses++;
}

/* True if the test wants to see it. */
static bool take_note(struct fake_daemon *fake, const struct gs_msg *msg) {
  switch (msg->type) {
  case GS_MEM_REQUEST:
  case GS_MEM_REPORT:
    grant_memory(fake, msg);
    return false;
  case GS_REQ_LOCK:
    fake->requested = true;
    return false;
  case GS_PROGRESS:
    note_progress(fake, msg);
    return false;
  case GS_CLIENT_STATE:
  case GS_COMMAND:
  case GS_EXITING:
    return false;
  case GS_RESIDENT:
    note_resident(fake, msg);
    return true;
  default:
    return true;
  }
}

static struct gs_msg hear(struct fake_daemon *fake) {
  struct gs_msg msg;
  do
    msg = receive(fake);
  while (!take_note(fake, &msg));
  return msg;
}

struct gs_msg fake_expect(struct fake_daemon *fake, enum gs_msg_type type) {
  struct gs_msg msg = hear(fake);
  CHECK(msg.type == type, "%s comes instead of %s", wire_type_name(msg.type), wire_type_name(type));
  return msg;
}

void fake_expect_only(struct fake_daemon *fake, enum gs_msg_type type, int ms) {
  while (is_readable(fake->fd, ms)) {
    struct gs_msg msg = receive(fake);
    CHECK(!take_note(fake, &msg) || msg.type == type, "%s comes", wire_type_name(msg.type));
  }
}

bool fake_hears(struct fake_daemon *fake, enum gs_msg_type type, int ms) {
  while (is_readable(fake->fd, ms)) {
    struct gs_msg msg = receive(fake);
    if (!take_note(fake, &msg))
      continue;
    CHECK(msg.type == type, "%s comes", wire_type_name(msg.type));
    return true;
  }
  return false;
}

void fake_expect_silence(struct fake_daemon *fake, int ms) { fake_expect_only(fake, GS_REQ_LOCK, ms); }

void fake_await_request(struct fake_daemon *fake) {
  while (!fake->requested) {
    struct gs_msg msg = receive(fake);
    CHECK(!take_note(fake, &msg), "%s comes instead of REQ_LOCK", wire_type_name(msg.type));
  }
}

void fake_await_used(struct fake_daemon *fake, uint64_t used_bytes) {
  while (fake->used_bytes < used_bytes) {
    struct gs_msg msg = receive(fake);
    CHECK(!take_note(fake, &msg), "%s comes", wire_type_name(msg.type));
  }
}

void fake_await_pinned(struct fake_daemon *fake, uint64_t pinned_bytes) {
  while (fake->pinned_bytes != pinned_bytes) {
    struct gs_msg msg = receive(fake);
    CHECK(!take_note(fake, &msg), "%s comes", wire_type_name(msg.type));
  }
}

static bool kind_is_told(const struct fake_daemon *fake, enum gs_pinned kind, uint64_t bytes) {
  uint64_t sum_bytes = 0;
  for (int i = 0; i < GS_PINNED_COUNT; i++)
    sum_bytes += fake->kind_bytes[i];
  return fake->kind_bytes[kind] == bytes && sum_bytes == fake->pinned_bytes;
}

void fake_await_kind(struct fake_daemon *fake, enum gs_pinned kind, uint64_t bytes) {
  while (!kind_is_told(fake, kind, bytes)) {
    struct gs_msg msg = receive(fake);
    CHECK(!take_note(fake, &msg), "%s comes", wire_type_name(msg.type));
  }
}

static bool room_is_reached(const struct fake_daemon *fake, uint64_t slack_bytes) {
  uint64_t most = fake->room_bytes < fake->used_bytes ? fake->room_bytes : fake->used_bytes;
  return fake->resident_bytes <= most &&
         (fake->resident_bytes == most || fake->resident_bytes + slack_bytes > most);
}

void fake_await_room(struct fake_daemon *fake, uint64_t slack_bytes) {
  do {
    struct gs_msg msg = fake_expect(fake, GS_RESIDENT);
    if (msg.resident.room_seq == fake->room_seq && room_is_reached(fake, slack_bytes))
      return;
  } while (true);
}

void fake_await_released(struct fake_daemon *fake) {
  uint64_t evicted_bytes = fake->evicted_bytes;
  struct gs_msg msg;
  while ((msg = hear(fake)).type == GS_RESIDENT)
    CHECK(fake->evicted_bytes == evicted_bytes, "memory leaves before the lock is released");
  CHECK(msg.type == GS_LOCK_RELEASED, "%s comes instead of LOCK_RELEASED", wire_type_name(msg.type));
  CHECK(msg.epoch == fake->epoch, "of an earlier grant");
}

struct gs_msg fake_await_active(struct fake_daemon *fake) {
  struct gs_msg msg;
  while ((msg = hear(fake)).type == GS_RESIDENT)
    ;
  CHECK(msg.type == GS_LOCK_ACTIVE, "%s comes instead of LOCK_ACTIVE", wire_type_name(msg.type));
  CHECK(msg.epoch == fake->epoch, "of an earlier grant");
  return msg;
}

/* ---- what the daemon says ---- */

static void end(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

void fake_hang_up(struct fake_daemon *fake) { end(&fake->fd); }

static bool has_hung_up(int fd) {
  struct pollfd other_end = {.fd = fd, .events = POLLRDHUP};
  return poll(&other_end, 1, 0) > 0;
}

/* A client that nobody has answered for a while tries again. */
static void accept_next(struct fake_daemon *fake) {
  do {
    fake_hang_up(fake);
    CHECK(is_readable(fake->listener, deadline_left_ms(deadline_in(PROCESS_LIMIT_S))), "nobody connects");
    fake->fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  } while (has_hung_up(fake->fd));
}

/* A client that has waited for two seconds goes, and comes again: perhaps just now. */
static void take_in(struct fake_daemon *fake) {
  struct gs_msg msg = wire_msg(GS_REGISTERED, 0);
  msg.registered.job = 1;
  do {
    accept_next(fake);
    fake->epoch = fake->room_seq = 0;
    fake->requested = false;
    fake_expect(fake, GS_REGISTER);
  } while (wire_send(fake->fd, &msg) != 0 ||
           !is_readable(fake->fd, deadline_left_ms(deadline_in(PROCESS_LIMIT_S))) || has_hung_up(fake->fd));
}

void fake_accept_refusing(struct fake_daemon *fake, uint64_t again_ns) {
  take_in(fake);
  struct gs_msg msg = wire_msg(GS_REJECTED, fake_expect(fake, GS_ATTACH).gpu);
  msg.status = -ENODEV;
  msg.registered.reason = GS_REJECT_GPU;
  msg.registered.value = again_ns;
  tell(fake, &msg);
}

struct gs_msg fake_accept(struct fake_daemon *fake, uint64_t capacity_bytes, enum gs_memory memory) {
  take_in(fake);
  return fake_attach(fake, capacity_bytes, memory);
}

struct gs_msg fake_attach(struct fake_daemon *fake, uint64_t capacity_bytes, enum gs_memory memory) {
  struct gs_msg attach = fake_expect(fake, GS_ATTACH), msg;
  fake->used_bytes = attach.attach.used_bytes;
  fake->pinned_bytes = 0; /* is told by itself */
  fake->room_bytes = fake->resident_bytes = attach.attach.resident_bytes;
  msg = wire_msg(GS_ATTACHED, attach.gpu);
  msg.attached.capacity_bytes = capacity_bytes;
  msg.attached.memory = memory;
  tell(fake, &msg);
  msg = wire_msg(GS_SCHED_ON, attach.gpu);
  tell(fake, &msg);
  return attach;
}

static struct gs_msg turn_msg(struct fake_daemon *fake, enum gs_msg_type type, uint64_t epoch,
                              uint64_t room_bytes) {
  struct gs_msg msg = wire_msg(type, 0);
  msg.epoch = epoch;
  msg.room.room_bytes = fake->room_bytes = room_bytes;
  msg.room.room_seq = ++fake->room_seq;
  msg.room.target_bytes = fake->target_bytes;
  return msg;
}

static void tell_turn(struct fake_daemon *fake, enum gs_msg_type type, uint64_t epoch, uint64_t room_bytes) {
  struct gs_msg msg = turn_msg(fake, type, epoch, room_bytes);
  tell(fake, &msg);
}

void fake_tell_room(struct fake_daemon *fake, uint64_t room_bytes) {
  tell_turn(fake, GS_ROOM, 0, room_bytes);
}

void fake_expect_no_moves(struct fake_daemon *fake) {
  struct gs_msg msg = wire_msg(GS_SCHED_OFF, 0);
  tell(fake, &msg);
}

void fake_grant(struct fake_daemon *fake, uint64_t room_bytes) {
  fake->requested = false;
  tell_turn(fake, GS_LOCK_OK, ++fake->epoch, room_bytes);
}

void fake_want(struct fake_daemon *fake) {
  struct gs_msg msg = wire_msg(GS_LOCK_WANTED, 0);
  msg.epoch = fake->epoch;
  tell(fake, &msg);
}

void fake_drop(struct fake_daemon *fake, uint64_t epoch, uint64_t room_bytes) {
  tell_turn(fake, GS_DROP_LOCK, epoch, room_bytes);
}

void fake_share(struct fake_daemon *fake, uint32_t share_ppm, bool watched) {
  struct gs_msg msg = wire_msg(GS_SHARE, 0);
  msg.share.share_ppm = share_ppm;
  msg.share.watch = watched ? GS_WATCH_PROGRESS : GS_WATCH_NOT;
  tell(fake, &msg);
}

void fake_await_idle(struct fake_daemon *fake, unsigned returns) {
  while (fake->active || fake->returns < returns) {
    struct gs_msg msg = receive(fake);
    CHECK(!take_note(fake, &msg), "%s comes", wire_type_name(msg.type));
  }
}

void fake_end(struct fake_daemon *fake) {
  end(&fake->listener);
  end(&fake->fd);
}
