/* test_host_gpus.c - a played /proc/driver/nvidia/gpus. */
#include "server/cards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "suite.h"

/* As the kernel module writes it. */
#define UNKNOWN "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?\?\?\?\?\?\?\?\?"

#define UUID(i) "GPU-0" #i "000000-0000-0000-0000-000000000001"

static char root[] = "/tmp/gpushare-host-XXXXXX";
static char folder[64];
static uint8_t uuids[2][GS_UUID_SIZE];

static void set_up(void) {
  ck_assert_ptr_nonnull(mkdtemp(root));
  snprintf(folder, sizeof folder, "%s/gpus", root);
  ck_assert_int_eq(mkdir(folder, 0755), 0);
}

static void tear_down(void) {
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", root);
  ck_assert_int_eq(system(command), 0);
  strcpy(root, "/tmp/gpushare-host-XXXXXX");
}

/* In MIG mode, as capabilities tell. */
static void split(unsigned minor) {
  char command[160];
  snprintf(command, sizeof command, "mkdir -p %s/capabilities/gpu%u/mig/gi1/ci0", root, minor);
  ck_assert_int_eq(system(command), 0);
}

static void add(const char *gpu, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, gpu);
  ck_assert_int_eq(mkdir(path, 0755), 0);
  strcat(path, "/information");
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static int read_all(void) { return host_gpus_read(folder, uuids, 2); }

TEST(each_gpu_has_a_folder) {
  ck_assert_int_eq(read_all(), 0);
  add("0000:01:00.0", "Model: \t\t H200\nGPU UUID: \t GPU-0a000000-0000-0000-0000-000000000001\nBus: x\n");
  ck_assert_int_eq(read_all(), 1);
  ck_assert_uint_eq(uuids[0][0], 10);
  ck_assert_uint_eq(uuids[0][15], 1);
  add("0000:02:00.0", "GPU UUID: GPU-0b000000-0000-0000-0000-000000000001\n");
  ck_assert_int_eq(read_all(), 2);
  add("0000:03:00.0", "GPU UUID: GPU-0c000000-0000-0000-0000-000000000001\n");
  ck_assert_int_eq(read_all(), -E2BIG);
}

TEST(who_does_not_know_one_knows_nothing) {
  add("0000:01:00.0", "GPU UUID: GPU-0a000000-0000-0000-0000-000000000001\n");
  add("0000:02:00.0", "GPU UUID: " UNKNOWN "\n");
  ck_assert_int_lt(read_all(), 0);
}

TEST(cards_are_in_the_order_of_the_bus) {
  struct cards cards;
  ck_assert_int_eq(host_gpus_cards("/nowhere/at/all", &cards), -ENOENT);
  ck_assert_int_eq(host_gpus_cards(folder, &cards), -ENODATA);
  add("0000:c1:00.0", "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-0a000000-0000-0000-0000-000000000001\n"
                      "Bus Location: \t 0000:c1:00.0\nDevice Minor: \t 7\n");
  add("0000:1b:00.0", "Model: \t\t Odd \x1b[2J\nGPU UUID: \t GPU-0b000000-0000-0000-0000-000000000001\n");
  ck_assert_int_eq(host_gpus_cards(folder, &cards), 0);
  ck_assert_uint_eq(cards.count, 2);
  ck_assert_int_eq(cards.source, CARDS_HOST);
  ck_assert(!cards.partial);
  ck_assert_uint_eq(cards.list[0].uuid[0], 0x0b);
  ck_assert_uint_eq(cards.list[0].number, 0);
  ck_assert_uint_eq(cards.list[0].minor, CARD_MINOR_UNKNOWN);
  ck_assert_str_eq(cards.list[0].name, "Odd ?[2J");
  ck_assert_uint_eq(cards.list[1].number, 1);
  ck_assert_uint_eq(cards.list[1].minor, 7);
  ck_assert_uint_eq(cards.list[1].total_bytes, 0);
  ck_assert_str_eq(cards.list[1].name, "NVIDIA H200");
  ck_assert_str_eq(cards.list[1].bus, "0000:c1:00.0");
}

TEST(a_card_without_a_uuid_is_left_out) {
  struct cards cards;
  add("0000:01:00.0", "Model: H200\nGPU UUID: " UNKNOWN "\n");
  ck_assert_int_eq(host_gpus_cards(folder, &cards), -ENODATA); /* nothing is known */
  add("0000:03:00.0", "GPU UUID: " UUID(a) "\n");
  add("0000:02:00.0", "GPU UUID: GPU-00000000-0000-0000-0000-000000000000\n");
  add("0000:05:00.0", "GPU UUID: " UUID(b) "\n");
  add("0000:04:00.0", "Model: H200\n");
  ck_assert_int_eq(host_gpus_cards(folder, &cards), 0);
  ck_assert(cards.partial);
  ck_assert_uint_eq(cards.count, 2);
  ck_assert_uint_eq(cards.list[0].uuid[0], 0x0a);
  ck_assert_uint_eq(cards.list[0].number, 2); /* as nvidia-smi has it, which sees all */
  ck_assert_uint_eq(cards.list[1].uuid[0], 0x0b);
  ck_assert_uint_eq(cards.list[1].number, 4);
}

TEST(a_card_that_cannot_be_read_is_left_out) {
  struct cards cards;
  char path[96];
  add("0000:01:00.0", "GPU UUID: " UUID(a) "\n");
  snprintf(path, sizeof path, "%s/0000:02:00.0", folder);
  ck_assert_int_eq(mkdir(path, 0755), 0);
  ck_assert_int_eq(host_gpus_cards(folder, &cards), 0);
  ck_assert(cards.partial);
  ck_assert_uint_eq(cards.count, 1);
}

/* The UUIDs of its instances are not told; the others' are. */
TEST(a_card_with_instances_leaves_the_others_as_they_are) {
  struct cards cards;
  add("0000:01:00.0", "GPU UUID: " UUID(a) "\nDevice Minor: \t 1\n");
  add("0000:02:00.0", "GPU UUID: " UUID(b) "\nDevice Minor: \t 0\n");
  split(0);
  ck_assert_int_eq(host_gpus_cards(folder, &cards), 0);
  ck_assert(cards.partial);
  ck_assert_uint_eq(cards.count, 2);
  ck_assert_uint_eq(cards.list[0].split, 0);
  ck_assert_uint_eq(cards.list[1].split, 1);
}

/* By its minor: any may be the one that has instances. */
TEST(a_card_without_a_minor_may_have_instances) {
  struct cards cards;
  add("0000:01:00.0", "GPU UUID: " UUID(a) "\nDevice Minor: \t 1\n");
  add("0000:02:00.0", "GPU UUID: " UUID(b) "\n");
  split(1);
  ck_assert_int_eq(host_gpus_cards(folder, &cards), 0);
  ck_assert_uint_eq(cards.list[0].split, 1);
  ck_assert_uint_eq(cards.list[1].split, 1);
}

TEST(nothing_need_be_there) {
  ck_assert_int_eq(host_gpus_read("/nowhere/at/all", uuids, 2), -ENOENT);
  add("0000:01:00.0", "Model: H200\n");
  ck_assert_int_eq(read_all(), -ENODATA);
}

int main(void) { return suite_run_all("host_gpus", set_up, tear_down); }
