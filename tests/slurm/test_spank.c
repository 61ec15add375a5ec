/* test_spank.c - the plugin for Slurm under a played Slurm: what options take, and what a task's environment
 * becomes. */
#include <dlfcn.h>
#include <errno.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire.h"
#include "unit/suite.h"

#define LIBRARY_ARGUMENT "library=" GS_LIBUNIFIED

/* ---- Slurm, played ---- */

static struct {
  enum spank_context context;
  struct spank_option *options[8];
  int option_count;
  struct {
    char name[64], value[1024];
  } variables[16];
  int variable_count;
  char said[2048];
} slurm;

spank_context_t spank_context(void) { return slurm.context; }

spank_err_t spank_option_register(spank_t spank, struct spank_option *option) {
  (void)spank;
  ck_assert_int_lt(slurm.option_count, 8);
  slurm.options[slurm.option_count++] = option;
  return ESPANK_SUCCESS;
}

static char *find_variable(const char *name) {
  for (int i = 0; i < slurm.variable_count; i++)
    if (strcmp(slurm.variables[i].name, name) == 0)
      return slurm.variables[i].value;
  return NULL;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int size) {
  const char *value = find_variable(name);
  (void)spank;
  if (!value)
    return ESPANK_ENV_NOEXIST;
  return snprintf(buffer, (size_t)size, "%s", value) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite) {
  char *present = find_variable(name);
  (void)spank;
  if (present && !overwrite)
    return ESPANK_ENV_EXISTS;
  if (!present) {
    ck_assert_int_lt(slurm.variable_count, 16);
    strcpy(slurm.variables[slurm.variable_count].name, name);
    present = slurm.variables[slurm.variable_count++].value;
  }
  ck_assert_uint_lt(strlen(value), sizeof slurm.variables->value);
  strcpy(present, value);
  return ESPANK_SUCCESS;
}

const char *spank_strerror(spank_err_t err) { return err == ESPANK_ENV_EXISTS ? "exists" : "failed"; }

void slurm_error(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(slurm.said, sizeof slurm.said, format, list);
  va_end(list);
}

/* ---- a plugin, loaded anew for each test, and a socket that answers ---- */

static void *plugin;
static char folder[] = "/tmp/gpushare-spank-XXXXXX", socket_path[64], socket_argument[80];
static int listener;

static void listen_at_socket(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, socket_path);
  listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  ck_assert_int_eq(listen(listener, 8), 0);
}

static void set_up(void) {
  memset(&slurm, 0, sizeof slurm);
  slurm.context = S_CTX_REMOTE;
  strcpy(strrchr(folder, '-'), "-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(socket_path, sizeof socket_path, "%s/daemon.sock", folder);
  snprintf(socket_argument, sizeof socket_argument, "socket=%s", socket_path);
  listen_at_socket();
  plugin = dlopen(GS_SPANK, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(plugin, "%s", dlerror());
}

static int call(const char *name, int count, char *arguments[]) {
  spank_f *function;
  *(void **)&function = dlsym(plugin, name);
  ck_assert_msg(function, "%s", name);
  return function(NULL, count, arguments);
}

static void tear_down(void) {
  ck_assert_int_eq(call("slurm_spank_exit", 0, NULL), 0);
  dlclose(plugin);
  close(listener);
  unlink(socket_path);
  rmdir(folder);
}

static int start(void) { return call("slurm_spank_init", 0, NULL); }

/* As a task of a job for which plugstack.conf has the usual words, and perhaps one more. */
static int start_task(const char *more) {
  char *arguments[] = {LIBRARY_ARGUMENT, socket_argument, (char *)more};
  return call("slurm_spank_task_init", more ? 3 : 2, arguments);
}

static int give(const char *name, const char *value) {
  for (int i = 0; i < slurm.option_count; i++)
    if (strcmp(slurm.options[i]->name, name) == 0)
      return slurm.options[i]->cb(slurm.options[i]->val, value, 1);
  ck_abort_msg("no option %s", name);
}

static void assert_variable(const char *name, const char *value) {
  const char *present = find_variable(name);
  ck_assert_msg(present && strcmp(present, value) == 0, "%s=%s", name, present ? present : "(none)");
}

/* ---- tests ---- */

START_TEST(a_job_that_does_not_ask_stays_as_it_is) {
  ck_assert_int_eq(start(), 0);
  ck_assert_int_eq(slurm.option_count, 3);
  close(listener);
  ck_assert_int_eq(start_task(NULL), 0);
  ck_assert_int_eq(slurm.variable_count, 0);
}
END_TEST

START_TEST(where_there_are_no_options_none_are_registered) {
  slurm.context = S_CTX_SLURMD;
  ck_assert_int_eq(start(), 0);
  slurm.context = S_CTX_JOB_SCRIPT;
  ck_assert_int_eq(start(), 0);
  ck_assert_int_eq(slurm.option_count, 0);
  slurm.context = S_CTX_ALLOCATOR;
  ck_assert_int_eq(start(), 0);
  ck_assert_int_eq(slurm.option_count, 3);
}
END_TEST

START_TEST(a_task_gets_what_was_asked_for) {
  start();
  ck_assert_int_eq(give("gpushare", "opportunistic"), 0);
  ck_assert_int_eq(give("gpushare-limit", "16G"), 0);
  ck_assert_int_eq(give("gpushare-weight", "200"), 0);
  spank_setenv(NULL, "GPUSHARE_CLASS", "production", 1);
  ck_assert_int_eq(start_task(NULL), 0);
  assert_variable("LD_PRELOAD", GS_LIBUNIFIED);
  assert_variable("GPUSHARE_SOCKET", socket_path);
  assert_variable("GPUSHARE_CLASS", "opportunistic");
  assert_variable("GPUSHARE_MEMORY_LIMIT", "16G");
  assert_variable("GPUSHARE_WEIGHT", "200");
}
END_TEST

START_TEST(the_users_own_libraries_stay_behind_ours) {
  start();
  give("gpushare", NULL);
  spank_setenv(NULL, "LD_PRELOAD", "libjemalloc.so.2:" GS_LIBUNIFIED "2", 1);
  ck_assert_int_eq(start_task(NULL), 0);
  assert_variable("LD_PRELOAD", GS_LIBUNIFIED ":libjemalloc.so.2:" GS_LIBUNIFIED "2");
  ck_assert_ptr_null(find_variable("GPUSHARE_CLASS"));
}
END_TEST

START_TEST(a_step_of_a_job_has_the_library_once) {
  start();
  give("gpushare", "");
  spank_setenv(NULL, "LD_PRELOAD", "first.so " GS_LIBUNIFIED ":last.so", 1);
  ck_assert_int_eq(start_task(NULL), 0);
  assert_variable("LD_PRELOAD", "first.so " GS_LIBUNIFIED ":last.so");
}
END_TEST

START_TEST(the_users_own_socket_counts) {
  start();
  give("gpushare", NULL);
  spank_setenv(NULL, "GPUSHARE_SOCKET", "/nowhere/daemon.sock", 1);
  ck_assert_int_lt(start_task(NULL), 0);
  ck_assert_ptr_nonnull(strstr(slurm.said, "/nowhere/daemon.sock"));
}
END_TEST

START_TEST(without_a_daemon_a_task_is_refused) {
  start();
  give("gpushare", NULL);
  spank_setenv(NULL, "SLURMD_NODENAME", "n17", 1);
  close(listener);
  ck_assert_int_lt(start_task(NULL), 0);
  ck_assert_msg(strstr(slurm.said, "no daemon answers at") && strstr(slurm.said, "--exclude=n17"), "%s",
                slurm.said);
  ck_assert_ptr_null(find_variable("LD_PRELOAD"));
}
END_TEST

/* It is there all the same. */
START_TEST(a_daemon_to_which_many_connect_is_one) {
  start();
  give("gpushare", NULL);
  ck_assert_int_eq(listen(listener, 0), 0);
  int waiting = wire_connect(socket_path);
  ck_assert_int_eq(wire_connect(socket_path), -EAGAIN);
  ck_assert_int_eq(start_task(NULL), 0);
  close(waiting);
}
END_TEST

START_TEST(without_the_library_a_task_is_refused) {
  char *arguments[] = {"library=/nowhere/libunified.so", socket_argument};
  start();
  give("gpushare", NULL);
  ck_assert_int_lt(call("slurm_spank_task_init", 2, arguments), 0);
  ck_assert_ptr_nonnull(strstr(slurm.said, "can't preload /nowhere/libunified.so"));
}
END_TEST

START_TEST(wrong_values_are_named) {
  start();
  ck_assert_int_lt(give("gpushare", "fast"), 0);
  ck_assert_str_eq(slurm.said, "gpushare: --gpushare is standard, production or opportunistic, not 'fast'");
  ck_assert_int_lt(give("gpushare-limit", "much"), 0);
  ck_assert_int_lt(give("gpushare-weight", "0"), 0);
  ck_assert_int_eq(start_task(NULL), 0);
  ck_assert_int_eq(slurm.variable_count, 0);
}
END_TEST

START_TEST(a_limit_alone_asks_too) {
  start();
  give("gpushare-limit", "1G");
  ck_assert_int_eq(start_task(NULL), 0);
  assert_variable("LD_PRELOAD", GS_LIBUNIFIED);
}
END_TEST

START_TEST(shards_share_where_the_configuration_says_so) {
  start();
  spank_setenv(NULL, "SLURM_SHARDS_ON_NODE", "2", 1);
  ck_assert_int_eq(start_task(NULL), 0);
  ck_assert_ptr_null(find_variable("LD_PRELOAD"));
  ck_assert_int_eq(start_task("shards"), 0);
  assert_variable("LD_PRELOAD", GS_LIBUNIFIED);
}
END_TEST

START_TEST(wrong_words_of_the_configuration_are_named) {
  start();
  give("gpushare", NULL);
  ck_assert_int_lt(start_task("shard"), 0);
  ck_assert_ptr_nonnull(strstr(slurm.said, "plugstack.conf says 'shard'"));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_job_that_does_not_ask_stays_as_it_is,
                                where_there_are_no_options_none_are_registered,
                                a_task_gets_what_was_asked_for,
                                the_users_own_libraries_stay_behind_ours,
                                a_step_of_a_job_has_the_library_once,
                                the_users_own_socket_counts,
                                without_a_daemon_a_task_is_refused,
                                a_daemon_to_which_many_connect_is_one,
                                without_the_library_a_task_is_refused,
                                wrong_values_are_named,
                                a_limit_alone_asks_too,
                                shards_share_where_the_configuration_says_so,
                                wrong_words_of_the_configuration_are_named,
                                NULL};
  return suite_main("spank", tests, set_up, tear_down);
}
