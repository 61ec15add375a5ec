/* test_daemon.c - with no daemon, with one that comes later, with one of another version, with wrong
 * settings. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/wire.h"
#include "runner.h"
#include "scene.h"

#define CARD "small,capacity=32MiB"

static struct scene scene;

static void check_lines(const struct process *job, int count) {
  CHECK(process_log_lines(job) == count, "%d lines in its log, not %d", process_log_lines(job), count);
}

TEST(none) {
  scene_begin(&scene, CARD);
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "20", NULL);
  process_finish(job);
  check_lines(job, 1);
  CHECK(process_log_count(job, "no daemon") == 1);
  scene_end(&scene);
}

TEST(comes_later) {
  char text[8192], pid[16];
  scene_begin(&scene, CARD);
  struct process *job =
      scene_start(&scene, NULL, "job", "--bytes", "8M", "--rounds", "0", "--progress", NULL);
  process_expect(job, "round 3", NULL, 0);
  check_lines(job, 1);
  scene_start_daemon(&scene, "--mode", "on", "--tq", "5ms", NULL);
  scene_await(&scene, scene_job_known, job, "the job has joined");
  snprintf(pid, sizeof pid, "%d", (int)job->pid);
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 0);
  CHECK(strstr(text, pid), "gpusharectl status does not show %s:\n%s", pid, text);
  /* It takes turns now. */
  struct process *other = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "10", NULL);
  process_finish(other);
  process_finish(job);
  check_lines(other, 0);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* Several that ran without a daemon, all open: it brings them to order. */
TEST(comes_later_to_several) {
  struct process *jobs[3];
  scene_begin(&scene, CARD);
  for (int i = 0; i < 3; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "0", "--progress", NULL);
  for (int i = 0; i < 3; i++)
    process_expect(jobs[i], "round 2", NULL, 0);
  scene_start_daemon(&scene, "--mode", "on", "--tq", "5ms", NULL);
  for (int i = 0; i < 3; i++)
    scene_await(&scene, scene_job_known, jobs[i], "the job has joined");
  for (int i = 0; i < 3; i++) {
    process_drain(jobs[i]);
    process_expect(jobs[i], "round", NULL, 0);
    process_expect(jobs[i], "round", NULL, 0);
  }
  for (int i = 0; i < 3; i++)
    process_finish(jobs[i]);
  scene_end(&scene);
}

TEST(required) {
  static const char *const environment[] = {"GPUSHARE_REQUIRED=1", NULL};
  scene_begin(&scene, CARD);
  struct process *job = scene_start(&scene, environment, "job", "--bytes", "8M", "--rounds", "5", NULL);
  process_await_log(job, "waiting");
  struct pollfd says = {.fd = job->out, .events = POLLIN};
  while (poll(&says, 1, 300) > 0) { /* it may say "ready", but nothing that takes the GPU */
    char line[64];
    CHECK(process_line(job, line, sizeof line) && strcmp(line, "ready") == 0, "it said '%s'", line);
  }
  check_lines(job, 1);
  scene_start_daemon(&scene, NULL);
  process_finish(job);
  scene_end(&scene);
}

static void run_with_wrong(const char *setting, const char *complaint) {
  const char *const environment[] = {setting, NULL};
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, NULL);
  struct process *job =
      scene_start(&scene, environment, "job", "--wait", "--bytes", "8M", "--rounds", "5", NULL);
  process_expect(job, "ready", NULL, 0);
  CHECK(scene_process(&scene, job, 0).pinned_bytes == 0, "the default is to convert");
  process_say(job, "go");
  process_finish(job);
  check_lines(job, 1);
  CHECK(process_log_count(job, complaint) == 1, "the line is not: %s", complaint);
  scene_end(&scene);
}

TEST(wrong_memory) {
  run_with_wrong("GPUSHARE_MEMORY=banana", "GPUSHARE_MEMORY is managed, swap or off, not 'banana'");
}
TEST(wrong_log) {
  run_with_wrong("GPUSHARE_LOG=loud", "GPUSHARE_LOG is error, warn, info or debug, not 'loud'");
}
TEST(wrong_required) {
  run_with_wrong("GPUSHARE_REQUIRED=maybe", "GPUSHARE_REQUIRED is 0 or 1, not 'maybe'");
}
TEST(wrong_oversubscribe) {
  run_with_wrong("GPUSHARE_SINGLE_OVERSUBSCRIBE=2", "GPUSHARE_SINGLE_OVERSUBSCRIBE is 0 or 1, not '2'");
}

/* A daemon of another version (a small program that says so to everyone). */
TEST(daemon_of_another_version) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  scene_begin(&scene, CARD);
  struct process *stranger = scene_start(&scene, plain, "stranger", scene.socket, NULL);
  process_expect(stranger, "listening", NULL, 0);
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "5", NULL);
  process_finish(job);
  check_lines(job, 1);
  CHECK(process_log_count(job, "version") == 1);
  process_close_input(stranger);
  process_wait_exit(stranger, 0);
  scene_end(&scene);
}

TEST(client_of_another_version) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, NULL);
  int fd = scene_connect(&scene);
  msg.version = GS_PROTOCOL_VERSION + 1;
  CHECK(send(fd, &msg, sizeof msg, MSG_NOSIGNAL) == sizeof msg);
  CHECK(scene_receive(fd, &msg) == 0 && msg.type == GS_REJECTED);
  CHECK(msg.registered.reason == GS_REJECT_VERSION && msg.registered.value == GS_PROTOCOL_VERSION);
  close(fd);
  scene_end(&scene);
}

/* Garbage costs the sender its connection, and nobody else anything. */
TEST(garbage) {
  uint64_t seed = test_seed();
  unsigned char bytes[2 * GS_MSG_SIZE];
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, "--mode", "on", "--tq", "3ms", NULL);
  struct process *job =
      scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "0", "--progress", NULL);
  process_expect(job, "round 1", NULL, 0);
  for (int i = 0; i < 200; i++) {
    struct gs_msg msg;
    int fd = scene_connect(&scene);
    for (size_t b = 0; b < sizeof bytes; b++)
      bytes[b] = (unsigned char)random_next(&seed);
    size_t size = i % 3 == 0 ? GS_MSG_SIZE : 1 + random_next(&seed) % (sizeof bytes - 1);
    CHECK(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    CHECK(scene_receive(fd, &msg) == -ECONNRESET, "the connection is still there");
    close(fd);
  }
  process_drain(job);
  process_expect(job, "round", NULL, 0);
  process_expect(job, "round", NULL, 0);
  process_finish(job);
  scene_end(&scene);
}
