/* claim.c - reads a ResourceClaim, and says what follows from it. */
#include "dra/claim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"
#include "common/wire.h"

#define PARAMETERS_VERSION DRIVER_NAME "/v1"
#define PARAMETERS_KIND "ShareParameters"

__attribute__((format(printf, 2, 3))) static bool complain(char *why, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, CLAIM_WHY_SIZE, format, arguments);
  va_end(arguments);
  return false;
}

/* "": there is no such text. */
static const char *text_of(const json_t *object, const char *name) {
  const char *text = json_string_value(json_object_get(object, name));
  return text ? text : "";
}

static const json_t *follow(const json_t *object, const char *const *names) {
  for (; *names; names++)
    object = json_object_get(object, *names);
  return object;
}

void device_name(const struct gpu *gpu, char name[DEVICE_NAME_SIZE]) {
  snprintf(name, DEVICE_NAME_SIZE, "gpu-%s", gpu->uuid + (strncmp(gpu->uuid, "GPU-", 4) == 0 ? 4 : 0));
}

bool claim_uid_is_right(const char *uid) {
  size_t size = strlen(uid);
  return size > 0 && size < CLAIM_UID_SIZE && strspn(uid, "0123456789abcdefABCDEF-") == size;
}

/* ---- quantities ---- */

int quantity_parse(const char *text, uint64_t *value) {
  static const struct {
    const char *suffix;
    uint64_t factor;
  } units[] = {
      {"", 1},
      {"k", UINT64_C(1000)},
      {"M", UINT64_C(1000000)},
      {"G", UINT64_C(1000000000)},
      {"T", UINT64_C(1000000000000)},
      {"P", UINT64_C(1000000000000000)},
      {"Ki", UINT64_C(1) << 10},
      {"Mi", UINT64_C(1) << 20},
      {"Gi", UINT64_C(1) << 30},
      {"Ti", UINT64_C(1) << 40},
      {"Pi", UINT64_C(1) << 50},
  };
  size_t digits = strspn(text, "0123456789");
  char number[24];
  int64_t parsed;
  if (digits == 0 || digits >= sizeof number)
    return -EINVAL;
  snprintf(number, sizeof number, "%.*s", (int)digits, text);
  if (parse_integer(number, 0, INT64_MAX, &parsed) != 0)
    return -EINVAL;
  if (strcmp(text + digits, "m") == 0) {
    *value = (uint64_t)parsed / 1000 + (parsed % 1000 > 0);
    return 0;
  }
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strcmp(units[i].suffix, text + digits) == 0)
      return __builtin_mul_overflow((uint64_t)parsed, units[i].factor, value) ? -EINVAL : 0;
  return -EINVAL;
}

/* What the result has of a capacity, which may be named with the driver's domain. 0: nothing is said. */
static bool read_capacity(const json_t *result, const char *name, uint64_t *value, char *why) {
  char full_name[64];
  const json_t *consumed = json_object_get(result, "consumedCapacity");
  snprintf(full_name, sizeof full_name, DRIVER_NAME "/%s", name);
  const json_t *quantity = json_object_get(consumed, name);
  if (!quantity)
    quantity = json_object_get(consumed, full_name);
  *value = 0;
  if (!quantity || (json_is_string(quantity) && quantity_parse(json_string_value(quantity), value) == 0))
    return true;
  return complain(why, "the consumed capacity '%s' is not a quantity that this driver understands", name);
}

/* ---- parameters ---- */

static bool concerns(const json_t *config, const char *request) {
  const json_t *requests = json_object_get(config, "requests"), *name;
  size_t i;
  json_array_foreach(requests, i, name) {
    const char *text = json_string_value(name);
    size_t size = text ? strlen(text) : 0;
    /* A request has alternatives: "gpu/small" is one of "gpu". */
    if (text && strncmp(text, request, size) == 0 && (request[size] == '\0' || request[size] == '/'))
      return true;
  }
  return json_array_size(requests) == 0;
}

/* Whoever makes a claim may take less than it is granted; an administrator, who makes the DeviceClass, may
 * give more. */
static bool read_parameters(const json_t *parameters, bool trusted, struct claim_device *device, char *why) {
  const char *key;
  const json_t *value;
  enum gs_class class;
  if (strcmp(text_of(parameters, "apiVersion"), PARAMETERS_VERSION) != 0 ||
      strcmp(text_of(parameters, "kind"), PARAMETERS_KIND) != 0)
    return complain(why, "opaque parameters must be of apiVersion " PARAMETERS_VERSION
                         " and kind " PARAMETERS_KIND ", this driver knows no others");
  json_object_foreach((json_t *)(uintptr_t)parameters, key, value) {
    if (strcmp(key, "class") == 0) {
      if (!json_is_string(value) || parse_class(json_string_value(value), &class) != 0)
        return complain(why, "parameter 'class' must be " CLASS_NAMES);
      if (class == GS_CLASS_PRODUCTION && !trusted)
        return complain(why, "parameter 'class': production is given by a DeviceClass, not by a claim");
      device->class = class;
    } else if (strcmp(key, "weight") == 0) {
      json_int_t weight = json_integer_value(value);
      if (!json_is_integer(value) || weight < 1 || weight > GS_WEIGHT_MAX)
        return complain(why, "parameter 'weight' must be a number from " WEIGHT_RANGE);
      if (!trusted && weight > device->weight)
        return complain(why,
                        "parameter 'weight': a claim may ask for at most %u, which its share gives it; a "
                        "DeviceClass may give more",
                        device->weight);
      device->weight = (uint32_t)weight;
    } else if (strcmp(key, "apiVersion") != 0 && strcmp(key, "kind") != 0) {
      return complain(why, "opaque parameters have an unknown field '%.60s': known are class and weight",
                      key);
    }
  }
  return true;
}

/* The class' words first, then the claim's, each in its order: later ones count. */
static bool read_configs(const json_t *configs, struct claim_device *device, char *why) {
  static const char *const sources[] = {"FromClass", "FromClaim"};
  const json_t *config;
  size_t i;
  for (size_t source = 0; source < 2; source++)
    json_array_foreach(configs, i, config) {
      const json_t *opaque = json_object_get(config, "opaque");
      if (strcmp(text_of(config, "source"), sources[source]) == 0 &&
          strcmp(text_of(opaque, "driver"), DRIVER_NAME) == 0 && concerns(config, device->request) &&
          !read_parameters(json_object_get(opaque, "parameters"), source == 0, device, why))
        return false;
    }
  return true;
}

/* ---- a claim ---- */

static const struct gpu *find_gpu(const struct gpus *gpus, const char *device) {
  char name[DEVICE_NAME_SIZE];
  for (size_t i = 0; i < gpus->count; i++) {
    device_name(&gpus->at[i], name);
    if (strcmp(name, device) == 0)
      return &gpus->at[i];
  }
  return NULL;
}

/* A share's weight is its percents: what has been granted all of a GPU weighs as an ordinary user. */
static bool read_device(struct claim *claim, const json_t *result, const json_t *configs,
                        const struct gpus *gpus, char *why) {
  uint64_t share_percent;
  if (claim->device_count == CLAIM_DEVICES_MAX)
    return complain(why, "the claim has more than %d devices", CLAIM_DEVICES_MAX);
  struct claim_device *device = &claim->devices[claim->device_count++];
  *device = (struct claim_device){.gpu = find_gpu(gpus, text_of(result, "device")), .class = GS_CLASS_UNSAID};
  snprintf(device->request, sizeof device->request, "%s", text_of(result, "request"));
  if (!device->gpu)
    return complain(why, "the claim has device '%.80s', which this node has not", text_of(result, "device"));
  if (!read_capacity(result, "memory", &device->memory_bytes, why) ||
      !read_capacity(result, "share", &share_percent, why))
    return false;
  device->weight = share_percent == 0              ? GS_WEIGHT_DEFAULT
                   : share_percent < GS_WEIGHT_MAX ? (uint32_t)share_percent
                                                   : GS_WEIGHT_MAX;
  return read_configs(configs, device, why);
}

static bool read_pods(struct claim *claim, char *why) {
  static const char *const path[] = {"status", "reservedFor", NULL};
  const json_t *consumer;
  size_t i;
  json_array_foreach(follow(claim->object, path), i, consumer) {
    const char *uid = text_of(consumer, "uid");
    if (strcmp(text_of(consumer, "resource"), "pods") != 0)
      continue;
    if (claim->pod_count == CLAIM_PODS_MAX || strlen(uid) >= GS_POD_SIZE || !claim_uid_is_right(uid))
      return complain(why, "the claim is reserved for more pods than %d, or for one without a right uid",
                      CLAIM_PODS_MAX);
    claim->pod_names[claim->pod_count] = text_of(consumer, "name");
    strcpy(claim->pods[claim->pod_count++], uid);
  }
  return claim->pod_count > 0 ||
         complain(why, "the claim is reserved for no pod: nobody would be bound by what it was granted");
}

static bool is_shared(const json_t *metadata) {
  const json_t *owner;
  size_t i;
  json_array_foreach(json_object_get(metadata, "ownerReferences"), i, owner) {
    if (strcmp(text_of(owner, "kind"), "Pod") == 0)
      return false;
  }
  return true;
}

static bool read_all(struct claim *claim, const char *pool, const struct gpus *gpus, char *why) {
  static const char *const results_path[] = {"status", "allocation", "devices", "results", NULL},
                           *const configs_path[] = {"status", "allocation", "devices", "config", NULL};
  const json_t *metadata = json_object_get(claim->object, "metadata"), *result;
  size_t i;
  claim->uid = text_of(metadata, "uid");
  claim->namespace = text_of(metadata, "namespace");
  claim->name = text_of(metadata, "name");
  claim->shared = is_shared(metadata);
  if (!claim_uid_is_right(claim->uid))
    return complain(why, "the claim has no right uid");
  json_array_foreach(follow(claim->object, results_path), i, result) {
    if (strcmp(text_of(result, "driver"), DRIVER_NAME) == 0 && strcmp(text_of(result, "pool"), pool) == 0 &&
        !read_device(claim, result, follow(claim->object, configs_path), gpus, why))
      return false;
  }
  if (claim->device_count == 0)
    return complain(why, "the claim is allocated no device of driver " DRIVER_NAME " and pool %.80s", pool);
  return read_pods(claim, why);
}

struct claim *claim_read(json_t *object, const char *pool, const struct gpus *gpus,
                         char why[CLAIM_WHY_SIZE]) {
  struct claim *claim = calloc(1, sizeof *claim);
  if (!claim) {
    complain(why, "out of memory");
    return NULL;
  }
  claim->object = json_incref(object);
  claim->unbound = true;
  list_init(&claim->link);
  if (read_all(claim, pool, gpus, why))
    return claim;
  claim_free(claim);
  return NULL;
}

void claim_free(struct claim *claim) {
  list_remove(&claim->link);
  json_decref(claim->object);
  free(claim);
}

/* ---- its CDI spec ---- */

/* Before version 0.5 of CDI a name begins with a letter. */
void claim_cdi_name(const struct claim *claim, size_t i, char name[CLAIM_NAME_SIZE]) {
  snprintf(name, CLAIM_NAME_SIZE, "claim-%s-%zu", claim->uid, i);
}

/* All of it in each device: a container has any of them, and mounts at one place count once. */
static json_t *container_edits(const struct claim_device *device, const struct container_needs *needs) {
  json_t *mounts = json_array(), *envs = json_array();
  for (size_t i = 0; i < needs->mount_count; i++)
    json_array_append_new(mounts,
                          json_pack("{s:s, s:s, s:[s,s,s,s]}", "containerPath",
                                    needs->mounts[i].container_path, "hostPath", needs->mounts[i].host_path,
                                    "options", "ro", "nosuid", "nodev", "rbind"));
  for (size_t i = 0; i < needs->env_count; i++)
    json_array_append_new(envs, json_sprintf("%s=%s", needs->envs[i].name, needs->envs[i].value));
  if (device->class != GS_CLASS_UNSAID)
    json_array_append_new(envs, json_sprintf("GPUSHARE_CLASS=%s", class_name(device->class)));
  return json_pack("{s:o, s:o}", "mounts", mounts, "env", envs);
}

json_t *claim_cdi_spec(const struct claim *claim, const struct container_terms *terms) {
  const struct container_needs needs = container_needs(terms);
  char name[CLAIM_NAME_SIZE];
  json_t *devices = json_array();
  for (size_t i = 0; i < claim->device_count; i++) {
    claim_cdi_name(claim, i, name);
    json_array_append_new(devices, json_pack("{s:s, s:o}", "name", name, "containerEdits",
                                             container_edits(&claim->devices[i], &needs)));
  }
  return json_pack("{s:s, s:s, s:o}", "cdiVersion", "0.3.0", "kind", CDI_KIND, "devices", devices);
}

/* ---- what pods have ---- */

static bool is_for(const struct claim *claim, const char *pod) {
  for (size_t i = 0; i < claim->pod_count; i++)
    if (strcmp(claim->pods[i], pod) == 0)
      return true;
  return false;
}

static bool is_of(const struct claim *claim, const struct gpu *gpu) {
  for (size_t i = 0; i < claim->device_count; i++)
    if (claim->devices[i].gpu == gpu)
      return true;
  return false;
}

static bool meets_group(const struct list *claims, const struct claim *claim) {
  list_each(node, claims) {
    const struct claim *other = list_entry(node, struct claim, link);
    for (size_t i = 0; i < claim->pod_count && other->together; i++)
      if (is_for(other, claim->pods[i]))
        return true;
  }
  return false;
}

/* Sets `together` of the pod's claims of the GPU, then of those with a pod in common with one that has it. */
static void find_group(const struct list *claims, const char *pod, const struct gpu *gpu) {
  list_each(node, claims) {
    struct claim *claim = list_entry(node, struct claim, link);
    claim->together = is_of(claim, gpu) && is_for(claim, pod);
  }
  for (bool grows = true; grows;) {
    grows = false;
    list_each(node, claims) {
      struct claim *claim = list_entry(node, struct claim, link);
      if (!claim->together && is_of(claim, gpu) && meets_group(claims, claim))
        claim->together = grows = true;
    }
  }
}

/* FNV-1a. */
static uint64_t hash_of(const char *text) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *text; text++)
    hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
  return hash;
}

/* Why one share for a group: the memory of a claim in common would count in each share that it is part of. */
struct gs_msg claims_allotment(const struct list *claims, const char *pod, const struct gpu *gpu) {
  struct gs_msg msg = wire_msg(GS_ALLOT, GS_GPU_ALL);
  bool bounded = true, first = true;
  snprintf(msg.allot.pod, sizeof msg.allot.pod, "%s", pod);
  parse_uuid(gpu->uuid, msg.allot.uuid);
  msg.allot.class = GS_CLASS_UNSAID;
  find_group(claims, pod, gpu);
  list_each(node, claims) {
    const struct claim *claim = list_entry(node, struct claim, link);
    if (!claim->together)
      continue;
    /* The least one: the same for all pods of the group, and it seldom changes as claims come and go. */
    uint64_t of_claim = hash_of(claim->uid);
    if (first || of_claim < msg.allot.share)
      msg.allot.share = of_claim;
    first = false;
    for (size_t i = 0; i < claim->device_count; i++) {
      const struct claim_device *device = &claim->devices[i];
      if (device->gpu != gpu)
        continue;
      bounded &= device->memory_bytes > 0;
      msg.allot.limit_bytes += device->memory_bytes;
      msg.allot.weight += device->weight;
      if (device->class != GS_CLASS_UNSAID && is_for(claim, pod))
        msg.allot.class = device->class;
    }
  }
  if (!bounded)
    msg.allot.limit_bytes = 0;
  if (msg.allot.weight > GS_WEIGHT_MAX)
    msg.allot.weight = GS_WEIGHT_MAX;
  return msg;
}

void claims_unbind(const struct list *claims, const struct claim *claim) {
  for (size_t i = 0; i < claim->device_count; i++)
    for (size_t pod = 0; pod < claim->pod_count; pod++) {
      find_group(claims, claim->pods[pod], claim->devices[i].gpu);
      list_each(node, claims) {
        struct claim *other = list_entry(node, struct claim, link);
        other->unbound |= other->together;
      }
    }
}
