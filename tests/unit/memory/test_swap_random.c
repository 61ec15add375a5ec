/*
 * test_swap_random.c - contents survive whatever happens, at random. A run is repeated by its seed:
 * GPUSHARE_SEED.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "../suite.h"
#include "common/clock.h"
#include "driver/driver.h"
#include "memory/backend.h"
#include "memory/swap/copies.h"
#include "memory/swap/slabs.h"
#include "memory/swap/swap.h"
#include "swap_world.h"

#define MOST_BYTES (400 * MIB) /* of all allocations together */

struct random {
  uint64_t state;
};

static uint64_t random_next(struct random *random) { /* xorshift64* */
  random->state ^= random->state >> 12;
  random->state ^= random->state << 25;
  random->state ^= random->state >> 27;
  return random->state * UINT64_C(0x2545f4914f6cdd1d);
}

static uint64_t random_below(struct random *random, uint64_t bound) { return random_next(random) % bound; }

/* 1 byte to 200 MiB, small ones as likely as large ones. */
static size_t random_size(struct random *random) {
  uint64_t size = random_next(random) >> (36 + random_below(random, 28));
  return 1 + size % (200 * MIB);
}

static uint64_t seed(void) {
  const char *given = getenv("GPUSHARE_SEED");
  uint64_t value = given ? strtoull(given, NULL, 0) : clock_now_ns() | 1;
  printf("GPUSHARE_SEED=%llu\n", (unsigned long long)value);
  fflush(stdout);
  return value;
}

/* ---- what the program has ---- */

#define SLOTS 64

struct program {
  struct random random;
  struct {
    char *memory;
    size_t bytes;
    uint64_t seed;
    bool filled;
  } slot[SLOTS];
  uint64_t bytes;
};

static void get(struct program *p, size_t i, uint64_t most_bytes) {
  size_t bytes = random_size(&p->random);
  if (p->slot[i].memory || p->bytes + bytes > most_bytes)
    return;
  p->slot[i].memory = world_get(bytes);
  ck_assert_ptr_nonnull(p->slot[i].memory);
  p->slot[i].bytes = bytes;
  p->slot[i].filled = false;
  p->bytes += bytes;
}

static void drop(struct program *p, size_t i) {
  if (!p->slot[i].memory)
    return;
  world_free(p->slot[i].memory);
  p->slot[i].memory = NULL;
  p->bytes -= p->slot[i].bytes;
}

/* In an open space only. What it finds is changed, or not. */
static void touch(struct program *p, size_t i) {
  if (!p->slot[i].memory)
    return;
  if (p->slot[i].filled)
    ck_assert(world_intact(p->slot[i].memory, p->slot[i].bytes, p->slot[i].seed));
  if (p->slot[i].filled && random_below(&p->random, 2))
    return;
  p->slot[i].seed = random_next(&p->random);
  p->slot[i].filled = true;
  world_fill(p->slot[i].memory, p->slot[i].bytes, p->slot[i].seed);
}

static void get_or_drop(struct program *p, uint64_t most_bytes) {
  size_t i = random_below(&p->random, SLOTS);
  if (random_below(&p->random, 3))
    get(p, i, most_bytes);
  else
    drop(p, i);
}

/* ---- one thread ---- */

static void some_steps(struct program *p, uint64_t room_bytes) {
  struct memory_moved moved = {0};
  for (uint64_t left = random_below(&p->random, 12); left; left--)
    backend_swap.step(0, room_bytes, &moved);
}

static void turn(struct program *p) {
  backend_swap.close(0, true);
  copies_set_mode(random_below(&p->random, 4) ? GS_HOST_COPIES_ON : GS_HOST_COPIES_OFF);
  copies_trim(0);
  for (uint64_t left = random_below(&p->random, 6); left; left--) {
    uint64_t room_bytes = random_below(&p->random, MOST_BYTES);
    if (random_below(&p->random, 2))
      some_steps(p, room_bytes);
    else
      ck_assert_int_eq(world_settle(room_bytes, NULL), MEMORY_SETTLED);
    world_check_books();
    get_or_drop(p, MOST_BYTES);
  }
  world_open();
  world_check_books();
}

START_TEST(one_thread) {
  struct program p = {.random.state = seed()};
  world_open();
  for (int i = 0; i < 250; i++) {
    uint64_t what = random_below(&p.random, 10);
    if (what < 6)
      get_or_drop(&p, MOST_BYTES);
    else if (what < 9)
      touch(&p, random_below(&p.random, SLOTS));
    else
      turn(&p);
  }
  for (size_t i = 0; i < SLOTS; i++) {
    touch(&p, i);
    drop(&p, i);
  }
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert_uint_eq(ledger_count(&account_addresses), 0);
  world_check_books();
}
END_TEST

/* ---- several threads, and the GPU's worker ---- */

#define THREADS 3
#define TURNS 25

static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static _Atomic bool ended;
static struct program programs[THREADS];

static bool daemon_grants(uint64_t bytes) {
  if (random_below(&(struct random){bytes}, 2) == 0)
    return false; /* the GPU is being taken away, as far as the client knows */
  world.room_bytes = bytes;
  return true;
}

static void pass_gate(struct program *p) {
  pthread_rwlock_rdlock(&gate);
  for (int i = 0; i < 8; i++)
    touch(p, random_below(&p->random, SLOTS));
  pthread_rwlock_unlock(&gate);
}

static void *run_program(void *argument) {
  struct program *p = argument;
  ck_assert_int_eq(driver.cuCtxPushCurrent_v2(world.context[0]), CUDA_SUCCESS);
  while (!ended) {
    get_or_drop(p, MOST_BYTES / 2 / THREADS);
    get_or_drop(p, MOST_BYTES / 2 / THREADS);
    pass_gate(p);
  }
  for (size_t i = 0; i < SLOTS; i++)
    drop(p, i);
  return NULL;
}

static void open_gate(void) {
  struct memory_moved moved = {0};
  while (!backend_swap.open(0, true, true))
    ck_assert_int_ne(backend_swap.step(0, UINT64_MAX, &moved), MEMORY_FAILED);
  world.room_bytes = backend_swap.resident_bytes(0) + 100 * MIB;
  pthread_rwlock_unlock(&gate);
}

static void work_turn(struct random *random) {
  pthread_rwlock_wrlock(&gate);
  backend_swap.close(0, true);
  uint64_t room_bytes = random_below(random, MOST_BYTES);
  world_settle(room_bytes, NULL);
  open_gate();
  pthread_rwlock_rdlock(&gate); /* let some pass */
  pthread_rwlock_unlock(&gate);
}

START_TEST(several_threads) {
  struct random random = {seed()};
  pthread_t thread[THREADS];
  world.room_wait = daemon_grants;
  pthread_rwlock_wrlock(&gate);
  open_gate();
  for (int i = 0; i < THREADS; i++) {
    programs[i].random.state = random_next(&random);
    ck_assert_int_eq(pthread_create(&thread[i], NULL, run_program, &programs[i]), 0);
  }
  for (int i = 0; i < TURNS; i++)
    work_turn(&random);
  ended = true;
  for (int i = 0; i < THREADS; i++)
    pthread_join(thread[i], NULL);
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  world_check_books();
}
END_TEST

static void setup(void) {
  world_start("small,capacity=1 GiB,scale=0");
  copies_set_mode(GS_HOST_COPIES_ON);
}

int main(void) {
  const TTest *const tests[] = {one_thread, several_threads, NULL};
  return suite_main("swap_random", tests, setup, world_end);
}
