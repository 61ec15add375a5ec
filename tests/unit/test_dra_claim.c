/* test_dra_claim.c - what the DRA driver reads in a ResourceClaim: quantities, and objects of which parts are
 * damaged at random (GPUSHARE_SEED). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/splitmix.h"
#include "dra/claim.h"
#include "suite.h"

#define MIB (UINT64_C(1) << 20)
#define RUNS 20000

static struct gpus gpus;
static uint64_t random_state;

static const char text[] =
    "{\"metadata\":{\"uid\":\"0a-1\",\"namespace\":\"users\",\"name\":\"claim\","
    "\"ownerReferences\":[{\"kind\":\"Pod\"}]},"
    "\"status\":{\"reservedFor\":[{\"resource\":\"pods\",\"uid\":\"0b-1\"},{\"resource\":\"pods\",\"uid\":"
    "\"0b-2\"}],"
    "\"allocation\":{\"devices\":{\"results\":[{\"driver\":\"gpushare.io\",\"pool\":\"node\",\"request\":\"a/"
    "b\","
    "\"device\":\"gpu-00000000-0000-0000-0000-000000000001\","
    "\"consumedCapacity\":{\"memory\":\"8Gi\",\"gpushare.io/share\":\"30\"}}],"
    "\"config\":[{\"source\":\"FromClass\",\"requests\":[\"a\"],\"opaque\":{\"driver\":\"gpushare.io\","
    "\"parameters\":{\"apiVersion\":\"gpushare.io/v1\",\"kind\":\"ShareParameters\",\"weight\":40,"
    "\"class\":\"production\"}}}]}}}}";

static void set_up(void) {
  const char *seed = getenv("GPUSHARE_SEED");
  random_state = seed ? strtoull(seed, NULL, 10) : 1;
  ck_assert_int_eq(gpus_parse(&gpus, "GPU-00000000-0000-0000-0000-000000000001"), 0);
}

static void tear_down(void) {}

static unsigned random_below(unsigned bound) { return (unsigned)(splitmix_next(&random_state) % bound); }

static struct claim *read_text(const char *json, size_t size, char why[CLAIM_WHY_SIZE]) {
  json_t *object = json_loadb(json, size, 0, NULL);
  struct claim *claim = object ? claim_read(object, "node", &gpus, why) : NULL;
  json_decref(object);
  return claim;
}

TEST(quantities_are_those_of_kubernetes) {
  static const struct {
    const char *text;
    uint64_t value;
  } right[] = {{"0", 0},
               {"25", 25},
               {"8Gi", 8192 * MIB},
               {"1536Mi", 1536 * MIB},
               {"2G", 2000000000},
               {"1500m", 2},
               {"3000m", 3},
               {"16Ki", 16384},
               {"7k", 7000},
               {"1Ti", MIB * MIB},
               {"8191Pi", UINT64_C(8191) << 50}};
  static const char *const wrong[] = {
      "", "Gi", "-1", "1.5Gi", "8 Gi", "8GiB", "99999999999999999999999", "20000000Ti", "1e3 "};
  uint64_t value;
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    ck_assert_int_eq(quantity_parse(right[i].text, &value), 0);
    ck_assert_uint_eq(value, right[i].value);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(quantity_parse(wrong[i], &value) != 0, "%s", wrong[i]);
}

TEST(a_claim_says_what_was_granted) {
  char why[CLAIM_WHY_SIZE];
  struct claim *claim = read_text(text, strlen(text), why);
  ck_assert_ptr_nonnull(claim);
  ck_assert(!claim->shared);
  ck_assert_uint_eq(claim->pod_count, 2);
  ck_assert_uint_eq(claim->device_count, 1);
  ck_assert_uint_eq(claim->devices[0].memory_bytes, 8192 * MIB);
  ck_assert_uint_eq(claim->devices[0].weight, 40);
  ck_assert_uint_eq(claim->devices[0].class, GS_CLASS_PRODUCTION);
  claim_free(claim);
}

/* Pods that have the same claims have them together, in whatever order these were prepared. */
TEST(the_share_of_pods_follows_from_their_claims) {
  char other[sizeof text], why[CLAIM_WHY_SIZE];
  strcpy(other, text);
  memcpy(strstr(other, "0a-1"), "0a-2", 4);
  struct list claims, reversed;
  list_init(&claims);
  list_init(&reversed);
  struct claim *of[4];
  for (int i = 0; i < 4; i++) {
    of[i] = read_text(i % 2 ? other : text, strlen(text), why);
    ck_assert_ptr_nonnull(of[i]);
  }
  list_append(&claims, &of[0]->link);
  list_append(&claims, &of[1]->link);
  list_append(&reversed, &of[3]->link);
  list_append(&reversed, &of[2]->link);
  struct gs_msg one = claims_allotment(&claims, "0b-1", &gpus.at[0]),
                two = claims_allotment(&reversed, "0b-2", &gpus.at[0]),
                none = claims_allotment(&claims, "0b-3", &gpus.at[0]);
  ck_assert_uint_eq(one.allot.share, two.allot.share);
  ck_assert_uint_eq(one.allot.limit_bytes, 16384 * MIB);
  ck_assert_uint_eq(none.allot.weight, 0);
  for (int i = 0; i < 4; i++)
    claim_free(of[i]);
}

/* Made of the text: with this uid, one pod or two, and so much memory. From malloc. */
static struct claim *make_claim(const char *uid, const char *pod, const char *other_pod, const char *memory) {
  char why[CLAIM_WHY_SIZE];
  json_error_t error;
  json_t *object = json_loads(text, 0, &error), *status = json_object_get(object, "status");
  json_t *devices = json_object_get(json_object_get(status, "allocation"), "devices");
  json_t *result = json_array_get(json_object_get(devices, "results"), 0);
  json_t *pods = json_pack("[{s:s,s:s},{s:s,s:s}]", "resource", "pods", "uid", pod, "resource",
                           other_pod ? "pods" : "none", "uid", other_pod ? other_pod : "");
  json_object_set_new(json_object_get(object, "metadata"), "uid", json_string(uid));
  json_object_set_new(json_object_get(result, "consumedCapacity"), "memory", json_string(memory));
  json_object_set_new(status, "reservedFor", pods);
  struct claim *claim = claim_read(object, "node", &gpus, why);
  ck_assert_msg(claim != NULL, "%s", why);
  json_decref(object);
  return claim;
}

/* What all shares together may have is what the claims together are granted, whoever is in which claim. */
TEST(no_memory_is_granted_twice) {
  static const char *const memories[] = {"256Mi", "1Gi", "8Gi"};
  for (int run = 0; run < 500; run++) {
    struct list claims;
    struct claim *of[8];
    uint64_t granted = 0, had = 0, shares[8];
    size_t count = 1 + random_below(8), share_count = 0;
    list_init(&claims);
    for (size_t i = 0; i < count; i++) {
      char uid[32], pods[2][32];
      snprintf(uid, sizeof uid, "0a-%zu", i);
      for (size_t pod = 0; pod < 2; pod++)
        snprintf(pods[pod], sizeof pods[pod], "0b-%u", random_below(8));
      of[i] = make_claim(uid, pods[0], random_below(2) ? pods[1] : NULL, memories[random_below(3)]);
      list_append(&claims, &of[i]->link);
      granted += of[i]->devices[0].memory_bytes;
    }
    for (unsigned pod = 0; pod < 8; pod++) {
      char uid[32];
      size_t known = 0;
      snprintf(uid, sizeof uid, "0b-%u", pod);
      struct gs_msg msg = claims_allotment(&claims, uid, &gpus.at[0]);
      while (known < share_count && shares[known] != msg.allot.share)
        known++;
      if (msg.allot.weight == 0 || known < share_count)
        continue;
      shares[share_count++] = msg.allot.share;
      had += msg.allot.limit_bytes;
    }
    ck_assert_uint_eq(had, granted);
    for (size_t i = 0; i < count; i++)
      claim_free(of[i]);
  }
}

/* Of a claim that comes, those that it ties together are told of, no others. */
TEST(a_claim_unbinds_the_group_that_it_ties) {
  struct list claims;
  list_init(&claims);
  struct claim *a = make_claim("0a-1", "0b-1", NULL, "1Gi"), *b = make_claim("0a-2", "0b-2", NULL, "1Gi"),
               *tied_by_b = make_claim("0a-3", "0b-2", "0b-3", "1Gi"),
               *other = make_claim("0a-4", "0b-4", NULL, "1Gi"),
               *common = make_claim("0a-5", "0b-1", "0b-2", "8Gi"), *all[] = {a, b, tied_by_b, other, common};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    list_append(&claims, &all[i]->link);
    all[i]->unbound = false;
  }
  claims_unbind(&claims, common);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    ck_assert_int_eq(all[i]->unbound, all[i] != other);
  list_remove(&common->link);
  a->unbound = tied_by_b->unbound = false;
  claims_unbind(&claims, common); /* which has gone */
  ck_assert(a->unbound && tied_by_b->unbound && !other->unbound);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    claim_free(all[i]);
}

/* Nothing that an object says is a fault; one that is not taken is explained. */
TEST(damaged_objects_are_refused_with_a_reason) {
  char damaged[sizeof text], why[CLAIM_WHY_SIZE];
  unsigned taken = 0;
  for (int i = 0; i < RUNS; i++) {
    strcpy(damaged, text);
    for (unsigned left = 1 + random_below(3); left > 0; left--) {
      size_t at = random_below(sizeof text - 1);
      damaged[at] = random_below(2) ? text[random_below(sizeof text - 1)] : damaged[at + 1];
    }
    *why = '\0';
    json_t *object = json_loadb(damaged, strlen(damaged), 0, NULL);
    struct claim *claim = object ? claim_read(object, "node", &gpus, why) : NULL;
    ck_assert_msg(!object || !claim != !*why, "%s", damaged);
    if (claim)
      json_decref(
          claim_cdi_spec(claim, &(struct container_terms){.socket = "/run/gs/d", .library_folder = "/l"}));
    taken += claim != NULL;
    if (claim)
      claim_free(claim);
    json_decref(object);
  }
  ck_assert_uint_gt(taken, RUNS / 100);
}

int main(void) { return suite_run_all("dra_claim", set_up, tear_down); }
