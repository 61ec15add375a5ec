/* test_preempt.c - stop and go of a process' own work: src/preempt in a program of its own
 * (tests/gpu/preempt.c), on simulated drivers that do it, refuse it, or only say so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runner.h"
#include "scene.h"

static struct scene scene;

static void run(const char *card, environment_list environment, const char *what, const char *number,
                const char *expected) {
  scene_begin(&scene, card);
  struct process *process = scene_start(&scene, environment, "preempt", what, number, NULL);
  if (expected)
    process_expect(process, expected, NULL, 0);
  process_expect(process, "ok", NULL, 0);
  process_wait_exit(process, 0);
  scene_end(&scene);
}

static const char *const alone[] = {"LD_PRELOAD=", NULL};

TEST(stops_and_goes_on) { run("small", alone, "verdict", NULL, "verdict yes 4 groups 8 compute 12 other"); }
TEST(stands_still_in_the_middle) { run("small", alone, "standstill", "4194304", "copies   stood still"); }
TEST(many_stops) { run("small", alone, "latency", "50", "stop"); }
TEST(contents_under_random_stops) { run("small", alone, "contents", "300", "contents right"); }
TEST(contexts_come_and_go_while_stopped) { run("small", alone, "contexts", NULL, NULL); }

/* Why no search for leaks: a child may wait at its exit for a lock of the sanitizer's, which another thread
 * held at the fork. */
TEST(forks_while_stopped) {
  static const char *const forking[] = {"LD_PRELOAD=", "ASAN_OPTIONS=use_sigaltstack=0:detect_leaks=0", NULL};
  run("small", forking, "fork", NULL, NULL);
}

TEST(exits_while_stopped) { run("small", alone, "exit", NULL, NULL); }
TEST(slices) { run("small", alone, "slices", NULL, NULL); }
TEST(slow_stops) { run("small,stop_ns=20ms", alone, "contents", "20", "contents right"); }

/* The second is the program's only one. */
TEST(one_gpu_of_three) {
  static const char *const second[] = {"LD_PRELOAD=", "CUDA_VISIBLE_DEVICES=1", NULL};
  run("small,gpus=3", second, "verdict", NULL, "verdict yes 4 groups 8 compute 12 other");
}

TEST(refused_as_to_clients_of_mps) { run("small,stop_status=58", alone, "verdict", NULL, "verdict no 0x3a"); }
TEST(refused_as_busy) { run("small,stop_status=3", alone, "verdict", NULL, "verdict no 0x3"); }
TEST(refused_for_the_wrong_client) { run("small,stop_status=35", alone, "verdict", NULL, "verdict no 0x23"); }
TEST(an_older_layout) { run("small,stop_older=1", alone, "verdict", NULL, "verdict no 0x3a"); }
TEST(accepted_and_ignored) { run("small,stop_ignored=1", alone, "verdict", NULL, "verdict no"); }

TEST(off_by_setting) {
  static const char *const off[] = {"LD_PRELOAD=", "GPUSHARE_PREEMPT=off", NULL};
  run("small", off, "verdict", NULL, "verdict no untried");
}

TEST(by_mps) {
  char pipes[128], line[64];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  scene_begin(&scene, "small");
  snprintf(address.sun_path, sizeof address.sun_path, "%s/control", scene.folder);
  snprintf(pipes, sizeof pipes, "CUDA_MPS_PIPE_DIRECTORY=%s", scene.folder);
  int control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(bind(control, (struct sockaddr *)&address, sizeof address) == 0 && listen(control, 1) == 0);
  struct process *process =
      scene_start(&scene, (const char *const[]){"LD_PRELOAD=", pipes, NULL}, "preempt", "verdict", NULL);
  int client = accept(control, NULL, NULL);
  CHECK(client >= 0 && read(client, line, sizeof line) > 0 && write(client, "yes\n", 4) == 4);
  process_expect(process, "verdict no 0x3a", NULL, 0);
  process_expect(process, "ok", NULL, 0);
  process_wait_exit(process, 0);
  close(client);
  close(control);
  scene_end(&scene);
}

/* ---- in the library ---- */

static void expect_slot(environment_list environment, const char *after) {
  scene_begin(&scene, "small");
  struct process *process = scene_start(&scene, environment, "slot", NULL);
  process_expect(process, "before libcuda.so.1", NULL, 0);
  process_expect(process, after, NULL, 0);
  process_wait_exit(process, 0);
  scene_end(&scene);
}

TEST(the_library_sees_what_the_driver_allocates) { expect_slot(NULL, "after libunified.so"); }
TEST(the_library_touches_nothing_where_it_is_off) {
  expect_slot((const char *const[]){"GPUSHARE_PREEMPT=off", NULL}, "after libcuda.so.1");
}
