/* test_config.c - the configuration file: what is read, and what is said of mistakes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "server/config.h"
#include "suite.h"

#define CARD "GPU-01000000-0000-0000-0000-000000000000"
#define OTHER "02000000-0000-0000-0000-00000000000f"
#define THIRD "GPU-03000000-0000-0000-0000-000000000000"

static char path[] = "/tmp/gpushare-config-XXXXXX";
static struct config config;
static char error[512];

static void set_up(void) {
  strcpy(path + sizeof path - 7, "XXXXXX");
  close(mkstemp(path));
  config = config_default();
}

static void tear_down(void) { unlink(path); }

static int read_text(const char *text) {
  FILE *file = fopen(path, "w");
  fputs(text, file);
  fclose(file);
  error[0] = '\0';
  return config_read(&config, path, error, sizeof error);
}

TEST(defaults) {
  ck_assert_uint_eq(config.general.tq_ns, 20 * NS_PER_S);
  ck_assert_uint_eq(config.general.loss_permille, 50);
  ck_assert_uint_eq(config.grace_ns, 30 * NS_PER_S);
  ck_assert_int_eq(config.general.mode, GS_MODE_AUTO);
  ck_assert_int_eq(config.general.policy, GS_POLICY_FAIR);
  ck_assert_uint_eq(config.general.capacity_bytes, 0);
  ck_assert_int_eq(config.general.memory, GS_MEMORY_MANAGED);
  ck_assert_uint_eq(config.overrides.count, 0);
  ck_assert_uint_gt(config.host_memory_bytes, 0);
  ck_assert_int_eq(config.host_copies, GS_HOST_COPIES_AUTO);
  ck_assert(config.count_touched);
  ck_assert_str_eq(config.socket, GS_DEFAULT_SOCKET);
  ck_assert_str_eq(config.metrics, ADDRESS_OFF);
  ck_assert_str_eq(config.web, ADDRESS_OFF);
  ck_assert_uint_eq(config.bounds.max_weight, GS_WEIGHT_DEFAULT);
  ck_assert_int_eq(config.bounds.max_priority, 0);
  ck_assert(config.bounds.production_privileged);
  ck_assert_uint_eq(config.users.count, 0);
}

TEST(all_keys_are_read) {
  ck_assert_int_eq(
      read_text("# comment\n[gpushare]\nsocket = /run/x.sock\ntq=250ms ; comment\nloss=3%\nmode = "
                "off\npolicy = srtf\n"
                "grace = 1m\ncapacity = 16G\nmemory = swap\nhost_memory = 1T\nhost_copies = "
                "on\nmax_clients_per_user = "
                "7\nlearn = no\ncount = allocated\n"
                "max_weight = 300\nmax_priority = 0\nproduction = privileged\n"
                "group = users\nmetrics = [::1]:9465\nweb = unix:/run/w\nlog = debug\n"),
      0);
  ck_assert_str_eq(config.socket, "/run/x.sock");
  ck_assert_uint_eq(config.general.tq_ns, 250 * NS_PER_MS);
  ck_assert_uint_eq(config.general.loss_permille, 30);
  ck_assert_int_eq(config.general.mode, GS_MODE_OFF);
  ck_assert_int_eq(config.general.policy, GS_POLICY_SRTF);
  ck_assert_uint_eq(config.grace_ns, 60 * NS_PER_S);
  ck_assert_uint_eq(config.general.capacity_bytes, UINT64_C(16) << 30);
  ck_assert_int_eq(config.general.memory, GS_MEMORY_SWAP);
  ck_assert_uint_eq(config.host_memory_bytes, UINT64_C(1) << 40);
  ck_assert_int_eq(config.host_copies, GS_HOST_COPIES_ON);
  ck_assert_uint_eq(config.max_clients_per_user, 7);
  ck_assert(!config.learn);
  ck_assert(!config.count_touched);
  ck_assert_uint_eq(config.bounds.max_weight, 300);
  ck_assert_int_eq(config.bounds.max_priority, 0);
  ck_assert(config.bounds.production_privileged);
  ck_assert_str_eq(config.group, "users");
  ck_assert_str_eq(config.metrics, "[::1]:9465");
  ck_assert_str_eq(config.web, "unix:/run/w");
  ck_assert_int_eq(config.log, LOG_LEVEL_DEBUG);
}

TEST(mistakes_are_named_and_change_nothing) {
  static const struct {
    const char *text, *line, *reason;
  } mistakes[] = {
      {"tq = 5\ntq = soon\n", ":2: ", "tq: 'soon' is neither auto nor a duration"},
      {"loss = 0%\n", ":1: ", "loss: '0%' is not a percentage from 1% to 50%"},
      {"loss = 51%\n", ":1: ", "from 1% to 50%"},
      {"loss = 5\n", ":1: ", "from 1% to 50%"},
      {"tq = 0.5ms\n", ":1: ", "'0.5ms' is not from 1ms to 24h (turns without an end: policy = fifo)"},
      {"tq = 25h\n", ":1: ", "'25h' is not from 1ms to 24h"},
      {"tq = 99999999999999999999\n", ":1: ", "is not from 1ms to 24h"},
      {"\n\nspeed = 9\n", ":3: speed is not a setting", ""},
      {"xx = 3\n", ":1: xx is not a setting", ""},
      {"qt = 3\n", ":1: qt is not a setting: did you mean tq?", ""},
      {"polcy = rr\n", ":1: ", "polcy is not a setting: did you mean policy?"},
      {"siz = 80G\n", ":1: siz is not a setting", ""},
      {"[gpu " CARD "]\nsiz = 80G\n", ":2: ", "siz is not a setting: did you mean size?"},
      {"[gpu " CARD "]\ngrcae = 5\n", ":2: grcae is not a setting", ""},
      {"[user 65534]\nmax_job = 5\n", ":2: ", "max_job is no setting of a user: did you mean max_jobs?"},
      {"[other]\ntq = 5\n", ":2: ", "section [other]"},
      {"just words\n", ":1: ", "neither a comment"},
      {"mode = ON\n", ":1: ", "auto, on, off"},
      {"host_memory = 101%\n", ":1: ", "100 %"},
      {"host_copies = yes\n", ":1: ", "'yes' is none of auto, on, off"},
      {"count = all\n", ":1: ", "'all' is neither touched nor allocated"},
      {"max_clients_per_user = 0\n", ":1: ", "number"},
      {"max_clients_per_user = 5x\n", ":1: ", "number"},
      {"max_weight = 99\n", ":1: ", "max_weight: '99' is not a number from 100 to 10000"},
      {"max_weight = 10001\n", ":1: ", "from 100 to 10000"},
      {"max_priority = -1\n", ":1: ", "max_priority: '-1' is not a number from 0 to 20"},
      {"max_priority = 21\n", ":1: ", "from 0 to 20"},
      {"production = me\n", ":1: ", "production: 'me' is neither any nor privileged"},
      {"[gpu " CARD "]\nmax_weight = 100\n", ":2: ", "max_weight is no setting of a single GPU"},
      {"[user 65534]\nmax_jobs = 0\n", ":2: ", "max_jobs: '0' is not a number from 1"},
      {"[user 65534]\nweight = 0\n", ":2: ", "weight: '0' is not a number from 1 to 10000"},
      {"[user 65534]\nproduction = any\n", ":2: ", "production: 'any' is neither yes nor no"},
      {"[user 65534]\nmax_memory = much\n", ":2: ", "max_memory: 'much' is not a size"},
      {"[user 65534]\ntq = 5\n", ":2: ", "tq is no setting of a user"},
      {"[user no such one]\nweight = 5\n", ":2: ", "section [user no such one]: there is no such user"},
      {"[users]\nweight = 5\n", ":2: ", "section [users]: there are only"},
      {"learn = perhaps\n", ":1: ", "learn: 'perhaps' is neither yes nor no"},
      {"group =\n", ":1: ", "empty"},
      {"capacity = 9000T\n", ":1: ", "not a size"},
      {"metrics = 9465\n", ":1: ", "metrics: '9465' is none of off, ADDRESS:PORT"},
      {"web = localhost\n", ":1: ", "web: 'localhost' is none of off, ADDRESS:PORT"},
      {"log = loud\n", ":1: ", "error, warn"},
      {"memory = Swap\n", ":1: ", "memory: 'Swap' is none of managed, swap, off"},
      {"policy = lifo\n", ":1: ", "policy: 'lifo' is none of rr, fair, fifo, srtf, priority or pack"},
      {"[gpu]\ntq = 5\n", ":2: ", "section [gpu]"},
      {"[gpu 0:]\ntq = 5\n", ":2: ", "section [gpu 0:] names no GPU"},
      {"[gpu 65536]\ntq = 5\n", ":2: ", "names no GPU"},
      {"size = 80G\n", ":1: ", "size is a setting of single GPUs, for a section [gpu UUID]"},
      {"[gpu " CARD "]\nsize = 0\n", ":2: ", "size: '0' is not the size of a card"},
      {"[gpu " CARD "0]\ntq = 5\n", ":2: ", "0] names no GPU"},
      {"[gpu GPU-00000000-0000-0000-0000-000000000000]\ntq = 5\n", ":2: ", "names no GPU"},
      {"[gpu " CARD "]\ngrace = 5\n", ":2: ", "grace is no setting of a single GPU"},
      {"[gpu " CARD "]\nspeed = 5\n", ":2: ", "speed is not a setting"},
      {"[gpu " CARD "]\ntq = 5\nmode = maybe\n", ":3: ", "mode: 'maybe' is none of auto, on, off"},
      {"mode = never\ntq = soon\n", ":1: ", "mode"},
  };
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    ck_assert_msg(read_text(mistakes[i].text) == -EINVAL, "%s", mistakes[i].text);
    ck_assert_msg(strstr(error, mistakes[i].line) && strstr(error, mistakes[i].reason), "%s", error);
    ck_assert_msg(!strstr(error, "did you mean") || strstr(mistakes[i].line, "did you mean") ||
                      strstr(mistakes[i].reason, "did you mean"),
                  "%s", error);
    ck_assert_uint_eq(config.general.tq_ns, 20 * NS_PER_S);
    ck_assert_uint_eq(config.overrides.count, 0);
  }
}

TEST(a_user_has_settings_of_its_own) {
  struct user_limit general = {.weight = 100, .max_jobs = 5, .bounds = {100, 0, true}};
  ck_assert_int_eq(
      read_text("[user root]\nweight = 300\nmax_memory = 8G\n[user 65534]\nmax_jobs = 7\n"
                "production = yes\nmax_weight = 400\nmax_priority = 3\n[user 0]\nmax_jobs = 9\n"),
      0);
  struct user_limit root = user_limits_of(&config.users, 0, &general);
  struct user_limit other = user_limits_of(&config.users, 65534, &general);
  struct user_limit third = user_limits_of(&config.users, 1000, &general);
  ck_assert_uint_eq(config.users.count, 2);
  ck_assert(root.weight == 300 && root.max_memory_bytes == UINT64_C(8) << 30 && root.max_jobs == 9);
  ck_assert(root.bounds.production_privileged && root.bounds.max_weight == 100);
  ck_assert(other.weight == 100 && other.max_jobs == 7 && other.max_memory_bytes == 0);
  ck_assert(!other.bounds.production_privileged && other.bounds.max_weight == 400);
  ck_assert_int_eq(other.bounds.max_priority, 3);
  ck_assert(third.weight == 100 && third.max_jobs == 5 && third.bounds.production_privileged);
}

static struct sched_settings settings_of(const char *uuid_text) {
  uint8_t uuid[GS_UUID_SIZE];
  ck_assert_int_eq(parse_uuid(uuid_text, uuid), 0);
  return overrides_settings(&config.overrides, uuid, config.general);
}

TEST(a_gpu_has_settings_of_its_own) {
  ck_assert_int_eq(read_text("tq = 3\n[gpu " CARD "]\nmode = off\ntq = 7\npolicy = srtf\n"
                             "[gpu   " OTHER "]\ncapacity = 4G\nmemory = swap\n"
                             "[gpushare]\nmode = on\n[gpu " CARD "]\ntq = 9\n"),
                   0);
  struct sched_settings one = settings_of(CARD), other = settings_of(OTHER), third = settings_of(THIRD);
  ck_assert_uint_eq(config.overrides.count, 2);
  ck_assert_int_eq(one.mode, GS_MODE_OFF);
  ck_assert_uint_eq(one.tq_ns, 9 * NS_PER_S);
  ck_assert_uint_eq(one.capacity_bytes, 0);
  ck_assert_int_eq(one.memory, GS_MEMORY_MANAGED);
  ck_assert_int_eq(one.policy, GS_POLICY_SRTF);
  ck_assert_int_eq(other.policy, GS_POLICY_FAIR);
  ck_assert_int_eq(other.mode, GS_MODE_ON);
  ck_assert_uint_eq(other.tq_ns, 3 * NS_PER_S);
  ck_assert_uint_eq(other.capacity_bytes, UINT64_C(4) << 30);
  ck_assert_int_eq(other.memory, GS_MEMORY_SWAP);
  ck_assert_int_eq(third.mode, GS_MODE_ON);
  ck_assert_uint_eq(third.capacity_bytes, 0);
  ck_assert_int_eq(third.memory, GS_MEMORY_MANAGED);
}

TEST(a_gpu_may_be_named_by_its_number) {
  ck_assert_int_eq(read_text("tq = 3\n[gpu 1]\ntq = 7\nsize = 80G\n[gpu 0:1]\ntq = 8\n[gpu 1]\nmode = on\n"
                             "[gpu " OTHER "]\ntq = 9\n"),
                   0);
  struct overrides *overrides = &config.overrides;
  ck_assert_uint_eq(overrides->count, 3);
  ck_assert_uint_eq(settings_of(CARD).tq_ns, 3 * NS_PER_S); /* whose number is not known yet */
  ck_assert(overrides->list[0].numbered && overrides->list[0].number == 1);
  ck_assert_uint_eq(overrides->list[1].number, GS_GPU_NUMBER(0u, 2u));
  ck_assert_int_eq(parse_uuid(CARD, overrides->list[0].uuid), 0);
  ck_assert_uint_eq(settings_of(CARD).tq_ns, 7 * NS_PER_S);
  ck_assert_int_eq(settings_of(CARD).mode, GS_MODE_ON);
  ck_assert_uint_eq(settings_of(CARD).card_bytes, UINT64_C(80) << 30);
  ck_assert_int_eq(parse_uuid(OTHER, overrides->list[0].uuid), 0);
  ck_assert_uint_eq(settings_of(OTHER).tq_ns, 9 * NS_PER_S); /* the UUID's counts */
}

TEST(a_quantum_that_finds_itself) {
  ck_assert_int_eq(read_text("tq = auto\nloss = 50%\n[gpu " CARD "]\ntq = 7\n[gpu " OTHER "]\nloss = 1%\n"),
                   0);
  struct sched_settings one = settings_of(CARD), other = settings_of(OTHER);
  ck_assert_uint_eq(one.tq_ns, 7 * NS_PER_S);
  ck_assert_uint_eq(one.loss_permille, 500);
  ck_assert_uint_eq(other.tq_ns, SCHED_TQ_AUTO);
  ck_assert_uint_eq(other.loss_permille, 10);
}

TEST(more_gpus_than_the_daemon_knows_are_refused) {
  static char text[(OVERRIDES_MAX + 1) * 64];
  for (int i = 0, length = 0; i <= OVERRIDES_MAX; i++)
    length += snprintf(text + length, sizeof text - (size_t)length,
                       "[gpu GPU-%08x-0000-0000-0000-000000000000]\ntq = 1\n", i + 1);
  ck_assert_int_eq(read_text(text), -EINVAL);
  ck_assert_msg(strstr(error, "more than 256 GPUs"), "%s", error);
}

TEST(so_many_users_have_a_section_and_no_more) {
  static char text[(USER_LIMITS_MAX + 1) * 64];
  int length = 0;
  for (int i = 0; i < USER_LIMITS_MAX; i++)
    length +=
        snprintf(text + length, sizeof text - (size_t)length, "[user %d]\nweight = %d\n", 70000 + i, i + 1);
  ck_assert_int_eq(read_text(text), 0);
  ck_assert_uint_eq(config.users.count, USER_LIMITS_MAX);
  snprintf(text + length, sizeof text - (size_t)length, "[user 80000]\nweight = 1\n");
  ck_assert_int_eq(read_text(text), -EINVAL);
  ck_assert_msg(strstr(error, "more than 256 users"), "%s", error);
}

TEST(a_path_longer_than_an_address_is_refused) {
  char text[300] = "socket = ";
  memset(text + 9, 'x', 108);
  ck_assert_int_eq(read_text(text), -EINVAL);
  text[9 + 107] = '\0';
  ck_assert_int_eq(read_text(text), 0);
}

TEST(percentages_do_not_depend_on_when_they_are_read) {
  ck_assert_int_eq(read_text("host_memory = 50%"), 0);
  uint64_t half = config.host_memory_bytes;
  ck_assert_int_eq(read_text("host_memory = 100%"), 0);
  ck_assert_uint_eq(config.host_memory_bytes, 2 * half);
}

TEST(a_file_that_is_not_there_says_so) {
  ck_assert_int_eq(config_read(&config, "/nonexistent/file", error, sizeof error), -ENOENT);
}

static void expect_same(const struct config *a, const struct config *b) {
  ck_assert_str_eq(a->socket, b->socket);
  ck_assert_int_eq(a->general.memory, b->general.memory);
  ck_assert_uint_eq(a->general.tq_ns, b->general.tq_ns);
  ck_assert_uint_eq(a->general.loss_permille, b->general.loss_permille);
  ck_assert_int_eq(a->general.mode, b->general.mode);
  ck_assert_int_eq(a->general.policy, b->general.policy);
  ck_assert_uint_eq(a->grace_ns, b->grace_ns);
  ck_assert_uint_eq(a->general.capacity_bytes, b->general.capacity_bytes);
  ck_assert_uint_eq(a->host_memory_bytes, b->host_memory_bytes);
  ck_assert_uint_eq(a->max_clients_per_user, b->max_clients_per_user);
  ck_assert_uint_eq(a->bounds.max_weight, b->bounds.max_weight);
  ck_assert_int_eq(a->bounds.max_priority, b->bounds.max_priority);
  ck_assert_int_eq(a->bounds.production_privileged, b->bounds.production_privileged);
  ck_assert_int_eq(a->learn, b->learn);
  ck_assert_str_eq(a->group, b->group);
  ck_assert_str_eq(a->metrics, b->metrics);
  ck_assert_str_eq(a->web, b->web);
  ck_assert_str_eq(a->state, b->state);
  ck_assert_int_eq(a->log, b->log);
}

TEST(the_example_is_right_and_shows_the_defaults) {
  struct config before = config;
  ck_assert_int_eq(config_read(&config, GS_EXAMPLE, error, sizeof error), 0);
  expect_same(&config, &before);
  /* With its settings switched on it must be right, too. */
  char text[16384] = "", line[256];
  FILE *file = fopen(GS_EXAMPLE, "r");
  while (fgets(line, sizeof line, file))
    strcat(text, line[0] == '#' && line[1] != ' ' && line[1] != '\n' ? line + 1 : line);
  fclose(file);
  ck_assert_msg(read_text(text) == 0, "%s", error);
  expect_same(&config, &before);
  for (size_t i = 0; i < config_key_count; i++) {
    snprintf(line, sizeof line, "\n#%s = ", config_keys[i].name);
    file = fopen(GS_EXAMPLE, "r");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    ck_assert_msg(strstr(text, line), "%s is missing", config_keys[i].name);
  }
}

int main(void) { return suite_run_all("config", set_up, tear_down); }
