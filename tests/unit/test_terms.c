/* test_terms.c - whose word counts on what a job is given. */
#include "common/clock.h"
#include "common/wire.h"
#include "server/terms.h"
#include "suite.h"

static struct terms terms;

static void set_up(void) { terms = (struct terms){0}; }

static void declare(uint32_t weight, int32_t priority, uint64_t expected_ns, uint64_t limit_bytes) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.weight = weight;
  msg.declare.priority = priority;
  msg.declare.expected_ns = expected_ns;
  msg.declare.limit_bytes = limit_bytes;
  terms_declare(&terms, &msg);
}

static void declare_soft_limit(uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.soft_limit_bytes = bytes;
  terms_declare(&terms, &msg);
}

static struct gs_msg order(uint32_t term, uint64_t value) {
  struct gs_msg msg = wire_msg(GS_SET_TERMS, 0);
  msg.set_terms.term = term;
  msg.set_terms.value = value;
  return msg;
}

static void set(uint32_t term, uint64_t value, bool by_owner) {
  struct gs_msg msg = order(term, value);
  terms_set(&terms, &msg, by_owner);
}

static bool owner_may(uint32_t term, uint64_t value) {
  struct gs_msg msg = order(term, value);
  return terms_owner_may(&terms, &msg);
}

static void given(uint32_t weight, int32_t priority, uint64_t expected_ns, uint64_t limit_bytes) {
  struct sched_terms now = terms_of(&terms);
  ck_assert_uint_eq(now.weight, weight);
  ck_assert_int_eq(now.priority, priority);
  ck_assert_uint_eq(now.expected_ns, expected_ns);
  ck_assert_uint_eq(now.limit_bytes, limit_bytes);
}

TEST(the_program_counts_more_than_the_default) {
  given(SCHED_WEIGHT, 0, 0, 0);
  declare(300, -4, 5, 6);
  given(300, -4, 5, 6);
  declare(0, 0, 0, 0);
  given(SCHED_WEIGHT, 0, 0, 0);
}

TEST(absurd_declarations_are_cut) {
  declare(UINT32_MAX, INT32_MAX, UINT64_MAX, UINT64_MAX);
  given(SCHED_WEIGHT_MAX, SCHED_PRIORITY_MAX, UINT64_MAX, UINT64_MAX);
  declare(1, INT32_MIN, 0, 0);
  given(1, -SCHED_PRIORITY_MAX, 0, 0);
}

TEST(a_declaration_counts_more_than_experience) {
  terms.learnt_ns = 9;
  given(SCHED_WEIGHT, 0, 9, 0);
  declare(0, 0, 5, 0);
  given(SCHED_WEIGHT, 0, 5, 0);
  set(GS_TERM_EXPECTED, 0, false); /* unknown, by somebody who knows that */
  given(SCHED_WEIGHT, 0, 0, 0);
}

TEST(what_is_set_stays_field_by_field) {
  declare(300, 4, 5, 6);
  set(GS_TERM_PRIORITY, (uint64_t)-7, false);
  set(GS_TERM_LIMIT, 0, false);
  given(300, -7, 5, 0);
  declare(200, 8, 9, 10);
  given(200, -7, 9, 0);
  set(GS_TERM_WEIGHT, 50, false);
  set(GS_TERM_EXPECTED, 70, false);
  declare(1, 1, 1, 1);
  given(50, -7, 70, 0);
}

TEST(so_is_expected_memory) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.expected_bytes = 6;
  terms_declare(&terms, &msg);
  ck_assert_uint_eq(terms_of(&terms).expected_bytes, 6);
  ck_assert_uint_eq(terms_of(&terms).expected_ns, 0);
  struct gs_msg set_msg = order(GS_TERM_EXPECTED_MEMORY, 5);
  ck_assert_ptr_null(terms_wrong(&set_msg));
  ck_assert(terms_owner_may(&terms, &set_msg));
  set(GS_TERM_EXPECTED_MEMORY, 5, true);
  ck_assert_uint_eq(terms_of(&terms).expected_bytes, 5);
}

TEST(a_soft_limit_is_a_term_of_its_own) {
  declare_soft_limit(6);
  ck_assert_uint_eq(terms_of(&terms).soft_limit_bytes, 6);
  set(GS_TERM_LIMIT, 9, false);
  ck_assert_uint_eq(terms_of(&terms).soft_limit_bytes, 6);
  set(GS_TERM_SOFT_LIMIT, 0, false);
  ck_assert_uint_eq(terms_of(&terms).soft_limit_bytes, 0);
  declare_soft_limit(7);
  ck_assert_uint_eq(terms_of(&terms).soft_limit_bytes, 0);
  given(SCHED_WEIGHT, 0, 0, 9);
}

TEST(wrong_values_are_named) {
  static const struct {
    uint32_t term;
    uint64_t value;
    bool wrong;
  } cases[] = {{GS_TERM_WEIGHT, 0, true},
               {GS_TERM_WEIGHT, 1, false},
               {GS_TERM_WEIGHT, SCHED_WEIGHT_MAX, false},
               {GS_TERM_WEIGHT, SCHED_WEIGHT_MAX + 1, true},
               {GS_TERM_PRIORITY, (uint64_t)-SCHED_PRIORITY_MAX, false},
               {GS_TERM_PRIORITY, (uint64_t)-SCHED_PRIORITY_MAX - 1, true},
               {GS_TERM_PRIORITY, SCHED_PRIORITY_MAX + 1, true},
               {GS_TERM_EXPECTED, UINT64_MAX, false},
               {GS_TERM_LIMIT, UINT64_MAX, false},
               {GS_TERM_SOFT_LIMIT, UINT64_MAX, false},
               {GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC, false},
               {GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC + 1, true},
               {GS_TERM_RATE, 0, false},
               {GS_TERM_RATE, 100, false},
               {GS_TERM_RATE, 101, true},
               {GS_TERM_PAUSED, 1, false},
               {GS_TERM_PAUSED, 2, true},
               {GS_TERM_COUNT, 1, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gs_msg msg = order(cases[i].term, cases[i].value);
    ck_assert_msg((terms_wrong(&msg) != NULL) == cases[i].wrong, "case %zu", i);
  }
}

TEST(an_owner_asks_for_less) {
  declare(300, 4, 0, 0);
  ck_assert(owner_may(GS_TERM_WEIGHT, 300) && !owner_may(GS_TERM_WEIGHT, 301));
  ck_assert(owner_may(GS_TERM_PRIORITY, 4) && !owner_may(GS_TERM_PRIORITY, 5));
  ck_assert(owner_may(GS_TERM_PRIORITY, (uint64_t)-20));
  ck_assert(owner_may(GS_TERM_EXPECTED, NS_PER_S));
  set(GS_TERM_WEIGHT, 100, true);
  ck_assert(!owner_may(GS_TERM_WEIGHT, 101));
}

/* Of one kind; 100 are declared. */
static void check_limits_of_owner(uint32_t term) {
  ck_assert(owner_may(term, 200));
  set(term, 200, true);
  ck_assert(owner_may(term, 300) && owner_may(term, 0));
  set(term, 150, false);
  ck_assert(!owner_may(term, 151) && !owner_may(term, 0));
  ck_assert(owner_may(term, 150));
  set(term, 120, true);
  ck_assert(!owner_may(term, 150));
  set(term, 0, false);
  ck_assert(owner_may(term, 500));
}

TEST(an_owner_lifts_only_his_own_limit) {
  declare(0, 0, 0, 100);
  check_limits_of_owner(GS_TERM_LIMIT);
}

TEST(nor_others_soft_limits) {
  declare_soft_limit(100);
  set(GS_TERM_LIMIT, 1, false); /* another term */
  check_limits_of_owner(GS_TERM_SOFT_LIMIT);
}

/* ---- bounds ---- */

static struct terms_bounds bounds;

static void bound(uint32_t max_weight, int32_t max_priority) {
  bounds = (struct terms_bounds){.max_weight = max_weight, .max_priority = max_priority};
  terms.bounds = &bounds;
}

TEST(declarations_are_cut_to_the_bounds) {
  bound(200, 5);
  given(SCHED_WEIGHT, 0, 0, 0);
  declare(200, 5, 1, 2);
  given(200, 5, 1, 2);
  ck_assert(!terms_are_cut(&terms));
  declare(201, -20, 1, 2);
  given(200, -20, 1, 2);
  ck_assert(terms_are_cut(&terms));
  declare(0, 6, 0, 0);
  given(SCHED_WEIGHT, 5, 0, 0);
  ck_assert(terms_are_cut(&terms));
  bound(SCHED_WEIGHT_MAX, SCHED_PRIORITY_MAX);
  given(SCHED_WEIGHT, 6, 0, 0); /* what was asked for is not forgotten */
  ck_assert(!terms_are_cut(&terms));
}

TEST(who_may_change_settings_gives_more) {
  bound(200, 5);
  declare(300, 6, 0, 0);
  set(GS_TERM_WEIGHT, 9000, false);
  given(9000, 5, 0, 0);
  set(GS_TERM_PRIORITY, 20, false);
  given(9000, 20, 0, 0);
  ck_assert(!terms_are_cut(&terms));
}

TEST(owners_are_bound_as_their_programs) {
  declare(5000, 20, 0, 0);
  set(GS_TERM_WEIGHT, 4000, true);
  set(GS_TERM_PRIORITY, 19, true);
  given(4000, 19, 0, 0);
  bound(200, 5);
  given(200, 5, 0, 0);
  ck_assert(owner_may(GS_TERM_WEIGHT, 200) && !owner_may(GS_TERM_WEIGHT, 201));
  ck_assert(owner_may(GS_TERM_PRIORITY, 5) && !owner_may(GS_TERM_PRIORITY, 6));
}

/* ---- classes ---- */

static void declare_class(uint32_t class) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.class = class;
  terms_declare(&terms, &msg);
}

static void check_class(enum gs_class class) { ck_assert_int_eq(terms_of(&terms).class, class); }

TEST(a_class_is_declared_or_set) {
  check_class(GS_CLASS_STANDARD);
  declare_class(GS_CLASS_PRODUCTION);
  check_class(GS_CLASS_PRODUCTION);
  declare_class(GS_CLASS_OPPORTUNISTIC + 1);
  check_class(GS_CLASS_STANDARD);
  set(GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC, false);
  check_class(GS_CLASS_OPPORTUNISTIC);
  declare_class(GS_CLASS_PRODUCTION);
  check_class(GS_CLASS_OPPORTUNISTIC);
}

TEST(an_owner_changes_the_class_as_its_program_may) {
  declare_class(GS_CLASS_OPPORTUNISTIC);
  ck_assert(owner_may(GS_TERM_CLASS, GS_CLASS_PRODUCTION) && owner_may(GS_TERM_CLASS, GS_CLASS_STANDARD));
  set(GS_TERM_CLASS, GS_CLASS_STANDARD, false); /* by somebody else */
  ck_assert(!owner_may(GS_TERM_CLASS, GS_CLASS_PRODUCTION));
  ck_assert(owner_may(GS_TERM_CLASS, GS_CLASS_STANDARD) && owner_may(GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC));
  set(GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC, true);
  ck_assert(!owner_may(GS_TERM_CLASS, GS_CLASS_STANDARD));
}

TEST(production_may_be_for_some_only) {
  bound(SCHED_WEIGHT_MAX, SCHED_PRIORITY_MAX);
  bounds.production_privileged = true;
  declare_class(GS_CLASS_PRODUCTION);
  check_class(GS_CLASS_STANDARD);
  ck_assert(terms_are_cut(&terms));
  ck_assert(!owner_may(GS_TERM_CLASS, GS_CLASS_PRODUCTION));
  set(GS_TERM_CLASS, GS_CLASS_PRODUCTION, true);
  check_class(GS_CLASS_STANDARD);
  set(GS_TERM_CLASS, GS_CLASS_PRODUCTION, false);
  check_class(GS_CLASS_PRODUCTION);
  ck_assert(!terms_are_cut(&terms));
  declare_class(GS_CLASS_OPPORTUNISTIC);
  ck_assert(owner_may(GS_TERM_CLASS, GS_CLASS_STANDARD));
}

TEST(a_rate_is_set_by_who_may_change_settings) {
  declare_class(GS_CLASS_OPPORTUNISTIC);
  ck_assert_uint_eq(terms_of(&terms).rate_percent, 0);
  set(GS_TERM_RATE, 30, false);
  ck_assert_uint_eq(terms_of(&terms).rate_percent, 30);
  ck_assert(!owner_may(GS_TERM_RATE, 20) && !owner_may(GS_TERM_RATE, 0));
  set(GS_TERM_RATE, 0, false);
  ck_assert_uint_eq(terms_of(&terms).rate_percent, 0);
}

TEST(who_has_paused_a_job_may_resume_it) {
  ck_assert(owner_may(GS_TERM_PAUSED, 1));
  set(GS_TERM_PAUSED, 1, true);
  ck_assert(terms_of(&terms).paused);
  ck_assert(owner_may(GS_TERM_PAUSED, 0));
  set(GS_TERM_PAUSED, 1, false); /* now it is paused by others, too */
  ck_assert(owner_may(GS_TERM_PAUSED, 1));
  set(GS_TERM_PAUSED, 1, true);
  ck_assert(!owner_may(GS_TERM_PAUSED, 0));
  set(GS_TERM_PAUSED, 0, false);
  ck_assert(!terms_of(&terms).paused);
  set(GS_TERM_PAUSED, 1, true); /* and what was before does not count */
  ck_assert(owner_may(GS_TERM_PAUSED, 0));
  struct gs_msg wrong = order(GS_TERM_PAUSED, 2);
  ck_assert_ptr_nonnull(terms_wrong(&wrong));
}

int main(void) { return suite_run_all("terms", set_up, NULL); }
