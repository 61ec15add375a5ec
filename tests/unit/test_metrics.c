/* test_metrics.c - the metrics as a text: what a sample looks like, and that there is a bound on how many. */
#include "metrics/metrics.h"

#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "server/config.h"
#include "server/daemon_log.h"
#include "server/shares.h"
#include "suite.h"

#define MIB (UINT64_C(1) << 20)
#define JOBS (METRICS_JOBS_MAX + 88)

static struct daemon daemon_;
static struct gpu gpu;
static struct attachment attachments[JOBS];
static struct peer peers[JOBS];
static char *text;

static bool ignore_share(struct rates_job *job, uint64_t now_ns) { return job && now_ns; }

static void set_up(void) {
  static const uint8_t uuid[GS_UUID_SIZE] = {1};
  daemon_ = (struct daemon){.started_realtime_ns = 1500000000};
  list_init(&daemon_.allotments);
  scheduler_init(&daemon_.scheduler);
  scheduler_add_gpu(&daemon_.scheduler, &gpu.sched, uuid, "card", UINT64_C(1) << 34);
  rates_init(&gpu.rates, ignore_share);
  text = NULL;
}

static void tear_down(void) { free(text); }

static void add_job(int i, const char *name) {
  struct sched_change change;
  change_init(&change);
  strcpy(peers[i].name, name);
  attachments[i].peer = &peers[i];
  scheduler_attach(&gpu.sched, &attachments[i].job,
                   &(struct sched_attach){.id = (uint32_t)i + 1, .owner = &attachments[i]}, 0, &change);
  for (struct sched_action action; change_next(&change, &action);)
    ;
  rates_enter(&gpu.rates, &attachments[i].rates, &attachments[i].job);
}

static const char *read_as(enum dialect dialect, uint64_t now_ns) {
  size_t size;
  free(text);
  text = metrics_text(&daemon_, dialect, now_ns, &size);
  ck_assert_uint_eq(strlen(text), size);
  return text;
}

static int count_of(const char *part) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)); at++)
    count++;
  return count;
}

/* The labels of a job in no container, batch job, unit or gang. */
#define NOWHERE "namespace=\"\",pod=\"\",pod_uid=\"\",container=\"\",slurm_job=\"\",unit=\"\",gang=\"\""

#define has(part) ck_assert_msg(strstr(text, part) != NULL, "no %s", part)

TEST(values_have_no_more_digits_than_they_need) {
  daemon_.client_count = 3;
  read_as(DIALECT_PROMETHEUS, 0);
  has("\nprocess_start_time_seconds 1.5\n");
  has("\ngpushare_clients 3\n");
  daemon_.started_realtime_ns = UINT64_C(1795297552000000001);
  read_as(DIALECT_PROMETHEUS, 0);
  has("\nprocess_start_time_seconds 1795297552.000000001\n");
  daemon_.started_realtime_ns = 2 * NS_PER_S;
  read_as(DIALECT_PROMETHEUS, 0);
  has("\nprocess_start_time_seconds 2.0\n");
}

TEST(values_of_labels_are_escaped) {
  add_job(0, "a\"b\\c\nd\x80");
  read_as(DIALECT_PROMETHEUS, 0);
  has("name=\"a\\\"b\\\\c\\nd?\"");
}

TEST(openmetrics_names_a_family_without_its_suffix_and_ends) {
  read_as(DIALECT_OPENMETRICS, 0);
  has("# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\nprocess_cpu_seconds_total ");
  has("# TYPE gpushare_build info\ngpushare_build_info{");
  ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
  read_as(DIALECT_PROMETHEUS, 0);
  has("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total ");
  has("# TYPE gpushare_build_info gauge\ngpushare_build_info{");
  ck_assert_ptr_null(strstr(text, "# EOF"));
  ck_assert_ptr_null(strstr(text, "# UNIT"));
}

TEST(buckets_include_the_smaller_ones) {
  gpu.sched.handover.costs[0] = 2;
  gpu.sched.handover.costs[3] = 1;
  gpu.sched.handover.costs[SCHED_COST_BOUNDS] = 4;
  gpu.sched.handover.sum.drain_ns = NS_PER_S;
  gpu.sched.handover.sum.move_ns = NS_PER_S / 2;
  read_as(DIALECT_PROMETHEUS, 0);
#define BUCKET(le)                                                                                           \
  "gpushare_gpu_handover_duration_seconds_bucket{gpu=\"GPU-01000000-0000-0000-0000-000000000000\",index="    \
  "\"0\",le=\"" le "\"} "
  has(BUCKET("0.001") "2\n");
  has(BUCKET("0.005") "2\n");
  has(BUCKET("0.01") "3\n");
  has(BUCKET("30.0") "3\n");
  has(BUCKET("+Inf") "7\n");
  has("gpushare_gpu_handover_duration_seconds_sum{gpu=\"GPU-01000000-0000-0000-0000-000000000000\",index="
      "\"0\"} 1.5\n");
  has("gpushare_gpu_handover_duration_seconds_count{gpu=\"GPU-01000000-0000-0000-0000-000000000000\",index="
      "\"0\"} 7\n");
}

/* An older library tells no kinds. */
TEST(what_is_pinned_has_kinds) {
  struct sched_change change;
  uint64_t granted_bytes;
  change_init(&change);
  add_job(0, "a");
  add_job(1, "b");
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(
        scheduler_memory_request(&attachments[i].job, 5 * MIB, 3 * MIB, 0, &change, &granted_bytes), 0);
  for (struct sched_action action; change_next(&change, &action);)
    ;
  attachments[0].kind_bytes[GS_PINNED_ARRAYS] = MIB;
  attachments[0].kind_bytes[GS_PINNED_SHARED] = 7 * MIB;
  attachments[1].copies_bytes = 5 * MIB;
  read_as(DIALECT_PROMETHEUS, 0);
  has("name=\"a\",class=\"standard\",user=\"0\"," NOWHERE ",kind=\"arrays\"} 1048576\n");
  has("name=\"a\",class=\"standard\",user=\"0\"," NOWHERE ",kind=\"shared\"} 2097152\n");
  has("name=\"b\",class=\"standard\",user=\"0\"," NOWHERE ",kind=\"other\"} 3145728\n");
  ck_assert_int_eq(count_of("\ngpushare_job_memory_pinned_bytes{"), 3);
  has("gpushare_job_host_copies_bytes{gpu=\"GPU-01000000-0000-0000-0000-000000000000\",index=\"0\",job_id="
      "\"2\",name="
      "\"b\","
      "class=\"standard\",user=\"0\"," NOWHERE "} 5242880\n");
}

static void name_users(const char *lines) {
  char path[] = "/tmp/gpushare-passwd-XXXXXX";
  int fd = mkstemp(path);
  ck_assert_int_eq(write(fd, lines, strlen(lines)), (ssize_t)strlen(lines));
  close(fd);
  struct user_names names = user_names_read(path);
  user_names_use(&names);
  unlink(path);
}

static void add_job_from(int i, uid_t uid, enum gs_origin kind, const char *name, const char *container) {
  peers[i].uid = uid;
  peers[i].origin = (struct origin){.kind = kind};
  strcpy(peers[i].origin.name, name);
  strcpy(peers[i].origin.container, container);
  add_job(i, "job");
}

#define FROM(user, pod, container, slurm, unit)                                                              \
  "user=\"" user "\",namespace=\"\",pod=\"\",pod_uid=\"" pod "\",container=\"" container                     \
  "\",slurm_job=\"" slurm "\",unit=\"" unit "\",gang=\"\""

/* Of a number's names the first one in the file counts, wherever it stands there. */
TEST(labels_tell_whose_a_job_is_and_where_it_is_from) {
  name_users("zoe:x:1002:1::/:/bin/sh\nada:x:1000:1::/:/bin/sh\neve:x:1000:1::/:/bin/sh\n");
  add_job_from(0, 1000, GS_ORIGIN_POD, "0f3a-pod", "3f2a9c1b4d5e");
  add_job_from(1, 1001, GS_ORIGIN_DOCKER, "aaaaaaaaaaaa", "aaaaaaaaaaaa");
  add_job_from(2, 1002, GS_ORIGIN_SLURM, "4711.batch", "");
  add_job_from(3, 1002, GS_ORIGIN_UNIT, "trai\"ner.service", "");
  read_as(DIALECT_PROMETHEUS, 0);
  has("job_id=\"1\",name=\"job\",class=\"standard\"," FROM("ada", "0f3a-pod", "3f2a9c1b4d5e", "", "") "} ");
  has("job_id=\"2\",name=\"job\",class=\"standard\"," FROM("1001", "", "aaaaaaaaaaaa", "", "") "} ");
  has("job_id=\"3\",name=\"job\",class=\"standard\"," FROM("zoe", "", "", "4711", "") "} ");
  has("job_id=\"4\",name=\"job\",class=\"standard\"," FROM("zoe", "", "", "", "trai\\\"ner.service") "} ");
  ck_assert_int_eq(count_of("\ngpushare_job_turns_total{"),
                   count_of("gpushare_job_turns_total{gpu=\"GPU-01"));
  name_users("");
}

TEST(a_pod_that_has_something_is_called_by_its_names) {
  struct gs_msg msg = wire_msg(GS_ALLOT, GS_GPU_ALL);
  msg.allot.uuid[0] = 1;
  msg.allot.weight = 100;
  strcpy(msg.allot.pod, "0f3a-pod");
  change_init(&daemon_.actions);
  ck_assert_int_eq(shares_allot(&daemon_, &msg, 0), 0);
  msg = wire_msg(GS_POD_NAME, GS_GPU_ALL);
  strcpy(msg.pod.pod, "0f3a-pod");
  strcpy(msg.pod.text, "trainer-0");
  shares_name_pod(&daemon_, &msg);
  msg.type = GS_POD_NAMESPACE;
  strcpy(msg.pod.text, "lab");
  shares_name_pod(&daemon_, &msg);
  add_job_from(0, 1000, GS_ORIGIN_POD, "0f3a-pod", "");
  add_job_from(1, 1000, GS_ORIGIN_UNIT, "0f3a-pod", "");
  read_as(DIALECT_PROMETHEUS, 0);
  has("\ngpushare_job_turns_total{");
  has("namespace=\"lab\",pod=\"trainer-0\",pod_uid=\"0f3a-pod\",");
  has("namespace=\"\",pod=\"\",pod_uid=\"\",container=\"\",slurm_job=\"\",unit=\"0f3a-pod\",");
  shares_leave(&gpu.sched);
  shares_end(&daemon_);
}

/* What NVML does not tell has no sample, and nothing has one when it was told long ago. */
TEST(a_card_tells_what_it_does_while_that_is_fresh) {
  struct card_readings *readings = &daemon_.card_query.readings;
  gpu.known = true;
  read_as(DIALECT_PROMETHEUS, 0);
  ck_assert_int_eq(count_of("\ngpushare_gpu_answers{"), 0);
  readings->until_ns = 100;
  read_as(DIALECT_PROMETHEUS, 99);
#define CARD "{gpu=\"GPU-01000000-0000-0000-0000-000000000000\",index=\"0\"} "
  has("\ngpushare_gpu_answers" CARD "0\n");
  readings->count = 1;
  readings->list[0] = (struct card_reading){.uuid = {1},
                                            .does = {.known = NVML_POWER | NVML_ENERGY | NVML_UTILIZATION,
                                                     .power_mw = 250500,
                                                     .gpu_percent = 97,
                                                     .memory_percent = 5,
                                                     .energy_mj = 12345678},
                                            .processes_known = 1,
                                            .unshared = 2,
                                            .unshared_bytes = 5 * MIB};
  read_as(DIALECT_OPENMETRICS, 99);
  has("\ngpushare_gpu_answers" CARD "1\n");
  has("# UNIT gpushare_gpu_power_watts watts\ngpushare_gpu_power_watts" CARD "250.5\n");
  has("\ngpushare_gpu_energy_joules_total" CARD "12345.678\n");
  has("\ngpushare_gpu_utilization_ratio" CARD "0.97\n");
  has("\ngpushare_gpu_memory_utilization_ratio" CARD "0.05\n");
  has("\ngpushare_gpu_unshared_processes" CARD "2\n");
  has("\ngpushare_gpu_unshared_memory_bytes" CARD "5242880\n");
  ck_assert_int_eq(count_of("\ngpushare_gpu_temperature_celsius{"), 0);
  readings->list[0].processes_known = 0;
  readings->list[0].does.known = NVML_TEMPERATURE;
  readings->list[0].does.temperature_c = 61;
  read_as(DIALECT_PROMETHEUS, 99);
  has("\ngpushare_gpu_temperature_celsius" CARD "61\n");
  ck_assert_int_eq(count_of("\ngpushare_gpu_unshared_processes{"), 0);
  ck_assert_int_eq(count_of("\ngpushare_gpu_power_watts{"), 0);
  read_as(DIALECT_PROMETHEUS, 100);
  ck_assert_int_eq(count_of("\ngpushare_gpu_answers{"), 0);
  ck_assert_int_eq(count_of("\ngpushare_gpu_temperature_celsius{"), 0);
}

TEST(only_so_many_jobs_have_samples_of_their_own) {
  for (int i = 0; i < JOBS; i++)
    add_job(i, "job");
  read_as(DIALECT_PROMETHEUS, 0);
  ck_assert_int_eq(count_of("\ngpushare_job_turns_total{"), METRICS_JOBS_MAX);
  has("\ngpushare_jobs_unlisted 88\n");
  has("class=\"standard\"} 600\n"); /* of the GPU */
}

TEST(each_user_has_what_it_cost_and_had) {
  static struct users users;
  users_init(&users, 1024);
  name_users("ada:x:1000:1000::/:/bin/sh\n");
  daemon_.accounts = &users;
  rota_spend(&users_find(&users, 1000)->rota, 3 * NS_PER_S / 2);
  rota_spend(&users_find(&users, 1001)->rota, NS_PER_S);
  rota_spend(&users_find(&users, 1001)->rota, 2 * NS_PER_S);
  users_find(&users, 1000)->held_ns = 5 * NS_PER_S / 2;
  users_find(&users, 1001)->waited_ns = 4 * NS_PER_S;
  users_find(&users, 1001)->moved_bytes = 4096;
  users_find(&users, 1001)->energy_mj = 1500;
  read_as(DIALECT_PROMETHEUS, 0);
  has("\ngpushare_user_held_seconds_total{uid=\"1000\",user=\"ada\"} 2.5\n");
  has("\ngpushare_user_waited_seconds_total{uid=\"1001\",user=\"1001\"} 4.0\n");
  has("\ngpushare_user_moved_bytes_total{uid=\"1001\",user=\"1001\"} 4096\n");
  has("\ngpushare_user_energy_joules_total{uid=\"1001\",user=\"1001\"} 1.5\n");
  has("\ngpushare_user_handling_seconds_total{uid=\"1000\",user=\"ada\"} 1.5\n");
  has("\ngpushare_user_handling_seconds_total{uid=\"1001\",user=\"1001\"} 3.0\n");
  for (uid_t uid = 2000; uid < 2000 + 2 * METRICS_USERS_MAX; uid++)
    ck_assert_int_eq(user_charge(users_find(&users, uid), USER_BYTES, 1), 0);
  read_as(DIALECT_PROMETHEUS, 0);
  ck_assert_int_eq(count_of("\ngpushare_user_handling_seconds_total{"), METRICS_USERS_MAX);
  for (uid_t uid = 2000; uid < 2000 + 2 * METRICS_USERS_MAX; uid++)
    user_release(users_find(&users, uid), USER_BYTES, 1);
  users_end(&users);
}

static void remove_job(int i) {
  struct sched_change change;
  change_init(&change);
  walk_on_detach(&daemon_.metrics_walk, &attachments[i].job);
  rates_leave(&gpu.rates, &attachments[i].rates, 0);
  scheduler_detach(&attachments[i].job, 0, &change);
  for (struct sched_action action; change_next(&change, &action);)
    ;
}

/* Some leave just when they would be next. */
TEST(a_text_is_made_in_slices_while_jobs_leave) {
  struct metrics metrics;
  size_t size;
  int left = 100, slices = 1;
  for (int i = 0; i < left; i++)
    add_job(i, "job");
  ck_assert_int_eq(metrics_begin(&metrics, &daemon_, DIALECT_PROMETHEUS), 0);
  for (; !metrics_go_on(&metrics, 0, 0); slices++) {
    struct list *next = daemon_.metrics_walk.job_node;
    int i = (int)(next - &attachments[0].job.link) / (int)(sizeof *attachments / sizeof *next);
    if (next && next != &gpu.sched.jobs && i >= 0 && i < JOBS && &attachments[i].job.link == next &&
        left > 70) {
      remove_job(i);
      left--;
    }
  }
  text = metrics_take(&metrics, &size);
  ck_assert_int_gt(slices, 12 * 50 / 16);
  ck_assert_int_eq(left, 70);
  ck_assert_int_eq(count_of("\ngpushare_job_limit_ratio{"), 0);
  int infos = count_of("\ngpushare_job_info{"), moved = count_of("\ngpushare_job_moved_bytes_total{");
  ck_assert_int_gt(infos, 70);
  ck_assert_int_eq(moved, 70);
  ck_assert_int_eq(count_of("# TYPE gpushare_job_"), 15);
}

static void expect_address(const char *address_text) {
  struct address address;
  char again[ADDRESS_TEXT_SIZE];
  ck_assert_int_eq(address_parse(address_text, &address), 0);
  address_format(&address, again);
  ck_assert_str_eq(again, address_text);
}

TEST(addresses_are_numbers_or_absolute_paths) {
  static const char *const wrong[] = {
      "",          "9465",         ":9465",        "localhost:9465",
      "127.0.0.1", "127.1:80x",    "1.2.3.4:-1",   "1.2.3.4:65536",
      "::1:9465",  "[::1]",        "[]:9465",      "[::1:9465",
      "unix:",     "unix:metrics", "/run/metrics", "[12345678901234567890123456789012345678901234567890]:1"};
  struct address address;
  char long_path[256] = "unix:/";
  expect_address("127.0.0.1:9465");
  expect_address("0.0.0.0:0");
  expect_address("[::1]:65535");
  expect_address("unix:/run/gpushare/metrics.sock");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(address_parse(wrong[i], &address) < 0, "%s", wrong[i]);
  memset(long_path + strlen(long_path), 'x', 120);
  ck_assert_int_lt(address_parse(long_path, &address), 0);
}

int main(void) { return suite_run_all("metrics", set_up, tear_down); }
