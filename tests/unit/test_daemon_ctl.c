/* test_daemon_ctl.c - gpusharectl as a person or a script uses it: output, exit codes, what it says when it
 * fails.
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "common/parse.h"
#include "common/wire.h"
#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define CARD "GPU-01000000-0000-0000-0000-000000000000"

static struct daemon_process daemon_process, *const it = &daemon_process;

static void set_up(void) { daemon_start(it, (const char *const[]){"--mode", "on", NULL}); }

static void tear_down(void) { daemon_clean_up(it); }

/* Run gpusharectl with these arguments, a line for the shell. Its exit code. */
static int ctl(const char *arguments) {
  return run_shell("GPUSHARE_SOCKET=%s %s %s 2>&1", it->socket, GS_CTL, arguments);
}

static json_t *status_json(void) {
  json_error_t error;
  ck_assert_int_eq(ctl("status --json"), 0);
  json_t *root = json_loads(output, 0, &error);
  ck_assert_msg(root != NULL, "%s: %s", error.text, output);
  return root;
}

static int holding_client(void) {
  int fd = register_client(it);
  attach_card(fd, 1, 3 * GIB, GS_ATTACH_MANAGED);
  tell_simple(fd, GS_REQ_LOCK);
  return fd;
}

START_TEST(status_is_readable) {
  ck_assert_int_eq(ctl("status"), 0);
  output_has("no program has used a GPU yet");
  expect(holding_client(), GS_LOCK_OK);
  holding_client();
  get_status(it, GS_STATUS_GPU);
  ck_assert_int_eq(ctl("status"), 0);
  output_has(CARD);
  output_has("mode on (taking turns), policy rr, quantum 20 s, memory 6.0 GiB of 16.0 GiB");
  output_has("holding");
  output_has("waiting (1)");
  output_has("100.0%");
}
END_TEST

START_TEST(status_json_has_the_promised_keys) {
  static const char *const gpu_keys[] = {"index",      "uuid",        "name",           "mode",
                                         "serialized", "policy",      "tq_ns",          "total_bytes",
                                         "used_bytes", "holders",     "capacity_bytes", "waiting",
                                         "handovers",  "moved_bytes", "handover"};
  static const char *const job_keys[] = {
      "job",         "pid",        "uid",          "user",           "name",    "state",         "queue",
      "capturing",   "draining",   "overdue",      "turns",          "held_ns", "waited_ns",     "held_share",
      "moved_bytes", "used_bytes", "drain_max_ns", "resident_bytes", "too_big", "waits_for_room"};
  expect(holding_client(), GS_LOCK_OK);
  json_t *root = status_json();
  json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  json_t *job = json_array_get(json_object_get(gpu, "jobs"), 0);
  for (size_t i = 0; i < sizeof gpu_keys / sizeof *gpu_keys; i++)
    ck_assert_msg(json_object_get(gpu, gpu_keys[i]) != NULL, "%s", gpu_keys[i]);
  for (size_t i = 0; i < sizeof job_keys / sizeof *job_keys; i++)
    ck_assert_msg(json_object_get(job, job_keys[i]) != NULL, "%s", job_keys[i]);
  ck_assert_str_eq(json_string_value(json_object_get(gpu, "uuid")), CARD);
  ck_assert_str_eq(json_string_value(json_object_get(job, "state")), "holding");
  ck_assert_int_eq(json_integer_value(json_object_get(job, "pid")), getpid());
  ck_assert_int_eq(json_integer_value(json_object_get(gpu, "used_bytes")), 3 * GIB);
  ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(root, "daemon"), "jobs")), 1);
  json_decref(root);
}
END_TEST

static json_int_t gpu_number(const char *key) {
  json_t *root = status_json();
  json_int_t value =
      json_integer_value(json_object_get(json_array_get(json_object_get(root, "gpus"), 0), key));
  json_decref(root);
  return value;
}

START_TEST(settings_can_be_changed) {
  int fd = holding_client();
  expect(fd, GS_LOCK_OK);
  ck_assert_int_eq(ctl("set-tq 250ms"), 0);
  ck_assert_str_eq(output, "");
  ck_assert_int_eq(gpu_number("tq_ns"), 250 * (json_int_t)NS_PER_MS);
  ck_assert_int_eq(ctl("set-tq 2 --gpu " CARD), 0);
  ck_assert_int_eq(gpu_number("tq_ns"), 2 * (json_int_t)NS_PER_S);
  ck_assert_int_eq(ctl("set-capacity 1G --gpu all"), 0);
  ck_assert_int_eq(gpu_number("capacity_bytes"), GIB);
  ck_assert_int_eq(expect(fd, GS_CAPACITY).attached.capacity_bytes, GIB);
  for (int i = 0; i < 3; i++) {
    static const char *const modes[] = {"off", "on", "auto"};
    ck_assert_int_eq(ctl(modes[i]), 0);
    ck_assert_str_eq(mode_name(expect(fd, GS_CAPACITY).attached.mode), modes[i]);
    if (i < 2)
      expect(fd, i == 0 ? GS_SCHED_OFF : GS_SCHED_ON);
  }
}
END_TEST

START_TEST(what_the_daemon_refuses_is_said) {
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 1000), -EINVAL);
  holding_client();
  ck_assert_int_eq(ctl("set-capacity 17G --gpu " CARD), 1);
  output_has("more than the card has");
  ck_assert_int_eq(ctl("on --gpu GPU-02000000-0000-0000-0000-000000000000"), 1);
  output_has("no program has used this GPU yet");
}
END_TEST

START_TEST(a_uuid_of_zeros_is_no_gpu) {
  holding_client();
  ck_assert_int_eq(ctl("set-tq 3 --gpu GPU-00000000-0000-0000-0000-000000000000"), 1);
  output_has("no GPU has the UUID GPU-00000000");
  ck_assert_int_eq(gpu_number("tq_ns"), 20 * (json_int_t)NS_PER_S);
}
END_TEST

START_TEST(a_quantum_out_of_range_is_wrong_usage) {
  static const char *const wrong[] = {"set-tq 1us", "set-tq 0", "set-tq 5124096h",
                                      "set-tq 99999999999999999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(ctl(wrong[i]) == 2, "%s: %s", wrong[i], output);
    output_has("from 1ms to 5124095h");
  }
  ck_assert_int_eq(ctl("set-tq 1ms"), 0);
  ck_assert_int_eq(ctl("set-tq 5124095h"), 0);
}
END_TEST

START_TEST(what_cannot_be_written_is_said) {
  static const char *const commands[] = {"status", "status --json", "--help", "--version"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s %s 2>&1 >/dev/full", it->socket, GS_CTL, commands[i]),
                     1);
    output_has("can't write the answer: No space left on device");
  }
}
END_TEST

START_TEST(wrong_options_are_one_line) {
  static const struct {
    const char *arguments, *line;
  } wrong[] = {{"status --socket", "the value is missing after '--socket'"},
               {"status --socket=", "the value is missing after '--socket'"},
               {"status --gpu", "the value is missing after '--gpu'"},
               {"--nonsense status", "unknown option '--nonsense'"},
               {"--json -xh", "unknown option '-x'"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_int_eq(ctl(wrong[i].arguments), 2);
    output_has(wrong[i].line);
    ck_assert_ptr_eq(strchr(output, '\n'), output + strlen(output) - 1);
  }
}
END_TEST

START_TEST(wrong_usage_is_said) {
  static const char *const wrong[] = {"",           "juggle",         "set-tq",       "set-tq soon",
                                      "set-tq 1 2", "on --gpu x",     "status extra", "set-capacity",
                                      "--nonsense", "set-capacity 1X"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(ctl(wrong[i]) == 2, "%s: %s", wrong[i], output);
    output_has("--help");
  }
  ck_assert_int_eq(ctl("--help"), 0);
  output_has("exit codes");
  ck_assert_int_eq(ctl("--version"), 0);
  output_has("protocol");
}
END_TEST

START_TEST(no_daemon_is_one_clear_line) {
  ck_assert_int_eq(ctl("status --socket /nonexistent/socket"), 3);
  output_has("no daemon at /nonexistent/socket: start gpushare-daemon (as root");
  ck_assert_ptr_eq(strchr(output, '\n'), output + strlen(output) - 1);
  kill(it->pid, SIGKILL);
  daemon_wait(it);
  ck_assert_int_eq(ctl("on"), 3);
  output_has("no daemon at");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {status_is_readable,
                                status_json_has_the_promised_keys,
                                settings_can_be_changed,
                                what_the_daemon_refuses_is_said,
                                a_uuid_of_zeros_is_no_gpu,
                                a_quantum_out_of_range_is_wrong_usage,
                                what_cannot_be_written_is_said,
                                wrong_options_are_one_line,
                                wrong_usage_is_said,
                                no_daemon_is_one_clear_line,
                                NULL};
  return suite_main("daemon_ctl", tests, set_up, tear_down);
}
