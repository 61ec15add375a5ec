/* test_ledger.c - the ledger against a naive model, and its promises to threads. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../suite.h"
#include "memory/ledger.h"

static struct ledger ledger = LEDGER(LOCK_ACCOUNT);

static struct allocation range(uint64_t base, uint64_t span) {
  return (struct allocation){.base = base, .span = span, .bytes = span};
}

static void insert(uint64_t base, uint64_t span) {
  struct allocation new = range(base, span);
  ck_assert_int_eq(ledger_insert(&ledger, &new, NULL, NULL), 0);
}

/* The model: one owner per key. */

#define KEYS 512

static uint64_t owner[KEYS]; /* base + 1 of the range that holds the key; 0: none */
static uint64_t stale_count;

static void model_remove(uint64_t base) {
  for (int key = 0; key < KEYS; key++)
    if (owner[key] == base + 1)
      owner[key] = 0;
}

static void on_stale(const struct allocation *gone, void *argument) {
  (void)argument;
  ck_assert_uint_eq(owner[gone->base], gone->base + 1);
  model_remove(gone->base);
  stale_count++;
}

static void random_insert(void) {
  uint64_t base = (uint64_t)rand() % KEYS, span = 1 + (uint64_t)rand() % 12;
  if (base + span > KEYS)
    return;
  struct allocation new = range(base, span);
  ck_assert_int_eq(ledger_insert(&ledger, &new, on_stale, NULL), 0);
  for (uint64_t key = base; key < base + span; key++) {
    ck_assert_uint_eq(owner[key], 0); /* all that was in the way has been reported */
    owner[key] = base + 1;
  }
}

static void random_take(void) {
  uint64_t base = (uint64_t)rand() % KEYS;
  struct allocation taken;
  bool expected = owner[base] == base + 1;
  ck_assert_int_eq(ledger_take(&ledger, base, &taken), expected);
  if (expected) {
    ck_assert_uint_eq(taken.base, base);
    model_remove(base);
  }
}

static void compare_all(void) {
  size_t ranges = 0;
  for (uint64_t key = 0; key < KEYS; key++) {
    struct allocation found;
    ck_assert_int_eq(ledger_find(&ledger, key, &found), owner[key] != 0);
    if (owner[key])
      ck_assert_uint_eq(found.base + 1, owner[key]);
    ranges += owner[key] == key + 1;
  }
  ck_assert_uint_eq(ledger_count(&ledger), ranges);
}

START_TEST(random_operations_match_a_model) {
  unsigned seed = (unsigned)time(NULL) * 2654435761u + (unsigned)_i;
  const char *given = getenv("SEED");
  seed = given ? (unsigned)strtoul(given, NULL, 0) : seed;
  printf("ledger: SEED=%u\n", seed);
  fflush(stdout);
  srand(seed);
  for (int step = 0; step < 4000; step++) {
    if (rand() % 3)
      random_insert();
    else
      random_take();
    if (step % 100 == 0)
      compare_all();
  }
  compare_all();
  ck_assert_uint_gt(stale_count, 0);
}
END_TEST

START_TEST(ends_of_the_address_space) {
  insert(UINT64_MAX, 1);
  insert(0, 1);
  ck_assert(ledger_find(&ledger, UINT64_MAX, NULL));
  ck_assert(!ledger_find(&ledger, UINT64_MAX - 1, NULL));
  ck_assert(!ledger_find(&ledger, 1, NULL));
  struct allocation *copy;
  size_t count;
  ck_assert_int_eq(ledger_snapshot(&ledger, NULL, NULL, &copy, &count), 0);
  ck_assert_uint_eq(count, 2);
  ck_assert_uint_eq(copy[0].base, 0);
  free(copy);
}
END_TEST

START_TEST(inner_addresses_find_but_do_not_take) {
  struct allocation found;
  insert(1000, 100);
  ck_assert(ledger_find(&ledger, 1099, &found));
  ck_assert_uint_eq(found.base, 1000);
  ck_assert(!ledger_find(&ledger, 1100, NULL));
  ck_assert(!ledger_take(&ledger, 1050, &found));
}
END_TEST

static void count_gone(const struct allocation *gone, void *argument) {
  (void)gone;
  ++*(int *)argument;
}

START_TEST(a_context_takes_its_own_along) {
  CUcontext first = (CUcontext)&ledger, second = (CUcontext)&stale_count;
  for (uint64_t i = 0; i < 1000; i++) {
    struct allocation new = range(i * 10, 5);
    new.context = i % 3 ? first : second;
    ck_assert_int_eq(ledger_insert(&ledger, &new, NULL, NULL), 0);
  }
  int gone = 0;
  ledger_remove_context(&ledger, first, count_gone, &gone);
  ck_assert_int_eq(gone, 666);
  ck_assert_uint_eq(ledger_count(&ledger), 334);
  ck_assert(ledger_find(&ledger, 0, NULL));
  ck_assert(!ledger_find(&ledger, 10, NULL));
}
END_TEST

/* Threads. */

static atomic_int taken_flag;

static void *take_1000(void *argument) {
  struct allocation *taken = argument;
  ck_assert(ledger_take(&ledger, 1000, taken));
  atomic_store(&taken_flag, 1);
  return NULL;
}

START_TEST(a_pin_holds_a_take_up) {
  struct allocation pinned, taken, other;
  pthread_t thread;
  insert(1000, 100);
  insert(2000, 100);
  ck_assert(ledger_find(&ledger, 1000, &pinned));
  ck_assert(ledger_pin(&ledger, 1000, pinned.sequence, &pinned));
  pthread_create(&thread, NULL, take_1000, &taken);
  while (ledger_pin(&ledger, 1000, pinned.sequence, &other)) { /* until the taker has announced itself */
    ledger_unpin(&ledger, 1000, 0);
    suite_pause();
  }
  ck_assert_int_eq(atomic_load(&taken_flag), 0);
  ck_assert(ledger_take(&ledger, 2000, &other)); /* others are not held up */
  ck_assert(ledger_find(&ledger, 1000, NULL));
  ledger_unpin(&ledger, 1000, 64);
  pthread_join(thread, NULL);
  ck_assert_uint_eq(taken.away_bytes, 64);
  ck_assert(!ledger_find(&ledger, 1000, NULL));
}
END_TEST

START_TEST(a_pin_tells_successors_apart) {
  struct allocation first, taken, pinned;
  insert(1000, 100);
  ck_assert(ledger_find(&ledger, 1000, &first));
  ck_assert(ledger_take(&ledger, 1000, &taken));
  insert(1000, 100);
  ck_assert(!ledger_pin(&ledger, 1000, first.sequence, &pinned));
}
END_TEST

#define WORKERS 4

static void *churn(void *argument) {
  uint64_t first = (uint64_t)(uintptr_t)argument << 20;
  for (uint64_t round = 0; round < 200; round++) {
    struct allocation taken;
    for (uint64_t i = 0; i < 20; i++) {
      struct allocation new = range(first + i * 8, 8);
      ck_assert_int_eq(ledger_insert(&ledger, &new, NULL, NULL), 0);
    }
    for (uint64_t i = 0; i < 20; i++)
      ck_assert(ledger_take(&ledger, first + i * 8, &taken));
  }
  return NULL;
}

static atomic_int churning;

static void *move_about(void *argument) {
  (void)argument;
  while (atomic_load(&churning)) {
    struct allocation *list, pinned;
    size_t count;
    ck_assert_int_eq(ledger_snapshot(&ledger, NULL, NULL, &list, &count), 0);
    for (size_t i = 0; i < count; i++)
      if (ledger_pin(&ledger, list[i].base, list[i].sequence, &pinned)) {
        ck_assert_uint_eq(pinned.sequence, list[i].sequence);
        ledger_unpin(&ledger, list[i].base, pinned.away_bytes ^ 1);
      }
    free(list);
  }
  return NULL;
}

START_TEST(frees_race_with_a_mover) {
  pthread_t workers[WORKERS], mover;
  atomic_store(&churning, 1);
  pthread_create(&mover, NULL, move_about, NULL);
  for (uintptr_t i = 0; i < WORKERS; i++)
    pthread_create(&workers[i], NULL, churn, (void *)(i + 1));
  for (int i = 0; i < WORKERS; i++)
    pthread_join(workers[i], NULL);
  atomic_store(&churning, 0);
  pthread_join(mover, NULL);
  ck_assert_uint_eq(ledger_count(&ledger), 0);
}
END_TEST

START_TEST(a_forked_child_starts_empty) {
  static struct ledger_node *volatile parents; /* what the child abandons is not a leak */
  insert(1000, 100);
  parents = ledger.root;
  pthread_mutex_lock(&ledger.lock.mutex); /* as if another thread had held it at the fork */
  ledger_fork_child(&ledger);
  ck_assert_uint_eq(ledger_count(&ledger), 0);
  ck_assert_ptr_nonnull(parents);
  insert(1000, 100);
  ck_assert(ledger_find(&ledger, 1050, NULL));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ledger");
  TCase *cases = tcase_create("ledger");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_loop_test(cases, random_operations_match_a_model, 0, 5);
  tcase_add_test(cases, ends_of_the_address_space);
  tcase_add_test(cases, inner_addresses_find_but_do_not_take);
  tcase_add_test(cases, a_context_takes_its_own_along);
  tcase_add_test(cases, a_pin_holds_a_take_up);
  tcase_add_test(cases, a_pin_tells_successors_apart);
  tcase_add_test(cases, frees_race_with_a_mover);
  tcase_add_test(cases, a_forked_child_starts_empty);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
