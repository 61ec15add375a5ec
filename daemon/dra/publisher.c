/* publisher.c - publishes what it is given, again after each failure, and looks from time to time whether it
 * is there: a kubelet that starts, or that has lost its connection to this driver, removes it. */
#include "dra/publisher.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "dra/claim.h"
#include "dra/slice.h"

#define LOOK_MS (60 * 1000)
#define PAUSE_FIRST_MS 250
#define PAUSE_DOUBLINGS 7 /* up to 32 s */
#define PATH_SIZE 512

/* Of the thread. */
struct work {
  struct publisher *publisher;
  struct api api;
  json_t *devices;       /* as they should be; NULL: nobody has said yet */
  bool fresh;            /* they have not been published */
  char version[64];      /* metadata.resourceVersion of what was published last */
  json_int_t generation; /* of the pool, the last one */
  char node_uid[64];     /* "": not asked yet */
  char name[256], path[PATH_SIZE];
  char why[API_WHY_SIZE];
};

static void read_text(const json_t *object, const char *name, char *to, size_t size) {
  const char *text = json_string_value(json_object_get(json_object_get(object, "metadata"), name));
  snprintf(to, size, "%s", text ? text : "");
}

/* Without it a slice would outlive its node. */
static void find_node(struct work *work) {
  char path[PATH_SIZE];
  json_t *node = NULL;
  if (*work->node_uid)
    return;
  snprintf(path, sizeof path, "/api/v1/nodes/%s", work->publisher->node);
  if (api_call(&work->api, "GET", path, NULL, &node, work->why) == 200)
    read_text(node, "uid", work->node_uid, sizeof work->node_uid);
  else
    log_warn("the slice will not go with its node: %s", work->why);
  json_decref(node);
}

/* Creates the slice, or replaces the one of this version. True: it is published. */
static bool write_slice(struct work *work, const char *version) {
  json_t *answer = NULL;
  find_node(work);
  work->generation++;
  json_t *slice = slice_object(work->name, work->publisher->node, work->node_uid, version, work->generation,
                               work->devices);
  int status = version
                   ? api_call(&work->api, "PUT", work->path, slice, &answer, work->why)
                   : api_call(&work->api, "POST", RESOURCE_API "/resourceslices", slice, &answer, work->why);
  bool done = status == 200 || status == 201;
  if (done) {
    read_text(answer, "resourceVersion", work->version, sizeof work->version);
    log_info("published %zu GPUs, generation %ld", json_array_size(work->devices), (long)work->generation);
  }
  json_decref(slice);
  json_decref(answer);
  return done;
}

static bool remove_slice(struct work *work) {
  int status = api_call(&work->api, "DELETE", work->path, NULL, NULL, work->why);
  if (status == 200 || status == 202)
    log_info("the slice is removed");
  return status == 200 || status == 202 || status == 404;
}

static json_int_t generation_of(const json_t *slice) {
  const json_t *pool = json_object_get(json_object_get(slice, "spec"), "pool");
  return json_integer_value(json_object_get(pool, "generation"));
}

/* False, and why: to be tried again. The server writes numbers in its own way, so what is there is known by
 * its version, not by what it says. */
static bool settle(struct work *work) {
  char version[sizeof work->version];
  json_t *slice = NULL;
  int status = api_call(&work->api, "GET", work->path, NULL, &slice, work->why);
  read_text(slice, "resourceVersion", version, sizeof version);
  if (status == 200 && generation_of(slice) > work->generation)
    work->generation = generation_of(slice);
  json_decref(slice);
  if (status != 200 && status != 404)
    return false;
  if (json_array_size(work->devices) == 0)
    return status == 404 || remove_slice(work);
  if (status == 404)
    return write_slice(work, NULL);
  if (!work->fresh && strcmp(version, work->version) == 0)
    return true;
  return write_slice(work, version);
}

static void take_next(struct work *work) {
  json_t *devices = atomic_exchange(&work->publisher->next, NULL);
  if (!devices)
    return;
  work->fresh |= !work->devices || !json_equal(devices, work->devices);
  json_decref(work->devices);
  work->devices = devices;
}

/* How long to wait then. */
static int try_once(struct work *work, unsigned *failures) {
  if (!work->devices)
    return -1;
  if (settle(work)) {
    if (*failures > 0)
      log_info("the API server takes what is published");
    *failures = 0;
    work->fresh = false;
    return LOOK_MS;
  }
  if (*failures == 0)
    log_warn("not published yet: %s", work->why);
  else
    log_debug("still not published: %s", work->why);
  int pause_ms = PAUSE_FIRST_MS << *failures;
  *failures += *failures < PAUSE_DOUBLINGS;
  return pause_ms;
}

/* So long, -1: for ever; or until there is news, if that counts: after a failure the server may be
 * overloaded. False: it is over. */
static bool pause_for(const struct publisher *publisher, int wait_ms, bool news_count) {
  uint64_t end_ns = clock_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
  struct pollfd wake = {.fd = publisher->wake_fd, .events = POLLIN};
  eventfd_t count;
  for (;;) {
    int ready = poll(&wake, 1, wait_ms);
    if (ready > 0)
      eventfd_read(publisher->wake_fd, &count);
    if (atomic_load(&publisher->stops))
      return false;
    uint64_t now_ns = clock_now_ns();
    if (ready == 0 || (ready > 0 && news_count) || (wait_ms >= 0 && now_ns >= end_ns))
      return true;
    if (wait_ms >= 0)
      wait_ms = (int)((end_ns - now_ns) / NS_PER_MS) + 1;
  }
}

static void *publish(void *argument) {
  struct publisher *publisher = argument;
  struct work work = {.publisher = publisher};
  unsigned failures = 0;
  int wait_ms = -1;
  snprintf(work.name, sizeof work.name, "%s-" DRIVER_NAME, publisher->node);
  snprintf(work.path, sizeof work.path, RESOURCE_API "/resourceslices/%s", work.name);
  if (api_open(&work.api, publisher->access) < 0) {
    log_error("nothing is published: out of memory");
    return NULL;
  }
  while (pause_for(publisher, wait_ms, failures == 0)) {
    take_next(&work);
    wait_ms = try_once(&work, &failures);
  }
  if (publisher->removes && work.devices && !remove_slice(&work))
    log_warn("the slice stays: %s", work.why);
  api_close(&work.api);
  json_decref(work.devices);
  return NULL;
}

int publisher_open(struct publisher *publisher) {
  atomic_init(&publisher->stops, false);
  atomic_init(&publisher->next, NULL);
  publisher->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (publisher->wake_fd < 0)
    return -errno;
  int err = thread_start(&publisher->thread, publish, publisher);
  if (err < 0)
    close(publisher->wake_fd);
  return err;
}

void publisher_look(struct publisher *publisher) { eventfd_write(publisher->wake_fd, 1); }

void publisher_publish(struct publisher *publisher, json_t *devices) {
  json_decref(atomic_exchange(&publisher->next, devices));
  publisher_look(publisher);
}

void publisher_close(struct publisher *publisher) {
  atomic_store(&publisher->stops, true);
  publisher_look(publisher);
  pthread_join(publisher->thread, NULL);
  close(publisher->wake_fd);
  json_decref(atomic_load(&publisher->next));
}
