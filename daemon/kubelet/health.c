/* health.c - the GPUs of this host, by NVML or by the command line, and whether they and the daemon answer:
 * the daemon is asked for its status again and again over one connection, whose end tells at once that it is
 * gone; and a thread asks NVML, and looks whether device files are there. */
#include "kubelet/health.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/wire.h"
#include "shared/nvml.h"
#include "shared/printable.h"

#define PATIENCE_NS (10 * NS_PER_S)
#define RETRY_NS NS_PER_S
#define MESSAGES_PER_TURN 64

/* ---- the GPUs ---- */

int gpus_index(const struct gpus *gpus, const char *uuid, size_t length) {
  for (size_t i = 0; i < gpus->count; i++)
    if (strlen(gpus->at[i].uuid) == length && memcmp(gpus->at[i].uuid, uuid, length) == 0)
      return (int)i;
  return -1;
}

/* A further one, with this UUID in the one way of writing it; NULL: not one, or too many. */
static struct gpu *add_gpu(struct gpus *gpus, const char *uuid) {
  uint8_t bytes[GS_UUID_SIZE];
  if (gpus->count == GPUS_MAX || parse_uuid(uuid, bytes) != 0)
    return NULL;
  struct gpu *gpu = &gpus->at[gpus->count];
  *gpu = (struct gpu){.index = (unsigned)gpus->count, .numa = -1, .healthy = true};
  format_uuid(bytes, gpu->uuid);
  if (gpus_index(gpus, gpu->uuid, strlen(gpu->uuid)) >= 0)
    return NULL;
  gpus->count++;
  return gpu;
}

/* ---- by the command line ---- */

/* UUID[:MEMORY[:DEVICE FILE]]; writes to it. */
static int parse_gpu(struct gpus *gpus, char *word) {
  char *memory = strchr(word, ':'), *node = memory ? strchr(memory + 1, ':') : NULL;
  if (memory)
    *memory++ = '\0';
  if (node)
    *node++ = '\0';
  struct gpu *gpu = add_gpu(gpus, word);
  if (!gpu || (memory && *memory && parse_bytes(memory, &gpu->memory_bytes) != 0) ||
      (node && strlen(node) >= sizeof gpu->node))
    return -EINVAL;
  if (node)
    strcpy(gpu->node, node);
  return 0;
}

int gpus_parse(struct gpus *gpus, const char *text) {
  char *copy = strdup(text), *rest = NULL;
  int err = copy ? 0 : -ENOMEM;
  *gpus = (struct gpus){0};
  for (char *word = copy ? strtok_r(copy, ",", &rest) : NULL; word && err == 0;
       word = strtok_r(NULL, ",", &rest))
    err = parse_gpu(gpus, word);
  if (err == 0 && gpus->count == 0)
    err = -EINVAL;
  free(copy);
  return err;
}

/* ---- by NVML ---- */

/* -1: unknown, as on machines with one node. */
static int read_numa(void *device) {
  char bus[NVML_TEXT_SIZE], path[160];
  int numa = -1;
  if (nvml_bus_id(device, bus) != 0 || strlen(bus) <= 4)
    return -1;
  for (char *c = bus; *c; c++)
    *c = (char)tolower((unsigned char)*c);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus + 4); /* NVML's domain is longer */
  FILE *file = fopen(path, "re");
  if (!file)
    return -1;
  if (fscanf(file, "%d", &numa) != 1)
    numa = -1;
  fclose(file);
  return numa;
}

/* What NVML says, if err is 0, as far as it is printable. */
static void copy_text(char to[GPUS_TEXT_SIZE], int err, const char *text) {
  printable_copy(to, err == 0 ? text : "", GPUS_TEXT_SIZE);
}

static void add_found(struct gpus *gpus, unsigned index) {
  char uuid[NVML_TEXT_SIZE], text[NVML_TEXT_SIZE];
  unsigned minor;
  void *device = nvml_device(index);
  if (!device || nvml_uuid(device, uuid) != 0) {
    log_error("GPU %u does not answer: not shared", index);
    return;
  }
  struct gpu *gpu = add_gpu(gpus, uuid);
  if (!gpu) {
    log_error("GPU %u has the UUID %s: not shared", index, uuid);
    return;
  }
  gpu->nvml = device;
  gpu->index = index;
  copy_text(gpu->product, nvml_name(device, text), text);
  copy_text(gpu->architecture, nvml_architecture(device, text), text);
  gpu->numa = read_numa(device);
  if (nvml_minor(device, &minor) == 0)
    snprintf(gpu->node, sizeof gpu->node, "/dev/nvidia%u", minor);
  if (access(gpu->node, F_OK) != 0)
    *gpu->node = '\0'; /* this container has none: NVML alone tells then */
  if (nvml_memory(device, &gpu->memory_bytes) != 0)
    gpu->memory_bytes = 0;
}

int gpus_find(struct gpus *gpus) {
  char why[NVML_WHY_SIZE];
  int err = nvml_open(NVML_LIBRARY, why);
  *gpus = (struct gpus){0};
  if (err < 0) {
    log_error("no NVIDIA driver to be seen: %s", why);
    return err;
  }
  char text[NVML_TEXT_SIZE];
  unsigned count = nvml_count();
  copy_text(gpus->driver_version, nvml_driver_version(text), text);
  for (unsigned i = 0; i < count; i++)
    add_found(gpus, i);
  if (gpus->count > 0)
    return 0;
  log_error("NVML knows no GPU to share");
  return -ENODEV;
}

/* ---- the daemon ---- */

static void set_answers(struct health *health, bool answers) {
  if (answers == health->daemon_answers)
    return;
  health->daemon_answers = answers;
  if (answers)
    log_info("the daemon answers at %s", health->socket);
  else
    log_warn("no daemon answers at %s: all shares are unhealthy", health->socket);
  health->on_change(health);
}

/* Try again later. */
static void disconnect(struct health *health) {
  loop_remove(health->loop, &health->daemon);
  health->asked = false;
  health->timer.due_ns = clock_now_ns() + (health->interval_ns < RETRY_NS ? health->interval_ns : RETRY_NS);
  set_answers(health, false);
}

static void refuse(struct health *health) {
  if (!health->refused)
    log_error("the daemon at %s is of another version: install the same one", health->socket);
  health->refused = true;
  disconnect(health);
}

static void on_answer(struct source *source, uint32_t events) {
  struct health *health = list_entry(source, struct health, daemon);
  struct gs_msg msg;
  (void)events;
  for (int i = 0; i < MESSAGES_PER_TURN && source->fd >= 0; i++) {
    int err = wire_recv(source->fd, &msg);
    bool rejected = err == 0 && msg.type == GS_REJECTED;
    if (err == -EAGAIN)
      return;
    if (err == -EPROTONOSUPPORT || (rejected && msg.registered.reason != GS_REJECT_LIMIT)) {
      refuse(health);
    } else if (err < 0 || rejected) { /* or it has no room for now */
      disconnect(health);
    } else if (msg.type == GS_STATUS_END) {
      health->asked = health->refused = false;
      health->timer.due_ns = clock_now_ns() + health->interval_ns;
      set_answers(health, true);
    }
  }
}

static int connect_daemon(struct health *health) {
  int fd = wire_connect(health->socket);
  if (fd < 0)
    return fd;
  health->daemon.fd = fd;
  return loop_add(health->loop, &health->daemon, EPOLLIN);
}

/* It has not answered, or is asked anew. */
static void on_due(struct timer *timer, uint64_t now_ns) {
  struct health *health = list_entry(timer, struct health, timer);
  struct gs_msg question = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  (void)now_ns;
  if (health->asked) {
    disconnect(health);
    return;
  }
  int err = health->daemon.fd < 0 ? connect_daemon(health) : 0;
  uint64_t again_ns = wire_connect_again_ns(err, &health->full_since_ns, PATIENCE_NS);
  if (again_ns) {
    timer->due_ns = again_ns;
    return;
  }
  if (err == 0)
    err = wire_send(health->daemon.fd, &question);
  if (err < 0) {
    disconnect(health);
    return;
  }
  health->asked = true;
  timer->due_ns = clock_now_ns() + PATIENCE_NS;
}

/* ---- the GPUs' health ---- */

/* May take long where a driver does not answer. */
static bool gpu_answers(const struct gpu *gpu) {
  uint64_t bytes;
  return (!*gpu->node || access(gpu->node, F_OK) == 0) && (!gpu->nvml || nvml_memory(gpu->nvml, &bytes) == 0);
}

/* Whether any has changed. */
static bool look(struct gpus *gpus) {
  bool changed = false;
  for (size_t i = 0; i < gpus->count; i++) {
    struct gpu *gpu = &gpus->at[i];
    bool healthy = gpu_answers(gpu);
    if (atomic_exchange(&gpu->healthy, healthy) == healthy)
      continue;
    changed = true;
    if (healthy)
      log_info("%s is back", gpu->uuid);
    else
      log_error("%s does not answer: its shares are unhealthy", gpu->uuid);
  }
  return changed;
}

static void *watch_gpus(void *argument) {
  struct health *health = argument;
  struct pollfd stop = {.fd = health->stop_fd, .events = POLLIN};
  while (poll(&stop, 1, (int)(health->interval_ns / NS_PER_MS)) <= 0)
    if (look(health->gpus))
      eventfd_write(health->changed.fd, 1);
  return NULL;
}

static void on_changed(struct source *source, uint32_t events) {
  struct health *health = list_entry(source, struct health, changed);
  eventfd_t count;
  (void)events;
  if (eventfd_read(source->fd, &count) == 0)
    health->on_change(health);
}

int health_open(struct health *health) {
  health->daemon = (struct source){.fd = -1, .on_event = on_answer};
  health->timer = (struct timer){.due_ns = 0, .on_due = on_due};
  loop_add_timer(health->loop, &health->timer);
  health->changed = (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .on_event = on_changed};
  health->stop_fd = eventfd(0, EFD_CLOEXEC);
  if (health->changed.fd < 0 || health->stop_fd < 0)
    return -errno;
  look(health->gpus);
  int err = loop_add(health->loop, &health->changed, EPOLLIN);
  return err < 0 ? err : thread_start(&health->thread, watch_gpus, health);
}

void health_close(struct health *health) {
  eventfd_write(health->stop_fd, 1);
  pthread_join(health->thread, NULL);
  loop_remove(health->loop, &health->changed);
  close(health->stop_fd);
  loop_remove_timer(&health->timer);
  loop_remove(health->loop, &health->daemon);
}
