/* test_decisions.c - settings made at run time, beside those of the configuration. */
#include <string.h>

#include "common/clock.h"
#include "server/overrides.h"
#include "suite.h"

#define S NS_PER_S

static struct decisions decisions;
static struct sched_settings general;
static struct overrides overrides;
static const uint8_t plain[GS_UUID_SIZE] = {1}, special[GS_UUID_SIZE] = {2};

/* The configuration: 20 s, and 5 s for the special GPU. */
static void set_up(void) {
  decisions = (struct decisions){0};
  overrides = (struct overrides){0};
  general = (struct sched_settings){.tq_ns = 20 * S, .policy = GS_POLICY_FAIR};
  struct override *own = overrides_provide(&overrides, special);
  own->fields = OVERRIDE_TQ;
  own->settings.tq_ns = 5 * S;
}

static void tear_down(void) {}

static void set(const uint8_t *uuid, unsigned field, uint64_t value) {
  decisions_set(&decisions, &general, &overrides, uuid, field, value);
}

static struct sched_settings settings_of(const uint8_t uuid[GS_UUID_SIZE]) {
  static struct overrides merged;
  struct sched_settings defaults = general;
  merged = overrides;
  decisions_apply(&decisions, &defaults, &merged);
  return overrides_settings(&merged, uuid, defaults);
}

static uint64_t tq_s(const uint8_t uuid[GS_UUID_SIZE]) { return settings_of(uuid).tq_ns / S; }

TEST(without_any_the_configuration_counts) {
  ck_assert_uint_eq(tq_s(plain), 20);
  ck_assert_uint_eq(tq_s(special), 5);
}

TEST(a_word_about_all_is_about_all) {
  set(special, OVERRIDE_TQ, 7 * S);
  set(NULL, OVERRIDE_TQ, 3 * S);
  ck_assert_uint_eq(tq_s(plain), 3);
  ck_assert_uint_eq(tq_s(special), 3);
  set(NULL, OVERRIDE_TQ, 20 * S);
  ck_assert_uint_eq(tq_s(special),
                    20); /* the general value of the configuration, and all the same not its own */
}

TEST(a_word_about_one_is_about_one) {
  set(NULL, OVERRIDE_TQ, 3 * S);
  set(plain, OVERRIDE_TQ, 20 * S);
  ck_assert_uint_eq(tq_s(plain), 20);
  ck_assert_uint_eq(tq_s(special), 3);
  set(special, OVERRIDE_TQ, 9 * S);
  ck_assert_uint_eq(tq_s(special), 9);
}

TEST(what_the_configuration_says_anyway_is_no_decision) {
  set(plain, OVERRIDE_TQ, 3 * S);
  set(plain, OVERRIDE_TQ, 20 * S);
  ck_assert_uint_eq(decisions.count, 0);
}

TEST(a_changed_configuration_counts) {
  set(plain, OVERRIDE_TQ, 3 * S);
  set(special, OVERRIDE_TQ, 7 * S);
  set(NULL, OVERRIDE_MODE, GS_MODE_ON);
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 0);
  overrides.list[0].settings.tq_ns = 6 * S;
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 1);
  ck_assert_uint_eq(tq_s(special), 6);
  ck_assert_uint_eq(tq_s(plain), 3);
  general.tq_ns = 21 * S;
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 1);
  ck_assert_uint_eq(tq_s(plain), 21);
  ck_assert_uint_eq(settings_of(plain).mode, GS_MODE_ON);
}

/* [gpu 7], and no GPU 7 yet: it is nobody's, least of all that of all GPUs. */
static struct override *add_unsettled(void) {
  struct override *own = overrides_provide_numbered(&overrides, 7);
  own->fields = OVERRIDE_TQ;
  own->settings.tq_ns = 10 * S;
  return own;
}

TEST(a_section_of_no_gpu_is_of_none) {
  struct override *own = add_unsettled();
  set(NULL, OVERRIDE_TQ, 10 * S);
  ck_assert_uint_eq(tq_s(plain), 10);
  set(NULL, OVERRIDE_TQ, 30 * S);
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 0);
  ck_assert_uint_eq(tq_s(plain), 30);
  memcpy(own->uuid, (uint8_t[GS_UUID_SIZE]){7}, GS_UUID_SIZE);
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 0);
  ck_assert_uint_eq(tq_s(plain), 30);
}

/* The cards are told late: what the configuration says of them is not known before. */
TEST(what_is_not_known_yet_overrules_nothing) {
  struct override *own = add_unsettled();
  uint8_t seventh[GS_UUID_SIZE] = {7};
  memcpy(own->uuid, seventh, GS_UUID_SIZE);
  set(seventh, OVERRIDE_TQ, 4 * S);
  set(NULL, OVERRIDE_MODE, GS_MODE_ON);
  memset(own->uuid, 0, GS_UUID_SIZE);
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 0);
  general.mode = GS_MODE_OFF; /* of all GPUs it is known */
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 1);
  memcpy(own->uuid, seventh, GS_UUID_SIZE);
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 0);
  ck_assert_uint_eq(tq_s(seventh), 4);
  own->settings.tq_ns = 11 * S;
  ck_assert_uint_eq(decisions_review(&decisions, &general, &overrides), 1);
  ck_assert_uint_eq(tq_s(seventh), 11);
}

TEST(there_is_a_bound) {
  uint8_t uuid[GS_UUID_SIZE] = {3};
  for (unsigned i = 0; i < DECISIONS_MAX + 5; i++) {
    memcpy(uuid + 4, &i, sizeof i);
    set(uuid, OVERRIDE_TQ, S);
  }
  ck_assert_uint_eq(decisions.count, DECISIONS_MAX);
  settings_of(plain); /* more GPUs than there may be: no harm */
}

int main(void) { return suite_run_all("decisions", set_up, tear_down); }
