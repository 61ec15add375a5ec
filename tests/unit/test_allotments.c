/* test_allotments.c - what pods are allotted of GPUs: played peers, of which the daemon knows by their
 * control groups in which pods they are. */
#include <errno.h>
#include <string.h>

#include "common/wire.h"
#include "played_daemon.h"
#include "server/shares.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define ONE_POD "0a000000-0000-4000-8000-000000000001"
#define OTHER_POD "0a000000-0000-4000-8000-000000000002"

enum { FIRST, SECOND, ELSEWHERE, OUTSIDE, DRIVER, PEER_COUNT };

static struct peer peers[PEER_COUNT];
static struct gs_msg last_reply, last_grant, last_capacity;
static const uint8_t card[GS_UUID_SIZE] = {1};

static struct origin origin_of(const struct peer *peer) {
  struct origin origin = {.kind = GS_ORIGIN_NONE};
  if (peer == &peers[OUTSIDE] || peer == &peers[DRIVER])
    return origin;
  origin.kind = GS_ORIGIN_POD;
  strcpy(origin.name, peer == &peers[ELSEWHERE] ? OTHER_POD : ONE_POD);
  return origin;
}

static void note_sent(struct peer *peer, const struct gs_msg *msg) {
  (void)peer;
  if (msg->type == GS_REPLY)
    last_reply = *msg;
  else if (msg->type == GS_MEM_REPLY)
    last_grant = *msg;
  else if (msg->type == GS_ATTACHED || msg->type == GS_CAPACITY)
    last_capacity = *msg;
}

static void set_up(void) {
  played_sent = note_sent;
  played_origin = origin_of;
  played_begin(peers, PEER_COUNT);
  for (int i = 0; i < PEER_COUNT; i++)
    played_come(&peers[i], i == DRIVER ? 0 : 1000 + (uid_t)i, 100 + i);
}

static void tear_down(void) {
  played_end();
  played_origin = NULL;
}

static int allot_as(int i, const char *pod, uint64_t share, uint64_t limit_bytes, uint32_t weight,
                    uint32_t class) {
  struct gs_msg msg = wire_msg(GS_ALLOT, GS_GPU_ALL);
  memcpy(msg.allot.uuid, card, sizeof card);
  strcpy(msg.allot.pod, pod);
  msg.allot.share = share;
  msg.allot.limit_bytes = limit_bytes;
  msg.allot.weight = weight;
  msg.allot.class = class;
  played_say(&peers[i], &msg);
  return last_reply.status;
}

static int allot(const char *pod, uint64_t share, uint64_t limit_bytes) {
  return allot_as(DRIVER, pod, share, limit_bytes, 50, GS_CLASS_UNSAID);
}

static void come(int i) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  played_say(&peers[i], &msg);
  msg = wire_msg(GS_ATTACH, 0);
  memcpy(msg.attach.uuid, card, sizeof card);
  msg.attach.total_bytes = 16 * GIB;
  msg.attach.flags = GS_ATTACH_MANAGED;
  played_say(&peers[i], &msg);
}

/* 0 or -errno, as the daemon answers. */
static int grow(int i, uint64_t total_bytes) {
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = total_bytes;
  played_say(&peers[i], &msg);
  return last_grant.status;
}

static const struct sched_job *job_of(int i) { return &peers[i].attachments[0]->job; }

/* ---- what is checked ---- */

TEST(the_jobs_of_a_pod_have_its_memory_together) {
  ck_assert_int_eq(allot(ONE_POD, 7, 8 * GIB), 0);
  come(FIRST);
  ck_assert_uint_eq(last_capacity.attached.capacity_bytes, 8 * GIB);
  ck_assert_uint_eq(last_capacity.attached.limited, 1);
  come(SECOND);
  ck_assert_int_eq(grow(FIRST, 6 * GIB), 0);
  ck_assert_int_eq(grow(SECOND, 6 * GIB), -ENOMEM);
  ck_assert_uint_eq(last_grant.mem_reply.why, GS_REFUSAL_LIMIT);
  ck_assert_int_eq(grow(SECOND, GIB), 0);
  ck_assert_uint_eq(job_of(SECOND)->share->weight, 50);
}

static int name_pod(int i, enum gs_msg_type type, const char *pod, const char *text) {
  struct gs_msg msg = wire_msg(type, GS_GPU_ALL);
  strcpy(msg.pod.pod, pod);
  strcpy(msg.pod.text, text);
  played_say(&peers[i], &msg);
  return last_reply.status;
}

static struct pod_names names_of(int i) { return shares_pod_names(&it, job_of(i)->gpu, &peers[i]); }

TEST(a_pod_is_called_by_its_names_while_it_has_something) {
  ck_assert_int_eq(name_pod(DRIVER, GS_POD_NAME, ONE_POD, "too-early"), 0);
  ck_assert_int_eq(allot(ONE_POD, 7, 8 * GIB), 0);
  ck_assert_int_eq(allot(OTHER_POD, 8, 8 * GIB), 0);
  come(FIRST);
  come(ELSEWHERE);
  come(OUTSIDE);
  ck_assert_str_eq(names_of(FIRST).name, "");
  ck_assert_int_eq(name_pod(SECOND, GS_POD_NAME, ONE_POD, "mine"), -EACCES);
  ck_assert_str_eq(names_of(FIRST).name, "");
  ck_assert_int_eq(name_pod(DRIVER, GS_POD_NAMESPACE, ONE_POD, "lab"), 0);
  ck_assert_int_eq(name_pod(DRIVER, GS_POD_NAME, ONE_POD, "trainer-0"), 0);
  ck_assert_str_eq(names_of(FIRST).namespace, "lab");
  ck_assert_str_eq(names_of(FIRST).name, "trainer-0");
  ck_assert_str_eq(names_of(ELSEWHERE).name, "");
  ck_assert_str_eq(names_of(OUTSIDE).name, "");
  ck_assert_int_eq(allot_as(DRIVER, ONE_POD, 7, 0, 0, GS_CLASS_UNSAID), 0);
  ck_assert_str_eq(names_of(FIRST).name, "");
}

TEST(others_are_not_bound_by_it) {
  ck_assert_int_eq(allot(ONE_POD, 7, GIB), 0);
  come(ELSEWHERE);
  come(OUTSIDE);
  ck_assert_uint_eq(last_capacity.attached.capacity_bytes, 16 * GIB);
  ck_assert_int_eq(grow(ELSEWHERE, 6 * GIB), 0);
  ck_assert_int_eq(grow(OUTSIDE, 6 * GIB), 0);
}

TEST(it_counts_for_jobs_that_are_there) {
  come(FIRST);
  come(SECOND);
  ck_assert_int_eq(grow(FIRST, 2 * GIB), 0);
  ck_assert_int_eq(grow(SECOND, 2 * GIB), 0);
  ck_assert_int_eq(allot(ONE_POD, 7, 5 * GIB), 0);
  ck_assert_ptr_eq(job_of(FIRST)->share, job_of(SECOND)->share);
  ck_assert_uint_eq(job_of(FIRST)->share->used_bytes, 4 * GIB);
  ck_assert_uint_eq(job_of(FIRST)->share->job_count, 2);
  ck_assert_uint_eq(last_capacity.attached.capacity_bytes, 5 * GIB);
  ck_assert_ptr_null(scheduler_find_share(job_of(FIRST)->gpu, peers[FIRST].uid));
  ck_assert_int_eq(grow(SECOND, 4 * GIB), -ENOMEM);
  ck_assert_int_eq(grow(SECOND, 3 * GIB), 0);
}

TEST(pods_with_one_number_have_it_together) {
  ck_assert_int_eq(allot(ONE_POD, 7, 4 * GIB), 0);
  ck_assert_int_eq(allot(OTHER_POD, 7, 4 * GIB), 0);
  come(FIRST);
  come(ELSEWHERE);
  ck_assert_int_eq(grow(FIRST, 3 * GIB), 0);
  ck_assert_int_eq(grow(ELSEWHERE, 2 * GIB), -ENOMEM);
  ck_assert_int_eq(allot(OTHER_POD, 8, 4 * GIB), 0);
  ck_assert_int_eq(grow(ELSEWHERE, 2 * GIB), 0);
}

TEST(the_class_is_not_the_programs_word) {
  ck_assert_int_eq(allot_as(DRIVER, ONE_POD, 7, 0, 100, GS_CLASS_OPPORTUNISTIC), 0);
  come(FIRST);
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.class = GS_CLASS_PRODUCTION;
  played_say(&peers[FIRST], &msg);
  ck_assert_int_eq(job_of(FIRST)->terms.class, GS_CLASS_OPPORTUNISTIC);
  ck_assert_int_eq(allot_as(DRIVER, ONE_POD, 7, 0, 100, GS_CLASS_PRODUCTION), 0);
  clients_apply_some_terms(&it, now_ns);
  ck_assert_int_eq(job_of(FIRST)->terms.class, GS_CLASS_PRODUCTION);
}

TEST(it_ends) {
  ck_assert_int_eq(allot(ONE_POD, 7, GIB), 0);
  ck_assert_int_eq(allot_as(DRIVER, ONE_POD, 0, 0, 0, 0), 0);
  ck_assert_int_eq(allot_as(DRIVER, OTHER_POD, 0, 0, 0, 0), 0);
  come(FIRST);
  ck_assert_int_eq(grow(FIRST, 2 * GIB), 0);
}

TEST(only_who_may_change_settings_allots) {
  ck_assert_int_eq(allot_as(OUTSIDE, ONE_POD, 7, GIB, 100, GS_CLASS_PRODUCTION), -EACCES);
  come(FIRST);
  ck_assert_int_eq(grow(FIRST, 2 * GIB), 0);
}

TEST(nonsense_is_refused) {
  ck_assert_int_eq(allot("", 7, GIB), -EINVAL);
  ck_assert_int_eq(allot("a pod", 7, GIB), -EINVAL);
  ck_assert_int_eq(allot(ONE_POD, 7, UINT64_MAX), -EINVAL);
  ck_assert_int_eq(allot_as(DRIVER, ONE_POD, 7, GIB, GS_WEIGHT_MAX + 1, 0), -EINVAL);
  ck_assert_int_eq(allot_as(DRIVER, ONE_POD, 7, GIB, 1, GS_CLASS_UNSAID + 1), -EINVAL);
}

TEST(it_outlives_jobs_and_users_limits) {
  struct user_limits limits = {.count = 0};
  ck_assert_int_eq(allot(ONE_POD, 7, 2 * GIB), 0);
  come(FIRST);
  clients_set_bounds(&it, &TERMS_UNBOUNDED, &limits, now_ns);
  while (it.bounding)
    clients_go_on_with_bounds(&it, now_ns);
  ck_assert_int_eq(grow(FIRST, 3 * GIB), -ENOMEM);
  played_go(&peers[FIRST]);
  played_come(&peers[FIRST], 1000, 200);
  come(FIRST);
  ck_assert_int_eq(grow(FIRST, 3 * GIB), -ENOMEM);
}

int main(void) { return suite_run_all("allotments", set_up, tear_down); }
