/* test_spatial.c - which GPUs share by MPS, and which programs. */
#include <string.h>

#include "server/mps.h"
#include "suite.h"

static struct spatial spatial;
static struct sched_settings general;
static struct overrides overrides;
static uint8_t host[3][GS_UUID_SIZE];

static void set_up(void) {
  general = (struct sched_settings){.spatial = GS_SPATIAL_NONE};
  overrides = (struct overrides){.count = 0};
  memset(host, 0, sizeof host);
  for (uint8_t i = 0; i < 3; i++)
    host[i][0] = (uint8_t)(i + 1);
}

static void give(int gpu, enum gs_spatial value) {
  struct override *own = overrides_provide(&overrides, host[gpu]);
  own->fields = OVERRIDE_SPATIAL;
  own->settings.spatial = value;
}

static void choose(int host_count) {
  spatial_choose(&spatial, &general, &overrides, (const uint8_t(*)[GS_UUID_SIZE])host, host_count);
}

static void check(bool all, int count) {
  ck_assert_int_eq(spatial.all, all);
  ck_assert_int_eq(all ? 0 : spatial.count, count);
  ck_assert_int_eq(spatial_is_on(&spatial), all || count > 0);
}

static struct gs_msg ask(uint32_t count, int first, int second) {
  struct gs_msg msg = {.ask_spatial.count = count};
  memcpy(msg.ask_spatial.uuids[0], host[first], GS_UUID_SIZE);
  memcpy(msg.ask_spatial.uuids[1], host[second], GS_UUID_SIZE);
  return msg;
}

static enum gs_spatial_verdict judge(const struct gs_msg *msg, uid_t uid) {
  return spatial_judge(&spatial, msg, uid, 0);
}

TEST(it_is_for_all_gpus_or_some) {
  choose(3);
  check(false, 0);
  general.spatial = GS_SPATIAL_MPS;
  choose(-1);
  check(true, 0);
  give(1, GS_SPATIAL_NONE);
  choose(3);
  check(false, 2);
  ck_assert(spatial_has(&spatial, host[0]) && !spatial_has(&spatial, host[1]));
  choose(-1); /* which others there are, nobody knows */
  check(false, 0);
  general.spatial = GS_SPATIAL_NONE;
  give(1, GS_SPATIAL_MPS);
  choose(-1);
  check(false, 1);
  ck_assert(spatial_has(&spatial, host[1]) && !spatial_has(&spatial, host[0]));
}

TEST(all_that_there_are_is_all) {
  give(0, GS_SPATIAL_MPS);
  choose(1);
  check(true, 0);
  choose(2);
  check(false, 1);
  give(1, GS_SPATIAL_MPS);
  give(2, GS_SPATIAL_MPS); /* not there */
  choose(2);
  check(true, 0);
}

TEST(what_is_visible_is_a_list_of_uuids) {
  char text[SPATIAL_VISIBLE_SIZE];
  give(0, GS_SPATIAL_MPS);
  give(2, GS_SPATIAL_MPS);
  choose(3);
  spatial_visible(&spatial, text);
  ck_assert_str_eq(text, "GPU-01000000-0000-0000-0000-000000000000,GPU-03000000-0000-0000-0000-000000000000");
  choose(1);
  spatial_visible(&spatial, text);
  ck_assert_str_eq(text, "");
}

TEST(changes_are_seen) {
  struct spatial before;
  give(0, GS_SPATIAL_MPS);
  choose(3);
  before = spatial;
  choose(3);
  ck_assert(spatial_is_same(&spatial, &before));
  give(0, GS_SPATIAL_NONE);
  give(1, GS_SPATIAL_MPS);
  choose(3);
  ck_assert(!spatial_is_same(&spatial, &before));
}

TEST(who_sees_other_gpus_does_without) {
  struct gs_msg none = ask(0, 0, 0), own = ask(1, 0, 0), both = ask(2, 0, 1), other = ask(1, 1, 1);
  ck_assert_int_eq(judge(&own, 5), GS_SPATIAL_OFF);
  give(0, GS_SPATIAL_MPS);
  choose(3);
  ck_assert_int_eq(judge(&none, 5), GS_SPATIAL_OTHER_GPUS);
  ck_assert_int_eq(judge(&own, 5), GS_SPATIAL_ON);
  ck_assert_int_eq(judge(&both, 5), GS_SPATIAL_OTHER_GPUS);
  ck_assert_int_eq(judge(&other, 5), GS_SPATIAL_OTHER_GPUS);
  own.ask_spatial.count = UINT32_MAX;
  ck_assert_int_eq(judge(&own, 5), GS_SPATIAL_OTHER_GPUS);
  choose(1); /* all that there are */
  ck_assert_int_eq(judge(&none, 5), GS_SPATIAL_ON);
}

TEST(one_user_at_a_time_and_so_many_programs) {
  struct gs_msg msg = ask(0, 0, 0);
  general.spatial = GS_SPATIAL_MPS;
  choose(0);
  spatial_enter(&spatial, 5);
  ck_assert_int_eq(judge(&msg, 5), GS_SPATIAL_ON);
  ck_assert_int_eq(judge(&msg, 6), GS_SPATIAL_OTHER_USER);
  for (int i = 1; i < SPATIAL_PROGRAMS_MOST; i++)
    spatial_enter(&spatial, 5);
  ck_assert_int_eq(judge(&msg, 5), GS_SPATIAL_FULL);
  for (int i = 0; i < SPATIAL_PROGRAMS_MOST; i++)
    spatial_leave(&spatial);
  ck_assert_int_eq(judge(&msg, 6), GS_SPATIAL_ON);
}

TEST(who_is_not_root_serves_himself) {
  struct gs_msg msg = ask(0, 0, 0);
  general.spatial = GS_SPATIAL_MPS;
  choose(0);
  ck_assert_int_eq(spatial_judge(&spatial, &msg, 5, 5), GS_SPATIAL_ON);
  ck_assert_int_eq(spatial_judge(&spatial, &msg, 6, 5), GS_SPATIAL_OTHER_USER);
  ck_assert_int_eq(spatial_judge(&spatial, &msg, 0, 5), GS_SPATIAL_OTHER_USER);
}

int main(void) { return suite_run_all("spatial", set_up, NULL); }
