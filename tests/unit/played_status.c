/* played_status.c - a daemon that answers one question for its status. */
#include "played_status.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "suite.h"

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct gs_msg msgs[32];
static int count;
static uint32_t gpu;
static pid_t player;

void played_set_up(void) {
  played_begin();
  strcpy(address.sun_path, "/tmp/gpushare-status-XXXXXX");
  ck_assert_int_ge(mkstemp(address.sun_path), 0);
  unlink(address.sun_path);
}

void played_tear_down(void) { unlink(address.sun_path); }

void played_begin(void) {
  count = 0;
  gpu = UINT32_MAX;
}

struct gs_msg *played_add(enum gs_msg_type type) {
  gpu += type == GS_STATUS_GPU;
  ck_assert_int_lt(count, (int)(sizeof msgs / sizeof *msgs) - 1);
  msgs[count] = wire_msg(type, gpu);
  return &msgs[count++];
}

struct gs_msg *played_add_gpu(uint64_t handovers) {
  struct gs_msg *msg = played_add(GS_STATUS_GPU);
  msg->gpu_status.uuid[0] = (uint8_t)count;
  msg->gpu_status.capacity_bytes = msg->gpu_status.total_bytes = 16 * GIB;
  msg->gpu_status.flags = GS_GPU_SERIALIZED;
  msg->gpu_status.handovers = handovers;
  msg->gpu_status.jobs = 1;
  return msg;
}

struct gs_msg *played_add_job(enum gs_job_state state, unsigned flags, uint64_t used_bytes,
                              uint64_t resident_bytes) {
  struct gs_msg *job = played_add(GS_STATUS_JOB);
  job->job_status.state = (uint8_t)state;
  job->job_status.flags = (uint8_t)flags;
  job->job_status.used_bytes = used_bytes;
  job->job_status.resident_bytes = resident_bytes;
  job->job_status.held_ns = NS_PER_S;
  return job;
}

static void answer(int listener) {
  struct gs_msg question;
  int fd = accept(listener, NULL, NULL);
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  if (poll(&readable, 1, 10000) == 1 && wire_recv(fd, &question) == 0 && question.type == GS_GET_STATUS)
    for (int i = 0; i < count; i++)
      wire_send(fd, &msgs[i]);
  recv(fd, &question, sizeof question, 0); /* until the other end has closed */
}

const char *played_listen(void) {
  int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  ck_assert_int_eq(listen(listener, 1), 0);
  msgs[count] = wire_msg(GS_STATUS_END, GS_GPU_ALL);
  player = fork();
  if (player == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    count++;
    answer(listener);
    _exit(0);
  }
  close(listener);
  return address.sun_path;
}

void played_end(void) {
  waitpid(player, NULL, 0);
  unlink(address.sun_path);
}

/* ---- what becomes of it, as JSON ---- */

bool json_has(const json_t *found, const json_t *wanted) {
  const char *key;
  const json_t *value;
  size_t i;
  if (json_is_object(wanted)) {
    json_object_foreach((json_t *)(uintptr_t)wanted, key,
                        value) if (!json_has(json_object_get(found, key), value)) return false;
    return json_is_object(found);
  }
  if (json_is_array(wanted)) {
    json_array_foreach(wanted, i, value) if (!json_has(json_array_get(found, i), value)) return false;
    return json_array_size(found) == json_array_size(wanted);
  }
  return json_equal(found, wanted);
}

void check_json(const char *text, const char *wanted) {
  char quoted[2048];
  json_error_t error;
  ck_assert_uint_lt(strlen(wanted), sizeof quoted);
  strcpy(quoted, wanted);
  for (char *at = quoted; (at = strchr(at, '\'')); *at = '"')
    ;
  json_t *found = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(found != NULL, "%s: %s", error.text, text);
  json_t *parts = json_loads(quoted, 0, &error);
  ck_assert_msg(parts != NULL, "%s: %s", error.text, wanted);
  ck_assert_msg(json_has(found, parts), "'%s' is not in: %s", wanted, text);
  json_decref(found);
  json_decref(parts);
}
