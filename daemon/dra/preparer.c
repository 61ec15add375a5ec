/* preparer.c - prepares claims, each by itself: asks the API server what was granted, tells the daemon that
 * before any container starts, keeps it, and gives containers what they need by CDI. Each step may be
 * repeated, and what has failed is asked for again by the kubelet. */
#include "dra/preparer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/wire.h"
#include "dra.pb-c.h"
#include "dra/slice.h"

#define WHY_SIZE 400
#define CLAIMS_MAX 256 /* in one request */
#define DAEMON_PATIENCE_NS (5 * NS_PER_S)
#define PATH_SIZE 1024

static struct claim *find_claim(const struct preparer *preparer, const char *uid) {
  list_each(node, &preparer->claims) {
    struct claim *claim = list_entry(node, struct claim, link);
    if (strcmp(claim->uid, uid) == 0)
      return claim;
  }
  return NULL;
}

/* ---- the daemon ---- */

/* 0: it is done. 1: the daemon refuses, and why. -errno: it does not answer, and why. */
static int ask_daemon(int fd, const struct gs_msg *question, char why[WHY_SIZE]) {
  uint64_t end_ns = clock_now_ns() + DAEMON_PATIENCE_NS, now_ns;
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  struct gs_msg answer;
  int err = wire_send(fd, question);
  if (err == 0)
    err = -EAGAIN;
  while (err == -EAGAIN && (now_ns = clock_now_ns()) < end_ns &&
         poll(&readable, 1, (int)((end_ns - now_ns) / NS_PER_MS) + 1) >= 0)
    err = wire_recv(fd, &answer);
  if (err == 0 && answer.type != GS_REPLY)
    err = -EPROTO;
  if (err < 0)
    snprintf(why, WHY_SIZE, "the daemon does not take what was granted: %s", strerror(-err));
  else if (answer.status < 0)
    snprintf(why, WHY_SIZE, "the daemon refuses what was granted: %s", answer.reply.text);
  return err < 0 ? err : answer.status < 0;
}

static int connect_daemon(const struct preparer *preparer, char why[WHY_SIZE]) {
  const char *socket = preparer->store.container->socket;
  int fd = wire_connect_patiently(socket, DAEMON_PATIENCE_NS);
  if (fd < 0)
    snprintf(why, WHY_SIZE, "no daemon answers at %s: %s", socket, strerror(-fd));
  return fd;
}

/* Tells what each pod of the claim has of each of its GPUs, by all claims that are prepared now. As
 * ask_daemon. */
static int allot_over(int fd, const struct preparer *preparer, struct claim *claim, char why[WHY_SIZE]) {
  int err = 0;
  for (size_t pod = 0; pod < claim->pod_count; pod++)
    for (size_t i = 0; i < claim->device_count && err == 0; i++) {
      struct gs_msg msg = claims_allotment(&preparer->claims, claim->pods[pod], claim->devices[i].gpu);
      err = ask_daemon(fd, &msg, why);
    }
  claim->unbound = err != 0;
  claim->unnamed |= err == 0;
  return err;
}

/* Names are for people: whether the daemon knows them, or is an older one that hangs up, changes nothing. */
static void name_pods_over(int fd, struct claim *claim) {
  char why[WHY_SIZE];
  int err = 0;
  for (size_t pod = 0; claim->unnamed && pod < claim->pod_count && err == 0; pod++) {
    struct gs_msg msg = wire_msg(GS_POD_NAMESPACE, GS_GPU_ALL);
    memcpy(msg.pod.pod, claim->pods[pod], sizeof msg.pod.pod);
    snprintf(msg.pod.text, sizeof msg.pod.text, "%s", claim->namespace);
    err = ask_daemon(fd, &msg, why);
    msg.type = GS_POD_NAME;
    snprintf(msg.pod.text, sizeof msg.pod.text, "%s", claim->pod_names[pod]);
    if (err == 0)
      err = ask_daemon(fd, &msg, why);
  }
  claim->unnamed = false;
}

static int allot(const struct preparer *preparer, struct claim *claim, char why[WHY_SIZE]) {
  int fd = connect_daemon(preparer, why);
  if (fd < 0)
    return fd;
  int err = allot_over(fd, preparer, claim, why);
  name_pods_over(fd, claim);
  close(fd);
  return err;
}

/* Each failure is said once. */
static void note_bind(struct claim *claim, int err, const char *why) {
  if (err != 0)
    log_line(claim->bind_failed ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR, "claim %s/%s is not bound yet: %s",
             claim->namespace, claim->name, why);
  claim->bind_failed = err != 0;
}

void preparer_bind(const struct preparer *preparer) {
  char why[WHY_SIZE];
  int fd = -1, err = 0;
  list_each(node, &preparer->claims) {
    struct claim *claim = list_entry(node, struct claim, link);
    if (!claim->unbound)
      continue;
    if (fd < 0)
      err = fd = connect_daemon(preparer, why);
    if (fd >= 0)
      err = allot_over(fd, preparer, claim, why);
    note_bind(claim, err, why);
    if (err < 0) /* the others would wait as long */
      break;
  }
  if (fd < 0)
    return;
  list_each(node, &preparer->claims) name_pods_over(fd, list_entry(node, struct claim, link));
  close(fd);
}

void preparer_bind_all(const struct preparer *preparer) {
  list_each(node, &preparer->claims) list_entry(node, struct claim, link)->unbound = true;
  preparer_bind(preparer);
}

/* A claim that is in no list any more: its pods have what other claims give them. No container has it: nobody
 * is unbound by what the daemon does not hear. */
static void let_go(const struct preparer *preparer, struct claim *claim) {
  char why[WHY_SIZE];
  claims_unbind(&preparer->claims, claim);
  int err = allot(preparer, claim, why);
  if (err != 0)
    log_warn("the daemon is not told what pods of claim %s/%s have no more: %s", claim->namespace,
             claim->name, why);
  if (err >= 0)
    preparer_bind(preparer);
  claim_free(claim);
}

static void forget(const struct preparer *preparer, struct claim *claim) {
  list_remove(&claim->link);
  let_go(preparer, claim);
}

/* ---- the API server ---- */

/* Names of Kubernetes need no escaping in a path: others are refused. */
static bool is_name(const char *text) {
  size_t size = strlen(text);
  return size > 0 && size < CLAIM_NAME_SIZE &&
         strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == size && text[0] != '.';
}

/* As the API server has it now; NULL and why. *reached: the server has answered. */
static struct claim *fetch_claim(struct preparer *preparer, const char *namespace, const char *name,
                                 const char *uid, bool *reached, char why[WHY_SIZE]) {
  char path[PATH_SIZE];
  json_t *object = NULL;
  struct claim *claim = NULL;
  snprintf(path, sizeof path, RESOURCE_API "/namespaces/%s/resourceclaims/%s", namespace, name);
  int status = api_call(&preparer->api, "GET", path, NULL, &object, why);
  *reached = status > 0;
  if (status == 200)
    claim = claim_read(object, preparer->node, preparer->gpus, why);
  json_decref(object);
  if (!claim || strcmp(claim->uid, uid) == 0)
    return claim;
  snprintf(why, WHY_SIZE, "the claim was made anew: its uid is %s now", claim->uid);
  claim_free(claim);
  return NULL;
}

/* ---- pods that come to a shared claim ---- */

static bool has_same_pods(const struct claim *a, const struct claim *b) {
  return a->pod_count == b->pod_count && memcmp(a->pods, b->pods, a->pod_count * sizeof a->pods[0]) == 0;
}

/* False: the API server can't be reached. Each failure is said once. */
static bool look_for_pods(struct preparer *preparer, struct claim *claim) {
  char why[WHY_SIZE];
  bool reached;
  struct claim *now = fetch_claim(preparer, claim->namespace, claim->name, claim->uid, &reached, why);
  if (!now)
    log_line(claim->look_failed ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "can't look for pods of claim %s/%s: %s",
             claim->namespace, claim->name, why);
  claim->look_failed = !now;
  if (!now)
    return reached;
  if (has_same_pods(claim, now)) {
    claim_free(now);
    return true;
  }
  list_append(&claim->link, &now->link); /* in its place */
  list_remove(&claim->link);
  int err = store_put(&preparer->store, now);
  if (err < 0)
    log_error("can't write the files of claim %s/%s: %s", now->namespace, now->name, strerror(-err));
  claims_unbind(&preparer->claims, now);
  let_go(preparer, claim); /* the daemon is told who has left */
  return true;
}

void preparer_look_for_pods(struct preparer *preparer) {
  for (struct list *node = preparer->claims.next, *next; node != &preparer->claims; node = next) {
    struct claim *claim = list_entry(node, struct claim, link);
    next = node->next;
    if (claim->shared && !look_for_pods(preparer, claim))
      return;
  }
}

/* ---- prepare ---- */

static struct claim *prepare(struct preparer *preparer, const Dra__Claim *asked, char why[WHY_SIZE]) {
  if (!claim_uid_is_right(asked->uid) || !is_name(asked->namespace_) || !is_name(asked->name)) {
    snprintf(why, WHY_SIZE, "the claim has no right uid, namespace and name");
    return NULL;
  }
  struct claim *claim = find_claim(preparer, asked->uid);
  bool known = claim, reached;
  if (known && claim->shared) {
    look_for_pods(preparer, claim);
    claim = find_claim(preparer, asked->uid);
  }
  if (!known && !(claim = fetch_claim(preparer, asked->namespace_, asked->name, asked->uid, &reached, why)))
    return NULL;
  if (!known)
    list_append(&preparer->claims, &claim->link);
  claims_unbind(&preparer->claims, claim);
  int err = allot(preparer, claim, why);
  if (err != 0) {
    if (!known)
      claim_free(claim);
    return NULL;
  }
  preparer_bind(preparer);
  if ((err = store_put(&preparer->store, claim)) < 0) {
    snprintf(why, WHY_SIZE, "can't write the files of the claim: %s", strerror(-err));
    if (!known) {
      store_remove(&preparer->store, claim->uid);
      forget(preparer, claim);
    }
    return NULL;
  }
  log_info("claim %s/%s is prepared", claim->namespace, claim->name);
  return claim;
}

static void describe(const struct preparer *preparer, const struct claim *claim,
                     Dra__NodePrepareResourceResponse *response, struct scratch *scratch) {
  char name[CLAIM_NAME_SIZE], device[DEVICE_NAME_SIZE];
  response->devices = scratch_make_all(scratch, &dra__device__descriptor, claim->device_count);
  for (size_t i = 0; response->devices && i < claim->device_count; i++) {
    Dra__Device *described = response->devices[response->n_devices++];
    described->request_names = scratch_take(scratch, 1, sizeof *described->request_names);
    described->cdi_device_ids = scratch_take(scratch, 2, sizeof *described->cdi_device_ids);
    if (!described->request_names || !described->cdi_device_ids)
      return;
    claim_cdi_name(claim, i, name);
    device_name(claim->devices[i].gpu, device);
    described->request_names[described->n_request_names++] =
        scratch_print(scratch, "%s", claim->devices[i].request);
    described->pool_name = scratch_print(scratch, "%s", preparer->node);
    described->device_name = scratch_print(scratch, "%s", device);
    described->cdi_device_ids[described->n_cdi_device_ids++] = scratch_print(scratch, CDI_KIND "=%s", name);
    described->cdi_device_ids[described->n_cdi_device_ids++] =
        scratch_print(scratch, "nvidia.com/gpu=%s", claim->devices[i].gpu->uuid);
  }
}

static const struct grpc_result too_many = {GRPC_INVALID_ARGUMENT, "too many claims"};

static struct grpc_result prepare_all(void *context, const ProtobufCMessage *request, struct scratch *scratch,
                                      ProtobufCMessage **answer) {
  struct preparer *preparer = context;
  const Dra__NodePrepareResourcesRequest *asked = (const void *)request;
  char why[WHY_SIZE];
  if (asked->n_claims > CLAIMS_MAX)
    return too_many;
  Dra__NodePrepareResourcesResponse *response =
      scratch_make(scratch, &dra__node_prepare_resources_response__descriptor);
  Dra__PreparedEntry **entries = scratch_make_all(scratch, &dra__prepared_entry__descriptor, asked->n_claims);
  if (!response || !entries)
    return rpc_no_memory;
  response->claims = entries;
  for (size_t i = 0; i < asked->n_claims; i++) {
    Dra__PreparedEntry *entry = response->claims[response->n_claims++];
    entry->key = asked->claims[i]->uid;
    entry->value = scratch_make(scratch, &dra__node_prepare_resource_response__descriptor);
    if (!entry->value)
      return rpc_no_memory;
    const struct claim *claim = prepare(preparer, asked->claims[i], why);
    if (claim) {
      describe(preparer, claim, entry->value, scratch);
    } else {
      log_warn("claim %s/%s is not prepared: %s", asked->claims[i]->namespace_, asked->claims[i]->name, why);
      entry->value->error = scratch_print(scratch, "%s", why);
    }
  }
  *answer = &response->base;
  return rpc_done;
}

/* ---- and its undo ---- */

static int unprepare(const struct preparer *preparer, const char *uid, char why[WHY_SIZE]) {
  if (!claim_uid_is_right(uid)) {
    snprintf(why, WHY_SIZE, "the claim has no right uid");
    return -EINVAL;
  }
  int err = store_remove(&preparer->store, uid);
  if (err < 0) {
    snprintf(why, WHY_SIZE, "can't remove the files of the claim: %s", strerror(-err));
    return err;
  }
  struct claim *claim = find_claim(preparer, uid);
  if (!claim)
    return 0;
  log_info("claim %s/%s is prepared no more", claim->namespace, claim->name);
  forget(preparer, claim);
  return 0;
}

static struct grpc_result unprepare_all(void *context, const ProtobufCMessage *request,
                                        struct scratch *scratch, ProtobufCMessage **answer) {
  struct preparer *preparer = context;
  const Dra__NodeUnprepareResourcesRequest *asked = (const void *)request;
  char why[WHY_SIZE];
  if (asked->n_claims > CLAIMS_MAX)
    return too_many;
  Dra__NodeUnprepareResourcesResponse *response =
      scratch_make(scratch, &dra__node_unprepare_resources_response__descriptor);
  Dra__UnpreparedEntry **entries =
      scratch_make_all(scratch, &dra__unprepared_entry__descriptor, asked->n_claims);
  if (!response || !entries)
    return rpc_no_memory;
  response->claims = entries;
  for (size_t i = 0; i < asked->n_claims; i++) {
    Dra__UnpreparedEntry *entry = response->claims[response->n_claims++];
    entry->key = asked->claims[i]->uid;
    entry->value = scratch_make(scratch, &dra__node_unprepare_resource_response__descriptor);
    if (!entry->value)
      return rpc_no_memory;
    if (unprepare(preparer, asked->claims[i]->uid, why) < 0)
      entry->value->error = scratch_print(scratch, "%s", why);
  }
  *answer = &response->base;
  return rpc_done;
}

/* ---- registration ---- */

static struct grpc_result get_info(void *context, const ProtobufCMessage *request, struct scratch *scratch,
                                   ProtobufCMessage **answer) {
  static char v1[] = "v1.DRAPlugin", v1beta1[] = "v1beta1.DRAPlugin", *versions[] = {v1, v1beta1};
  const struct preparer *preparer = context;
  Dra__PluginInfo *info = scratch_make(scratch, &dra__plugin_info__descriptor);
  (void)request;
  if (!info)
    return rpc_no_memory;
  info->type = scratch_print(scratch, "DRAPlugin");
  info->name = scratch_print(scratch, DRIVER_NAME);
  info->endpoint = scratch_print(scratch, "%s", preparer->endpoint);
  info->supported_versions = versions;
  info->n_supported_versions = sizeof versions / sizeof *versions;
  *answer = &info->base;
  return rpc_done;
}

static struct grpc_result note_registration(void *context, const ProtobufCMessage *request,
                                            struct scratch *scratch, ProtobufCMessage **answer) {
  struct preparer *preparer = context;
  const Dra__RegistrationStatus *status = (const void *)request;
  Dra__RegistrationStatusResponse *nothing =
      scratch_make(scratch, &dra__registration_status_response__descriptor);
  if (!nothing)
    return rpc_no_memory;
  if (status->plugin_registered) {
    log_info("the kubelet has registered this driver");
    preparer->on_registered(preparer);
  } else {
    log_error("the kubelet does not register this driver: %s", status->error);
  }
  *answer = &nothing->base;
  return rpc_done;
}

/* ---- the table ---- */

#define V1 "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define V1BETA1 "/v1beta1.DRAPlugin/"

static const struct rpc_method methods[] = {
    {"/pluginregistration.Registration/GetInfo", &dra__info_request__descriptor, get_info, false},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", &dra__registration_status__descriptor,
     note_registration, false},
    {V1 "NodePrepareResources", &dra__node_prepare_resources_request__descriptor, prepare_all, false},
    {V1 "NodeUnprepareResources", &dra__node_unprepare_resources_request__descriptor, unprepare_all, false},
    {V1BETA1 "NodePrepareResources", &dra__node_prepare_resources_request__descriptor, prepare_all, false},
    {V1BETA1 "NodeUnprepareResources", &dra__node_unprepare_resources_request__descriptor, unprepare_all,
     false},
};

struct rpc_service preparer_service(struct preparer *preparer) {
  return (struct rpc_service){methods, sizeof methods / sizeof *methods, preparer};
}

int preparer_open(struct preparer *preparer) {
  list_init(&preparer->claims);
  int err = store_open(&preparer->store);
  return err == 0 ? store_load(&preparer->store, preparer->node, preparer->gpus, &preparer->claims) : err;
}

void preparer_close(struct preparer *preparer) {
  while (!list_empty(&preparer->claims))
    claim_free(list_entry(list_first(&preparer->claims), struct claim, link));
}
