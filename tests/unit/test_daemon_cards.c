/* test_daemon_cards.c - the real daemon and gpusharectl, beside an NVML that is played: which GPUs there are
 * is not what programs say. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)
#define CARD(i) "GPU-0000000" #i "-0000-4000-8000-000000000000"

static struct daemon_process daemon_process, *const it = &daemon_process;
static char script[] = "/tmp/gpushare-nvml-XXXXXX";

static void play(const char *text) {
  FILE *file = fopen(script, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static void start(const char *text) {
  play(text);
  daemon_start(it, (const char *const[]){"--mode", "on", NULL});
}

static void set_up(void) {
  close(mkstemp(script));
  setenv("GS_NVML_SCRIPT", script, 1);
  setenv("GPUSHARE_NVML", GS_NVML, 1);
}

static void tear_down(void) {
  daemon_clean_up(it);
  unlink(script);
  strcpy(script, "/tmp/gpushare-nvml-XXXXXX");
}

static int ctl(const char *arguments) {
  return run_shell("GPUSHARE_SOCKET=%s %s %s 2>&1", it->socket, GS_CTL, arguments);
}

static void show_status(void) { ck_assert_int_eq(ctl("status"), 0); }

/* The UUID's first bytes are the number, as the played NVML writes it. What comes is ATTACHED or REJECTED. */
static struct gs_msg attach(int fd, uint32_t index, uint8_t card, uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_ATTACH, index);
  msg.attach.uuid[3] = card;
  msg.attach.uuid[6] = 0x40;
  msg.attach.uuid[8] = 0x80;
  msg.attach.total_bytes = bytes;
  strcpy(msg.attach.name, "lie");
  tell(fd, &msg);
  do
    msg = hear(fd);
  while (msg.type != GS_ATTACHED && msg.type != GS_REJECTED);
  return msg;
}

TEST(all_are_listed_by_their_index) {
  start("gpus=3");
  int fd = register_client(it);
  attach(fd, 0, 2, 80 * GIB);
  attach(fd, 1, 1, 80 * GIB);
  show_status();
  output_has("\nGPU 0  " CARD(0) "  Played 80GB");
  output_has("\nGPU 1  " CARD(1));
  output_has("\nGPU 2  " CARD(2));
  ck_assert(strstr(output, "GPU 1") < strstr(output, "GPU 2"));
  ck_assert_int_eq(ctl("events"), 0);
  output_has("GPU 2: job 1");
  output_has("GPU 1: job 1");
  close(fd);
  daemon_clean_up(it);
  start("gpus=3");
  fd = register_client(it);
  attach(fd, 0, 2, 80 * GIB);
  ck_assert_int_eq(ctl("events"), 0);
  output_has("GPU 2: job 1");
}

static int count_cards(uint32_t details) {
  struct gs_msg msg = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  int fd = connect_to(it), count = 0;
  msg.get_status.details = details;
  tell(fd, &msg);
  while ((msg = hear(fd)).type != GS_STATUS_END)
    count += msg.type == GS_STATUS_CARD;
  close(fd);
  return count;
}

/* An older program would take the message for the end of the daemon. */
TEST(what_cards_do_is_told_to_those_who_know_it) {
  start("gpus=2");
  ck_assert_int_eq(count_cards(GS_DETAILS_CARDS), 2);
  ck_assert_int_eq(count_cards(GS_DETAILS_CARDS + 1), 2);
  ck_assert_int_eq(count_cards(GS_DETAILS_JOBS), 0);
  ck_assert_int_eq(count_cards(GS_DETAILS_NONE), 0);
  show_status();
  output_has("  61 C, 250 W, GPU 97 %, memory 40 %\n");
  output_has("  62 C, 251 W, GPU 97 %, memory 40 %\n");
}

TEST(a_liar_changes_nothing) {
  start("gpus=1");
  int liar = register_client(it);
  ck_assert_uint_eq(attach(liar, 0, 0, MIB).attached.capacity_bytes, 79 * GIB);
  for (uint32_t i = 1; i < 64; i++)
    ck_assert_uint_eq(attach(liar, i, (uint8_t)(10 + i), 80 * GIB).registered.reason, GS_REJECT_GPU);
  for (int more = 0; more < 4; more++) {
    int another = register_client(it);
    for (uint32_t i = 0; i < 64; i++)
      attach(another, i, (uint8_t)(10 + i), 80 * GIB);
  }
  int honest = register_client(it);
  ck_assert_uint_eq(attach(honest, 0, 0, 80 * GIB).attached.capacity_bytes, 79 * GIB);
  struct gs_msg gpu = get_status(it, GS_STATUS_GPU);
  ck_assert_uint_eq(gpu.gpu_status.total_bytes, 79 * GIB);
  ck_assert_str_eq(gpu.gpu_status.name, "Played 80GB");
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.gpus, 1);
}

TEST(an_unused_gpu_can_be_set) {
  start("gpus=3");
  ck_assert_int_eq(ctl("set-tq 3 --gpu 1"), 0);
  ck_assert_int_eq(ctl("set-capacity 4G --gpu 0,GPU-00000002"), 0);
  ck_assert_int_eq(ctl("set-capacity 100G --gpu 1"), 1);
  output_has("more than the card has");
  ck_assert_int_eq(ctl("set-tq 3 --gpu 7"), 1);
  output_has("there is no GPU 7");
  ck_assert_int_eq(ctl("set-tq 3 --gpu GPU-0"), 1);
  output_has("GPU-0 may be any of " CARD(0) " (GPU 0), " CARD(1) " (GPU 1), " CARD(2) " (GPU 2)");
  ck_assert_int_eq(ctl("on --gpu GPU-02000000-0000-0000-0000-000000000000"), 1);
  output_has("this host has no such GPU");
  int fd = register_client(it);
  ck_assert_uint_eq(attach(fd, 0, 2, 80 * GIB).attached.capacity_bytes, 4 * GIB);
  ck_assert_uint_eq(attach(fd, 1, 1, 80 * GIB).attached.capacity_bytes, 79 * GIB);
  show_status();
  output_has("quantum 3 s");
}

TEST(the_configuration_may_name_an_index) {
  start("gpus=2");
  daemon_configure(it, "[gpu 1]\ncapacity = 5G\n");
  show_status();
  output_has("of 79.0 GiB");
  output_has("of 5.0 GiB");
}

static void await_gpus(uint32_t count) {
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  while (get_status(it, GS_STATUS_DAEMON).daemon.gpus != count) {
    ck_assert_msg(clock_now_ns() < end_ns, "there are not %u GPUs", count);
    usleep(1000); /* nothing tells when the daemon has looked */
  }
}

TEST(a_hangup_looks_again) {
  start("gpus=2");
  await_gpus(2);
  play("gpus=2 mig=1:2");
  kill(it->pid, SIGHUP);
  await_gpus(3);
  show_status();
  output_has("\nGPU 0  " CARD(0));
  output_has("\nGPU 1:0  MIG-00000001-0000-4000-8000-000000000001  Played 80GB MIG 1g.");
  output_has("\nGPU 1:1  MIG-00000001-0000-4000-8000-000000000002");
  ck_assert_int_eq(ctl("set-tq 3 --gpu 1:1"), 0);
  ck_assert_int_eq(ctl("status --json"), 0);
  output_has("\"instance\": 1");
  play("gpus=2 do=crash");
  kill(it->pid, SIGHUP);
  play("gpus=2 do=babble");
  kill(it->pid, SIGHUP);
  await_gpus(3); /* what was known goes on to count */
}

/* The host may have got a card since: it is asked, and the program is told to come again soon. */
TEST(an_unknown_gpu_makes_it_look_again) {
  start("gpus=1");
  int fd = register_client(it);
  play("gpus=2");
  uint64_t end_ns = clock_now_ns() + 30 * NS_PER_S;
  struct gs_msg answer;
  while ((answer = attach(fd, 0, 1, 80 * GIB)).type != GS_ATTACHED) {
    ck_assert_uint_eq(answer.registered.reason, GS_REJECT_GPU);
    ck_assert_msg(clock_now_ns() < end_ns, "the daemon does not look");
    usleep(100000); /* it looks every few seconds */
  }
  await_gpus(2);
}

static void check_that_programs_count(void) {
  int fd = register_client(it);
  ck_assert_uint_eq(attach(fd, 0, 9, 16 * GIB).attached.capacity_bytes, 16 * GIB);
  close(fd);
}

TEST(a_helper_may_crash_or_babble) {
  start("gpus=1 do=crash");
  check_that_programs_count();
  daemon_clean_up(it);
  start("gpus=1 do=babble");
  check_that_programs_count();
  play("gpus=1");
  kill(it->pid, SIGHUP);
  await_gpus(1); /* and the one that nobody uses any more is gone */
}

TEST(a_helper_may_hang) {
  start("gpus=1 do=hang");
  check_that_programs_count();
}

TEST(the_kernel_module_tells_without_it) {
  char folder[] = "/tmp/gpushare-host-XXXXXX";
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_assert_int_eq(
      run_shell("mkdir -p %s/proc/driver/nvidia/gpus && cd %s/proc/driver/nvidia/gpus && mkdir 0000:02:00.0 "
                "0000:01:00.0 && "
                "echo 'GPU UUID: " CARD(0) "' >0000:02:00.0/information && "
                                           "echo 'GPU UUID: " CARD(1) "' >0000:01:00.0/information",
                folder, folder),
      0);
  setenv("GPUSHARE_HOST_ROOT", folder, 1);
  start("do=fail");
  show_status();
  output_has("\nGPU 0  " CARD(1));
  output_has("\nGPU 1  " CARD(0));
  int fd = register_client(it);
  ck_assert_uint_eq(attach(fd, 0, 9, 16 * GIB).registered.reason, GS_REJECT_GPU);
  ck_assert_uint_eq(attach(fd, 0, 1, 16 * GIB).attached.capacity_bytes, 16 * GIB);
  run_shell("rm -r %s", folder);
  unsetenv("GPUSHARE_HOST_ROOT");
}

/* The kernel module does not tell of a card that nobody has used; the program that does is shared, and so it
 * is asked again. */
TEST(a_card_is_told_of_once_it_is_used) {
  char folder[] = "/tmp/gpushare-host-XXXXXX";
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_assert_int_eq(
      run_shell("mkdir -p %s/proc/driver/nvidia/gpus && cd %s/proc/driver/nvidia/gpus && mkdir 0000:02:00.0 "
                "0000:01:00.0 && "
                "echo 'GPU UUID: GPU-?\?\?\?\?\?\?\?-?\?\?\?-?\?\?\?-?\?\?\?-?\?\?\?\?\?\?\?\?\?\?\?' "
                ">0000:01:00.0/information && "
                "echo 'GPU UUID: " CARD(1) "' >0000:02:00.0/information",
                folder, folder),
      0);
  setenv("GPUSHARE_HOST_ROOT", folder, 1);
  start("do=fail");
  show_status();
  output_has("\nGPU 1  " CARD(1));
  ck_assert_ptr_null(strstr(output, CARD(0)));
  ck_assert_int_eq(
      run_shell("cd %s/proc/driver/nvidia/gpus && echo 'GPU UUID: " CARD(0) "' >0000:01:00.0/information",
                folder),
      0);
  int fd = register_client(it);
  uint64_t end_ns = clock_now_ns() + 30 * NS_PER_S;
  do {
    struct gs_msg detach = wire_msg(GS_DETACH, 0);
    ck_assert_uint_eq(attach(fd, 0, 0, 16 * GIB).attached.capacity_bytes, 16 * GIB);
    ck_assert_msg(clock_now_ns() < end_ns, "the daemon does not look");
    tell(fd, &detach);
    usleep(100000); /* it looks every few seconds */
    show_status();
  } while (!strstr(output, "\nGPU 0  " CARD(0)));
  ck_assert_uint_eq(attach(fd, 0, 9, 16 * GIB).registered.reason, GS_REJECT_GPU); /* now all are known */
  run_shell("rm -r %s", folder);
  unsetenv("GPUSHARE_HOST_ROOT");
}

/* By whoever has started it. */
TEST(childrens_ends_may_be_ignored) {
  signal(SIGCHLD, SIG_IGN);
  start("gpus=2");
  signal(SIGCHLD, SIG_DFL);
  await_gpus(2);
}

int main(void) { return suite_run_all("daemon_cards", set_up, tear_down); }
