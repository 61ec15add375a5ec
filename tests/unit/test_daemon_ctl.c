/* test_daemon_ctl.c - gpusharectl as a person or a script uses it: output, exit codes, what it says when it
 * fails.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
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

TEST(status_is_readable) {
  ck_assert_int_eq(ctl("status"), 0);
  output_has("no program has used a GPU yet");
  expect(holding_client(), GS_LOCK_OK);
  holding_client();
  get_status(it, GS_STATUS_GPU);
  ck_assert_int_eq(ctl("status"), 0);
  output_has(CARD);
  output_has("mode on (taking turns), policy fair, quantum 20 s, memory 6.0 GiB of 16.0 GiB");
  output_has("holding");
  output_has("waiting (1)");
  output_has("100.0%");
}

TEST(status_json_has_the_promised_keys) {
  static const char *const gpu_keys[] = {"index",      "uuid",       "name",        "mode",
                                         "serialized", "policy",     "tq_ns",       "total_bytes",
                                         "tq_auto",    "used_bytes", "holders",     "capacity_bytes",
                                         "waiting",    "handovers",  "moved_bytes", "handover"};
  static const char *const job_keys[] = {"job",
                                         "pid",
                                         "uid",
                                         "user",
                                         "name",
                                         "state",
                                         "queue",
                                         "capturing",
                                         "draining",
                                         "overdue",
                                         "stopped",
                                         "turns",
                                         "held_ns",
                                         "waited_ns",
                                         "held_share",
                                         "moved_bytes",
                                         "used_bytes",
                                         "drain_max_ns",
                                         "resident_bytes",
                                         "too_big",
                                         "waits_for_room",
                                         "weight",
                                         "priority",
                                         "gpu_ns",
                                         "remaining_ns",
                                         "limit_bytes",
                                         "gang",
                                         "soft_limit_bytes",
                                         "reason",
                                         "awaited_job",
                                         "expected_ns",
                                         "lacking_bytes",
                                         "expected_memory_bytes"};
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

static json_int_t gpu_number(const char *key) {
  json_t *root = status_json();
  json_int_t value =
      json_integer_value(json_object_get(json_array_get(json_object_get(root, "gpus"), 0), key));
  json_decref(root);
  return value;
}

TEST(why_is_answered_by_the_daemon) {
  expect(holding_client(), GS_LOCK_OK);
  holding_client();
  ck_assert_int_eq(ctl("why 2"), 0);
  output_has("job 2 (");
  output_has("waits for its turn: job 1 (");
  ck_assert_int_eq(ctl("why 3"), 1);
}

TEST(settings_can_be_changed) {
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

static bool tq_is_auto(void) {
  json_t *root = status_json();
  bool found = json_is_true(json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "tq_auto"));
  json_decref(root);
  return found;
}

/* 16 GiB at 25 GB/s are 687 ms, and with 19 times as much the twentieth part. */
TEST(a_quantum_may_find_itself) {
  ck_assert_int_eq(ctl("set-tq auto"), 0);
  ck_assert_int_eq(ctl("status"), 0);
  output_has("the quantum will be auto\n");
  attach_client(it, 16 * GIB);
  ck_assert(tq_is_auto());
  ck_assert_int_eq(gpu_number("tq_ns") / (json_int_t)NS_PER_MS, 13056);
  ck_assert_int_eq(ctl("status"), 0);
  output_has("quantum 13.1 s (auto), memory");
  ck_assert_int_eq(ctl("set-tq 2 --gpu " CARD), 0);
  ck_assert(!tq_is_auto());
  ck_assert_int_eq(gpu_number("tq_ns"), 2 * (json_int_t)NS_PER_S);
}

TEST(the_loss_is_a_setting) {
  FILE *file = fopen(it->config, "w");
  fputs("tq = auto\nloss = 50%\n[gpu " CARD "]\nloss = 10%\n", file);
  fclose(file);
  attach_client(it, 16 * GIB);
  kill(it->pid, SIGHUP);
  while (!tq_is_auto())
    poll(NULL, 0, 1);
  ck_assert_int_eq(gpu_number("tq_ns") / (json_int_t)NS_PER_MS, 6184);
}

static json_t *first_job(json_t *root) {
  json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  return json_array_get(json_object_get(gpu, "jobs"), 0);
}

static void expect_job_number(const char *key, json_int_t value) {
  json_t *root = status_json();
  json_int_t found = json_integer_value(json_object_get(first_job(root), key));
  ck_assert_msg(found == value, "%s: %lld", key, (long long)found);
  json_decref(root);
}

static const char *policy(void) {
  static char name[16];
  json_t *root = status_json();
  json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  strcpy(name, json_string_value(json_object_get(gpu, "policy")));
  json_decref(root);
  return name;
}

TEST(policies_can_be_changed) {
  holding_client();
  ck_assert_str_eq(policy(), "fair");
  ck_assert_int_eq(ctl("set-policy rr"), 0);
  ck_assert_str_eq(policy(), "rr");
  ck_assert_int_eq(ctl("set-policy srtf --gpu " CARD), 0);
  ck_assert_str_eq(policy(), "srtf");
  ck_assert_int_eq(ctl("set-policy lottery"), 2);
  output_has("the policy is rr, fair, fifo, srtf, priority or pack, not 'lottery'");
}

TEST(what_a_job_is_given_can_be_changed) {
  expect(holding_client(), GS_LOCK_OK);
  json_t *root = status_json();
  int job = (int)json_integer_value(json_object_get(first_job(root), "job"));
  json_decref(root);
  char line[64];
  static const struct {
    const char *order, *key;
    json_int_t value;
  } orders[] = {{"set-weight %d 250", "weight", 250},
                {"set-priority %d -20", "priority", -20},
                {"--json set-priority %d 7", "priority", 7},
                {"set-limit %d 4G", "limit_bytes", 4 * GIB},
                {"set-limit %d 0", "limit_bytes", 0},
                {"set-soft-limit %d 3G", "soft_limit_bytes", 3 * GIB},
                {"set-limit %d 5G", "limit_bytes", 5 * GIB},
                {"set-soft-limit %d 0", "soft_limit_bytes", 0},
                {"set-expected-memory %d 4G", "expected_memory_bytes", 4 * GIB}};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    snprintf(line, sizeof line, orders[i].order, job);
    ck_assert_msg(ctl(line) == 0, "%s: %s", line, output);
    expect_job_number(orders[i].key, orders[i].value);
  }
  snprintf(line, sizeof line, "set-expected %d 2h", job);
  ck_assert_int_eq(ctl(line), 0);
  expect_job_number("remaining_ns", 7200 * (json_int_t)NS_PER_S); /* it has not run yet */
  snprintf(line, sizeof line, "set-rate %d 20%%", job);
  ck_assert_int_eq(ctl(line), 1);
  output_has("only opportunistic jobs have a rate: see gpusharectl set-class");
  snprintf(line, sizeof line, "set-class %d opportunistic", job);
  ck_assert_int_eq(ctl(line), 0);
  snprintf(line, sizeof line, "set-rate %d 20%%", job);
  ck_assert_int_eq(ctl(line), 0);
  expect_job_number("rate_percent", 20);
  snprintf(line, sizeof line, "set-rate %d auto", job);
  ck_assert_int_eq(ctl(line), 0);
  expect_job_number("rate_percent", 0); /* null */
  snprintf(line, sizeof line, "set-weight %d 5", job + 1);
  ck_assert_int_eq(ctl(line), 1);
  output_has("there is no such job: see gpusharectl status");
}

/* Whoever asks for a job that is not there is told where it is. */
TEST(a_job_that_has_ended_is_told_from_one_that_never_was) {
  static const char *const commands[] = {"pause %u", "set-weight %u 5", "evict %u", "kill %u", "why %u"};
  int ended = holding_client(), on_no_gpu = register_elsewhere(it);
  close(ended);
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 1)
    usleep(1000);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    bool is_why = strncmp(commands[i], "why", 3) == 0;
    for (unsigned job = 1; job <= 3; job++) {
      char line[32];
      snprintf(line, sizeof line, commands[i], job);
      ck_assert_int_eq(ctl(line), 1);
      if (job == 3)
        output_has(is_why ? "no job on a GPU has the number 3: see gpusharectl status\n"
                          : "there is no such job: see gpusharectl status\n");
      else if (is_why)
        output_has(" has ended, or is on no GPU: see gpusharectl history\n");
      else
        output_has(job == 1 ? "there is no such job any more: see gpusharectl history\n"
                            : "its program is on no GPU: see gpusharectl status\n");
    }
  }
  close(on_no_gpu);
}

TEST(jobs_can_be_paused) {
  int fd = holding_client();
  uint64_t epoch = expect(fd, GS_LOCK_OK).epoch;
  ck_assert_int_eq(ctl("pause 1"), 0);
  expect(fd, GS_DROP_LOCK);
  tell_released(fd, epoch);
  tell_simple(fd, GS_REQ_LOCK);
  expect_silence(it, fd);
  ck_assert_int_eq(ctl("status"), 0);
  output_has("idle, paused\n");
  json_t *root = status_json();
  ck_assert(json_is_true(json_object_get(first_job(root), "paused")));
  ck_assert_str_eq(json_string_value(json_object_get(first_job(root), "reason")), "paused");
  json_decref(root);
  ck_assert_int_eq(ctl("why 1"), 0);
  output_has(" is paused: gpusharectl resume 1 lets it go on.");
  ck_assert_int_eq(ctl("resume 1"), 0);
  expect(fd, GS_LOCK_OK);
  ck_assert_int_eq(ctl("events"), 0);
  output_has(" is paused, by ");
  output_has(" is resumed, by ");
  ck_assert_int_eq(ctl("resume 2"), 1);
  output_has("there is no such job");
  ck_assert_int_eq(ctl("pause"), 2);
}

static bool is_paused(size_t i) {
  json_t *root = status_json(), *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  json_t *job = json_array_get(json_object_get(gpu, "jobs"), i);
  bool paused = json_is_true(json_object_get(job, "paused"));
  json_decref(root);
  return paused;
}

/* One that is not there keeps the others from nothing, and a word that is no number keeps all from it. */
TEST(several_jobs_in_one_command) {
  for (int i = 0; i < 2; i++) /* of different processes: what is set for a job is set for its process */
    attach_card(register_elsewhere(it), 1, 1 << 20, GS_ATTACH_MANAGED);
  ck_assert_int_eq(ctl("pause 1 9 2"), 1);
  output_has("gpusharectl: job 9: there is no such job");
  ck_assert(is_paused(0) && is_paused(1));
  ck_assert_int_eq(ctl("resume 1 two"), 2);
  output_has("not the number of a job (see gpusharectl status): 'two'");
  ck_assert(is_paused(0) && is_paused(1));
  ck_assert_int_eq(ctl("--json resume 1 2"), 0);
  ck_assert_str_eq(output, "{\"job\":1,\"term\":\"paused\",\"value\":0}\n"
                           "{\"job\":2,\"term\":\"paused\",\"value\":0}\n");
  ck_assert(!is_paused(0) && !is_paused(1));
}

/* ---- whose command may be seen ---- */

/* What a user finds in the status: the command, if it asks for that. */
static int count_commands(uid_t uid, bool asks) {
  pid_t pid = fork();
  if (pid == 0) {
    struct gs_msg msg = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
    int fd, commands = 0;
    if (setgid(uid) < 0 || setuid(uid) < 0)
      _exit(255);
    fd = connect_to(it);
    msg.get_status.details = asks;
    tell(fd, &msg);
    while ((msg = hear(fd)).type != GS_STATUS_END)
      if (msg.type == GS_STATUS_COMMAND)
        commands += strcmp(msg.command_status.text, "curl --password 1234") == 0 ? 1 : 100;
    _exit(commands);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  return WEXITSTATUS(status);
}

TEST(commands_are_for_owners_and_who_may_change_settings) {
  struct gs_msg msg = wire_msg(GS_COMMAND, 0);
  strcpy(msg.command.text, "curl --password 1234");
  tell(holding_client(), &msg);
  ck_assert_int_eq(count_commands(getuid(), true), 1);
  ck_assert_int_eq(count_commands(getuid(), false), 0); /* an older program would not know it */
  if (getuid() == 0)
    ck_assert_int_eq(count_commands(12345, true), 0);
}

/* ---- signals to jobs ---- */

TEST(who_may_not_signal_a_job_is_told) {
  holding_client();
  ck_assert_int_eq(ctl("kill 2"), 1);
  output_has("there is no such job");
  ck_assert_int_eq(ctl("kill -s NOTHING 1"), 2);
  output_has("not a signal (TERM, INT, KILL, 15): 'NOTHING'");
  ck_assert_int_eq(ctl("kill -s SIGCONT 1"), 0); /* to this test */
  output_has("): sent signal 18 (Continued)\n");
  ck_assert_int_eq(ctl("--json kill -s 18 1"), 0);
  ck_assert_str_eq(output, "{\"job\":1,\"signal\":18}\n");
  if (getuid() != 0)
    return;
  pid_t pid = fork();
  if (pid == 0) {
    struct gs_msg msg = wire_msg(GS_GET_PROCESS, GS_GPU_ALL);
    if (setgid(12345) < 0 || setuid(12345) < 0)
      _exit(255);
    msg.get_process.job = 1;
    int fd = connect_to(it);
    tell(fd, &msg);
    _exit(-expect(fd, GS_REPLY).status);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(WEXITSTATUS(status), EACCES);
}

/* A process of this user in another pid namespace asks for this test's, and then for its own. 0: as it must
 * be; 77: that is not allowed here. */
static int ask_from_apart(void) {
  struct gs_msg msg = wire_msg(GS_GET_PROCESS, GS_GPU_ALL);
  int status, ready[2];
  char byte;
  pid_t apart = fork();
  if (apart == 0) {
    if (unshare(CLONE_NEWPID) < 0)
      _exit(77);
    pid_t pid = fork();
    if (pid == 0) {
      msg.get_process.job = 1;
      int fd = connect_to(it);
      tell(fd, &msg);
      if (expect(fd, GS_REPLY).status != -EACCES)
        _exit(1);
      ck_assert_int_eq(pipe(ready), 0);
      if (fork() == 0) { /* a job in the same namespace */
        attach_client(it, GIB);
        (void)!write(ready[1], "", 1);
        for (;;)
          pause();
      }
      (void)!read(ready[0], &byte, 1);
      msg.get_process.job = 2;
      tell(fd, &msg);
      _exit(expect(fd, GS_REPLY).status == 0 ? 0 : 2); /* the job ends with its namespace */
    }
    waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
  waitpid(apart, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

/* pidfd_getfd takes descriptors of a process of the same user: a container has none of another's. */
TEST(a_container_is_given_no_process_of_another) {
  holding_client();
  int result = ask_from_apart();
  if (result == 77)
    puts("not tried: new namespaces are not allowed here");
  else
    ck_assert_int_eq(result, 0);
}

TEST(a_change_is_told_as_json) {
  static const struct {
    const char *order, *answer;
  } orders[] = {{"set-tq 250ms", "{\"uuid\":null,\"setting\":\"tq\",\"value\":250000000}\n"},
                {"set-tq auto --gpu " CARD, "{\"uuid\":\"" CARD "\",\"setting\":\"tq\",\"value\":0}\n"},
                {"off", "{\"uuid\":null,\"setting\":\"mode\",\"value\":\"off\"}\n"},
                {"set-policy srtf", "{\"uuid\":null,\"setting\":\"policy\",\"value\":\"srtf\"}\n"},
                {"set-capacity 4G", "{\"uuid\":null,\"setting\":\"capacity\",\"value\":4294967296}\n"},
                {"set-priority 1 -7", "{\"job\":1,\"term\":\"priority\",\"value\":-7}\n"},
                {"set-class 1 production", "{\"job\":1,\"term\":\"class\",\"value\":\"production\"}\n"},
                {"pause 1", "{\"job\":1,\"term\":\"paused\",\"value\":1}\n"},
                {"resume 1", "{\"job\":1,\"term\":\"paused\",\"value\":0}\n"}};
  char line[80];
  holding_client();
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    snprintf(line, sizeof line, "--json %s", orders[i].order);
    ck_assert_msg(ctl(line) == 0, "%s: %s", line, output);
    ck_assert_str_eq(output, orders[i].answer);
  }
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s --json pause 2 2>/dev/null", it->socket, GS_CTL), 1);
  ck_assert_str_eq(output, "");
}

TEST(wrong_terms_are_named) {
  static const struct {
    const char *order, *text;
  } wrong[] = {{"set-weight 1", "an argument is missing after 'set-weight'"},
               {"set-weight 1 0", "the weight is 1 to 10000, not '0'"},
               {"set-weight one 5", "not the number of a job (see gpusharectl status): 'one'"},
               {"set-weight 0 5", "not the number of a job"},
               {"set-priority 1 -21", "the priority is -20 to 20, not '-21'"},
               {"set-expected 1 soon", "not a duration (90, 15m, 2.5h; 0: unknown): 'soon'"},
               {"set-limit 1 -5", "not a size (16G, 512M; 0: no limit): '-5'"},
               {"set-soft-limit 1 much", "not a size (16G, 512M; 0: no limit): 'much'"},
               {"set-soft-limit 1", "an argument is missing after 'set-soft-limit'"},
               {"set-rate 1 20", "the rate is auto, or 1% to 100% of a GPU, not '20'"},
               {"set-rate 1 0%", "the rate is auto, or 1% to 100% of a GPU, not '0%'"},
               {"set-rate 1 101%", "not '101%'"},
               {"set-limit 1 5 6", "too much: '6'"},
               {"set-limit --gpu all 1 5", "this command does not have the option '--gpu'"},
               {"status --gpu all", "this command does not have the option '--gpu'"},
               {"run --json true", "this command does not have the option '--json'"},
               {"run --follow --weight 3 true", "this command does not have the option '--follow'"},
               {"--weight 3 set-limit 1 5 --json", "only run has the option '--weight'"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(ctl(wrong[i].order) == 2, "%s: %s", wrong[i].order, output);
    output_has(wrong[i].text);
  }
}

TEST(options_stand_anywhere) {
  static const char *const orders[] = {"--gpu all set-tq 3", "set-tq --gpu all 3", "set-tq 3 --gpu=all",
                                       "set-tq --gpu all -- 3", "-- set-tq 3"};
  holding_client();
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    ck_assert_int_eq(ctl("set-tq 20"), 0);
    ck_assert_msg(ctl(orders[i]) == 0, "%s: %s", orders[i], output);
    ck_assert_int_eq(gpu_number("tq_ns"), 3 * (json_int_t)NS_PER_S);
  }
  ck_assert_int_eq(ctl("set-tq -- --gpu"), 2);
  output_has("neither auto nor a duration (20, 0.5, 250ms, 2m): '--gpu'");
}

TEST(what_the_daemon_refuses_is_said) {
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, GS_TQ_MIN_NS - 1), -EINVAL);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, GS_TQ_MAX_NS + 1), -EINVAL);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, GS_TQ_MAX_NS), 0);
  holding_client();
  ck_assert_int_eq(ctl("set-capacity 17G --gpu " CARD), 1);
  output_has("more than the card has");
  ck_assert_int_eq(ctl("on --gpu GPU-02000000-0000-0000-0000-000000000000"), 1);
  output_has("no program has used this GPU yet");
}

TEST(a_uuid_of_zeros_is_no_gpu) {
  holding_client();
  ck_assert_int_eq(ctl("set-tq 3 --gpu GPU-00000000-0000-0000-0000-000000000000"), 1);
  output_has("no GPU has the UUID GPU-00000000");
  ck_assert_int_eq(gpu_number("tq_ns"), 20 * (json_int_t)NS_PER_S);
}

TEST(a_quantum_out_of_range_is_wrong_usage) {
  static const char *const wrong[] = {"set-tq 1us", "set-tq 0", "set-tq 86400001ms",
                                      "set-tq 99999999999999999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(ctl(wrong[i]) == 2, "%s: %s", wrong[i], output);
    output_has("the quantum is from 1ms to 24h (turns without an end: set-policy fifo), not '");
    output_has(wrong[i] + strlen("set-tq "));
  }
  ck_assert_int_eq(ctl("set-tq 1ms"), 0);
  ck_assert_int_eq(ctl("set-tq 24h"), 0);
}

TEST(what_cannot_be_written_is_said) {
  static const char *const commands[] = {"status", "status --json", "--help", "--version"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s %s 2>&1 >/dev/full", it->socket, GS_CTL, commands[i]),
                     1);
    output_has("can't write the answer: No space left on device");
  }
}

/* ---- help ---- */

TEST(help_of_one_command) {
  static const char *const ways[] = {"help pause", "pause --help", "pause 1 -h"};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    ck_assert_int_eq(ctl(ways[i]), 0);
    output_has("usage: gpusharectl [OPTION]... pause JOB...\n\n  pause JOB... | resume JOB...\n");
    output_has("a paused job gets no GPU until it is resumed");
    output_has("\n  --json  ");
    output_lacks("evict");
    output_lacks("--gpu");
    output_lacks("many jobs:");
  }
  ck_assert_int_eq(ctl("run --help"), 0);
  output_has("usage: gpusharectl [OPTION]... run [OPTION]... [--] PROGRAM");
  output_has("\n  --memory HOW");
  output_has("\nrun, many jobs:\n");
  output_lacks("--follow");
  ck_assert_int_eq(ctl("help"), 0);
  output_has("COMMAND\n\n  status ");
  output_has("exit codes: 0 done;");
  ck_assert_int_eq(ctl("help nonsense"), 2);
}

TEST(a_misspelt_word_is_told_what_was_meant) {
  static const struct {
    const char *arguments, *text;
  } wrong[] = {{"statsu", "not a command: 'statsu'; did you mean 'status'?"},
               {"pasue 1", "did you mean 'pause'?"},
               {"rnu true", "did you mean 'run'?"},
               {"help evnts", "did you mean 'events'?"},
               {"status --jsno", "unknown option '--jsno'; did you mean '--json'?"},
               {"set-tq 5 --gup=0", "did you mean '--gpu'?"},
               {"frobnicate", "not a command: 'frobnicate'; try --help"},
               {"status --frobnicate", "unknown option '--frobnicate'; try --help"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_int_eq(ctl(wrong[i].arguments), 2);
    output_has(wrong[i].text);
    output_lacks(strstr(wrong[i].text, "try --help") ? "did you mean" : "try --help");
  }
}

TEST(wrong_options_are_one_line) {
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

TEST(wrong_usage_is_said) {
  static const char *const wrong[] = {"",           "juggle",          "set-tq",       "set-tq soon",
                                      "set-tq 1 2", "on --gpu x",      "status extra", "set-capacity",
                                      "--nonsense", "set-capacity 1X", "set-class 1",  "set-class 1 best"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_msg(ctl(wrong[i]) == 2, "%s: %s", wrong[i], output);
    output_has("--help");
  }
  ck_assert_int_eq(ctl("--help"), 0);
  output_has("exit codes");
  output_has("  set-soft-limit JOB BYTES\n");
  output_has("--limit BYTES, --soft-limit BYTES,\n  --expected-memory BYTES, --class CLASS\n");
  output_has("  set-class JOB CLASS ");
  output_has("docs/schema");
  ck_assert_int_eq(ctl("--version"), 0);
  output_has("protocol");
}

TEST(no_daemon_is_one_clear_line) {
  ck_assert_int_eq(ctl("status --socket /nonexistent/socket"), 3);
  output_has("no daemon at /nonexistent/socket: start gpushare-daemon (as root");
  ck_assert_ptr_eq(strchr(output, '\n'), output + strlen(output) - 1);
  kill(it->pid, SIGKILL);
  daemon_wait(it);
  ck_assert_int_eq(ctl("on"), 3);
  output_has("no daemon at");
}

int main(void) { return suite_run_all("daemon_ctl", set_up, tear_down); }
