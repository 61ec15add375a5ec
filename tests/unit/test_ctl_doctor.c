/* test_ctl_doctor.c - gpusharectl doctor: what it finds, here and of a played machine; and the configuration:
 * gpusharectl reload, gpushare-daemon --check-config. */
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)

static struct daemon_process daemon_process, *const it = &daemon_process;

static void set_up(void) {
  static const char *const inherited[] = {"GPUSHARE_SOCKET", "GPUSHARE_LIB", "GPUSHARE_PREEMPT",
                                          "LD_PRELOAD"};
  for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
    unsetenv(inherited[i]);
  daemon_start(it, (const char *const[]){"--mode", "on", NULL});
}

static void tear_down(void) { daemon_clean_up(it); }

/* With these variables, and options. Its exit code. */
static int doctor(const char *variables, const char *options) {
  return run_shell("%s %s --socket %s --lib %s doctor %s 2>&1", variables, GS_CTL, it->socket, GS_LIBRARY,
                   options);
}

/* The finding of this check, as one line: "warning: found; advice". Empty: there is none. */
static const char *finding(const char *variables, const char *check) {
  static char line[1024];
  json_error_t error;
  json_t *object;
  size_t i;
  doctor(variables, "--json");
  json_t *root = json_loads(output, 0, &error);
  ck_assert_msg(root != NULL, "%s: %s", error.text, output);
  *line = '\0';
  json_array_foreach(json_object_get(root, "checks"), i, object) {
    const char *advice = json_string_value(json_object_get(object, "advice"));
    if (strcmp(json_string_value(json_object_get(object, "check")), check) == 0 && !*line)
      snprintf(line, sizeof line, "%s: %s; %s", json_string_value(json_object_get(object, "verdict")),
               json_string_value(json_object_get(object, "found")), advice ? advice : "");
  }
  json_decref(root);
  return line;
}

#define found(variables, check, text)                                                                        \
  do {                                                                                                       \
    const char *line = finding(variables, check);                                                            \
    ck_assert_msg(strstr(line, text), "'%s' is not in: %s", text, line);                                     \
  } while (0)

#ifndef __SANITIZE_ADDRESS__ /* where the library loads only beside the sanitizer's runtime: that fails */
TEST(where_nothing_fails_it_says_so) {
  ck_assert_int_eq(doctor("", ""), 0);
  output_has("ok       library       " GS_LIBRARY);
  output_has("ok       daemon        version ");
  output_has("environment   no GPUSHARE_ variable is wrong");
  output_lacks("failing");
  found("GPUSHARE_HOST_ROOT=/nonexistent LD_LIBRARY_PATH=", "driver",
        "unknown: there is no NVIDIA driver here");
}

TEST(each_has_something_to_do) {
  json_error_t error;
  json_t *object, *root;
  size_t i;
  ck_assert_int_eq(doctor("GPUSHARE_WIEGHT=1", "--json"), 0);
  root = json_loads(output, 0, &error);
  ck_assert_ptr_nonnull(root);
  ck_assert_str_eq(json_string_value(json_object_get(root, "verdict")), "warning");
  json_array_foreach(json_object_get(root, "checks"), i, object) {
    const char *verdict = json_string_value(json_object_get(object, "verdict"));
    ck_assert_ptr_nonnull(json_string_value(json_object_get(object, "found")));
    if (strcmp(verdict, "warning") == 0)
      ck_assert_msg(json_is_string(json_object_get(object, "advice")), "%s",
                    json_string_value(json_object_get(object, "check")));
  }
  json_decref(root);
}
#endif

TEST(without_a_daemon_it_fails) {
  ck_assert_int_eq(run_shell("%s --socket /nonexistent/s --lib %s doctor 2>&1", GS_CTL, GS_LIBRARY), 1);
  output_has("failing  daemon        no daemon at /nonexistent/s");
  output_has("unknown  preemption");
  output_lacks("rights");
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s --lib /nonexistent doctor 2>&1", it->socket, GS_CTL), 1);
  output_has("failing  library       can't find the library /nonexistent");
}

TEST(a_library_that_the_loader_leaves_is_found) {
  ck_assert_int_eq(run_shell("printf x >%s/broken.so; %s --socket %s --lib %s/broken.so doctor 2>&1",
                             it->folder, GS_CTL, it->socket, it->folder),
                   1);
  output_has("broken.so can't be preloaded (file too short)");
  run_shell("rm %s/broken.so", it->folder);
}

TEST(a_driver_without_its_library_is_found) {
  ck_assert_int_eq(
      run_shell("mkdir -p %s/host/proc/driver/nvidia && printf 'NVRM version: NVIDIA UNIX x86_64 Kernel "
                "Module  580.82.07  Wed\\n' >%s/host/proc/driver/nvidia/version",
                it->folder, it->folder),
      0);
  char root[160];
  snprintf(root, sizeof root, "LD_LIBRARY_PATH= GPUSHARE_HOST_ROOT=%s/host", it->folder);
  found(root, "driver", "NVIDIA 580.82.07");
  run_shell("rm -r %s/host", it->folder);
}

TEST(variables_are_looked_at) {
  found("GPUSHARE_WIEGHT=7", "environment",
        "warning: GPUSHARE_WIEGHT is no variable of gpushare's: did you mean");
  found("GPUSHARE_ZZZZZZ=7", "environment", "unknown: GPUSHARE_ZZZZZZ is no variable of gpushare's;");
  found("GPUSHARE_MEMORY=disk", "environment",
        "warning: GPUSHARE_MEMORY is managed, swap or off, not 'disk'");
  found("GPUSHARE_PREEMPT=off", "preemption", "warning: GPUSHARE_PREEMPT=off here");
}

/* ---- what jobs and NVML tell ---- */

TEST(preemption_is_what_jobs_have_found) {
  struct gs_msg state = wire_msg(GS_CLIENT_STATE, 0);
  int fd = register_client(it);
  found("", "preemption", "unknown: ");
  attach_card(fd, 1, 3 * GIB, GS_ATTACH_MANAGED);
  state.state.flags = GS_STATE_PREEMPTS;
  tell(fd, &state);
  get_status(it, GS_STATUS_GPU);
  found("", "preemption", "ok: work is stopped in its middle (1 job)");
}

static const char *played(const char *script) {
  static char variables[512];
  ck_assert_int_eq(run_shell("echo '%s' >%s/script", script, it->folder), 0);
  snprintf(variables, sizeof variables, "GPUSHARE_NVML=%s GS_NVML_SCRIPT=%s/script", GS_NVML, it->folder);
  return variables;
}

TEST(processes_that_do_not_share_are_found) {
  char own[64];
  int fd = register_client(it);
  attach_card(fd, 1, 3 * GIB, GS_ATTACH_MANAGED);
  snprintf(own, sizeof own, "gpus=2 pid=%d", getpid());
  found(played(own), "unshared", "ok: all processes on 2 GPUs are jobs");
  found(played("gpus=2 pid=1"), "unshared", "warning: process 1 (");
  snprintf(own, sizeof own, "gpus=2 pid=%d do=hide", getpid());
  found(played(own), "unshared", "unknown: NVML does not tell which processes use GPU 1");
  output_lacks("are jobs");
  found(played("gpus=2 pid=1 do=hide"), "unshared", "warning: process 1 (");
  found(played("gpus=2 do=fail"), "unshared", "unknown: NVML does not tell which processes use GPUs");
  found(played("gpus=2 do=crash"), "unshared", "unknown: NVML does not tell which processes use GPUs");
  run_shell("rm %s/script", it->folder);
}

TEST(a_driver_that_hangs_is_found) {
  found(played("gpus=2 do=hang"), "unshared", "failing: NVML does not answer");
  run_shell("rm %s/script", it->folder);
}

/* ---- the configuration ---- */

static void write_config(const char *text) {
  FILE *file = fopen(it->config, "we");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static int reload(const char *options) {
  return run_shell("%s --socket %s reload %s 2>&1", GS_CTL, it->socket, options);
}

static uint64_t default_tq_ns(void) { return get_status(it, GS_STATUS_DAEMON).daemon.default_tq_ns; }

TEST(reload_tells_what_has_changed) {
  write_config("tq = 7\nlearn = no\n");
  found("", "configuration", "warning: the daemon has not read what is in its file now");
  ck_assert_uint_ne(default_tq_ns(), 7 * NS_PER_S);
  ck_assert_int_eq(reload(""), 0);
  ck_assert_str_eq(output, "tq = 7 instead of its default\nlearn = no instead of its default\n");
  ck_assert_uint_eq(default_tq_ns(), 7 * NS_PER_S);
  ck_assert_int_eq(reload(""), 0);
  ck_assert_str_eq(output, "nothing has changed\n");
  found("", "configuration", "ok: the daemon has what its file says");
  write_config("tq = 8\nspatial = mps\n");
  ck_assert_int_eq(reload("--json"), 0);
  output_has("{\"changed\":[\"tq = 8 instead of 7\",\"learn = its default instead of no\"],\"restart\":[");
}

/* Whatever is behind what people are shown of it. */
TEST(a_change_in_a_long_value_is_seen) {
  char text[320] = "on_job_end = ";
  memset(text + strlen(text), 'x', 150);
  size_t end = strlen(text);
  strcpy(text + end, "1\n");
  write_config(text);
  ck_assert_int_eq(reload(""), 0);
  output_has("on_job_end = xxx");
  output_has("xxx... instead of its default\n");
  text[end] = '2';
  write_config(text);
  ck_assert_int_eq(reload(""), 0);
  output_has("on_job_end = xxx");
  output_has("xxx... instead of xxx");
  ck_assert_int_eq(reload(""), 0);
  ck_assert_str_eq(output, "nothing has changed\n");
}

TEST(a_wrong_configuration_changes_nothing) {
  write_config("tq = 7\n");
  ck_assert_int_eq(reload(""), 0);
  write_config("tq = 9\nmode = never\n");
  ck_assert_int_eq(reload(""), 1);
  output_has("gpushare.conf:2: mode: 'never' is none of auto, on, off");
  output_has("the configuration is wrong, and stays as it was");
  ck_assert_uint_eq(default_tq_ns(), 7 * NS_PER_S);
  found("", "configuration", "failing: ");
}

/* Each is answered by what the file was when it asked, or later. */
TEST(many_may_ask_at_once) {
  write_config("tq = 7\n");
  ck_assert_int_eq(
      run_shell("for i in 1 2 3 4 5 6 7 8; do %s --socket %s reload & done 2>&1; wait; %s --socket %s "
                "status --json >%s/status",
                GS_CTL, it->socket, GS_CTL, it->socket, it->folder),
      0);
  output_has("tq = 7 instead of its default\n");
  ck_assert_uint_eq(default_tq_ns(), 7 * NS_PER_S);
  run_shell("rm %s/status", it->folder);
}

/* Who asks and goes is not answered. */
TEST(who_asks_may_go) {
  struct gs_msg question = wire_msg(GS_RELOAD, GS_GPU_ALL);
  write_config("tq = 7\n");
  for (int i = 0; i < 50; i++) {
    int fd = connect_to(it);
    tell(fd, &question);
    close(fd);
  }
  ck_assert_int_eq(reload(""), 0);
  ck_assert_uint_eq(default_tq_ns(), 7 * NS_PER_S);
}

TEST(others_may_not) {
  if (geteuid() != 0) {
    puts("not tried: not root");
    return;
  }
  ck_assert_int_eq(
      run_shell("chmod 755 %s; cp %s %s/ctl; setpriv --reuid 65534 --regid 65534 --clear-groups %s/ctl "
                "--socket %s reload 2>&1",
                it->folder, GS_CTL, it->folder, it->folder, it->socket),
      1);
  output_has("not permitted");
  run_shell("setpriv --reuid 65534 --regid 65534 --clear-groups %s/ctl --socket %s doctor 2>&1", it->folder,
            it->socket);
  output_has("this user may share GPUs and change its own jobs, but no settings");
  output_lacks("configuration");
  run_shell("rm %s/ctl", it->folder);
}

TEST(a_configuration_is_checked_without_a_daemon) {
  write_config("tq = 7\n");
  ck_assert_int_eq(run_shell("%s --check-config %s 2>&1", GS_DAEMON, it->config), 0);
  output_has("the configuration is right: ");
  ck_assert_int_eq(run_shell("%s --config %s --check-config --tq never 2>&1", GS_DAEMON, it->config), 78);
  output_has("--tq: 'never'");
  ck_assert_int_eq(run_shell("%s --check-config %s 2>&1", GS_DAEMON, GS_LAB), 0);
  write_config("tq = 7\nlern = no\n");
  ck_assert_int_eq(run_shell("%s --check-config %s 2>&1", GS_DAEMON, it->config), 78);
  output_has("gpushare.conf:2: lern is not a setting: did you mean learn?");
  ck_assert_int_eq(run_shell("%s --check-config /nonexistent 2>&1", GS_DAEMON), 78);
  ck_assert_int_eq(run_shell("%s --check-config %s more 2>&1", GS_DAEMON, it->config), 64);
}

int main(void) { return suite_run_all("ctl_doctor", set_up, tear_down); }
