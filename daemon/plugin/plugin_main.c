/* plugin_main.c - gpushare-device-plugin: its command line, and its parts, put together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "kubelet/options.h"
#include "plugin/offer.h"

#define KUBELET_SOCKET "kubelet.sock"
#define FOLDER_WATCHED                                                                                       \
  (IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define FOLDER_GONE (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)

struct options {
  struct node_options node; /* first */
  const char *kubelet_folder;
  unsigned shares, opportunistic_shares; /* of each GPU; 0: there is no such resource */
  const char *class;                     /* of gpushare.io/gpu; NULL: nothing is said */
  struct terms_of_use terms;
};

/* Each takes a value. NULL, or what it should have been. */

static const char *set_placement(void *argument, const char *value) {
  struct options *options = argument;
  bool pack = strcmp(value, "pack") == 0;
  options->terms.placement = pack ? PLACEMENT_PACK : PLACEMENT_SPREAD;
  return pack || strcmp(value, "spread") == 0 ? NULL : "spread or pack";
}

static const char *set_class(void *argument, const char *value) {
  struct options *options = argument;
  enum gs_class class;
  if (parse_class(value, &class) != 0)
    return CLASS_NAMES;
  options->class = value;
  return NULL;
}

static const char *set_kubelet_folder(void *argument, const char *value) {
  struct options *options = argument;
  if (*value != '/' || strlen(value) > sizeof((struct sockaddr_un){0}.sun_path) - 40)
    return "the absolute path of a folder, of at most 68 bytes";
  options->kubelet_folder = value;
  return NULL;
}

/* ---- and what they are called, and mean ---- */

static const struct option_row rows[] = {
    {"shares", "N", "shares of each GPU, as gpushare.io/gpu (default 10)",
     .at = offsetof(struct options, shares), .least = 1, .most = RESOURCE_SHARES_MAX},
    {"opportunistic-shares", "N",
     "as gpushare.io/gpu-opportunistic, beside those (default 0: no such resource)",
     .at = offsetof(struct options, opportunistic_shares), .least = 0, .most = RESOURCE_SHARES_MAX},
    {"class", "CLASS", "of programs with gpushare.io/gpu, unless they say: " CLASS_NAMES, .set = set_class},
    {"placement", "WHERE", "containers spread over the GPUs, or pack few of them (default spread)",
     .set = set_placement},
    {"several", "HOW", "several shares of a container are of the same GPU, or apart (default same)",
     .at = offsetof(struct options, terms.apart), .no = "same", .yes = "apart"},
    {"memory-limit", "HOW", "none, or share: N shares may use N of all parts of the memory (default none)",
     .at = offsetof(struct options, terms.limit_memory), .no = "none", .yes = "share"},
    {"visible", "HOW", "the GPU, by env (NVIDIA_VISIBLE_DEVICES) or cdi (default env)",
     .at = offsetof(struct options, terms.visible_by_cdi), .no = "env", .yes = "cdi"},
    {"kubelet-dir", "DIR", "the kubelet's (default /var/lib/kubelet/device-plugins)",
     .set = set_kubelet_folder},
};

static const struct option_table table = {
    .program = "gpushare-device-plugin",
    .version = GPUSHARE_VERSION " (device plugin API v1beta1)",
    .about = "Tells the kubelet of this node's GPUs, in shares that pods can ask for, and gives their "
             "containers what\ngpushare needs. Stays in the foreground and logs to stderr.",
    .exit_codes = "0 ended by a signal; 1 failure, also if there is no GPU or the kubelet's folder has gone",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* ---- what happens ---- */

struct program {
  struct options options;
  struct loop loop;
  struct source folder; /* the kubelet's: what comes and goes in it */
  struct gpus gpus;
  struct health health;
  char kubelet_socket[108];
  struct offer offers[2]; /* gpushare.io/gpu and, if there is one, gpushare.io/gpu-opportunistic */
  size_t offer_count;     /* of those that are open */
};

static void on_health(struct health *health) {
  struct program *program = list_entry(health, struct program, health);
  for (size_t i = 0; i < program->offer_count; i++)
    offer_refresh(&program->offers[i]);
}

static void on_folder(struct source *source, uint32_t events) {
  struct program *program = list_entry(source, struct program, folder);
  union {
    struct inotify_event event;
    char bytes[4096];
  } buffer;
  (void)events;
  ssize_t size = read(source->fd, &buffer, sizeof buffer);
  for (ssize_t at = 0; at < size;) {
    const struct inotify_event *event = (const void *)(buffer.bytes + at);
    at += (ssize_t)(sizeof *event + event->len);
    if (event->mask & FOLDER_GONE) {
      log_error("%s has gone: this program must be started anew", program->options.kubelet_folder);
      program->loop.exit_code = EXIT_FAILURE;
      return;
    }
    bool anything = event->mask & IN_Q_OVERFLOW || event->len == 0; /* may have happened */
    for (size_t i = 0; i < program->offer_count; i++)
      offer_renew(&program->offers[i], anything || strcmp(event->name, KUBELET_SOCKET) == 0);
  }
}

/* ---- beginning and end ---- */

static int open_folder(struct program *program) {
  const char *path = program->options.kubelet_folder;
  int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  program->folder = (struct source){.fd = fd, .on_event = on_folder};
  snprintf(program->kubelet_socket, sizeof program->kubelet_socket, "%s/" KUBELET_SOCKET, path);
  int err = fd < 0 || inotify_add_watch(fd, path, FOLDER_WATCHED) < 0 ? -errno : 0;
  if (err == 0)
    err = loop_add(&program->loop, &program->folder, EPOLLIN);
  if (err < 0)
    log_error("can't watch %s, the kubelet's folder: %s", path, strerror(-err));
  return err;
}

/* What is looked at comes before those who tell of it. */
static int open_health(struct program *program) {
  program->health = (struct health){.loop = &program->loop,
                                    .gpus = &program->gpus,
                                    .socket = program->options.node.container.socket,
                                    .interval_ns = program->options.node.interval_ns,
                                    .on_change = on_health};
  return health_open(&program->health);
}

static int open_offer(struct program *program, const char *name, const char *socket_name, unsigned shares,
                      const char *class) {
  struct offer *offer = &program->offers[program->offer_count];
  size_t devices = shares * program->gpus.count;
  if (devices > RESOURCE_DEVICES_MAX) {
    log_error("%zu shares of %s are too many: at most %d on all GPUs together", devices, name,
              RESOURCE_DEVICES_MAX);
    return -E2BIG;
  }
  offer->socket_name = socket_name;
  offer->resource = (struct resource){.name = name,
                                      .shares = shares,
                                      .class = class,
                                      .gpus = &program->gpus,
                                      .terms = &program->options.terms,
                                      .daemon_answers = &program->health.daemon_answers};
  int err = offer_open(offer, &program->loop, program->options.kubelet_folder, program->kubelet_socket);
  program->offer_count += err == 0;
  return err;
}

static int open_offers(struct program *program) {
  const struct options *options = &program->options;
  int err = open_offer(program, "gpushare.io/gpu", "gpushare.sock", options->shares, options->class);
  if (err == 0 && options->opportunistic_shares > 0)
    err = open_offer(program, "gpushare.io/gpu-opportunistic", "gpushare-opportunistic.sock",
                     options->opportunistic_shares, "opportunistic");
  return err;
}

static int open_gpus(struct program *program) {
  program->gpus = program->options.node.gpus;
  return program->gpus.count > 0 ? 0 : gpus_find(&program->gpus);
}

static int open_program(struct program *program) {
  int err = open_gpus(program);
  if (err == 0)
    err = loop_open(&program->loop);
  if (err == 0)
    err = loop_add_signals(&program->loop);
  if (err == 0)
    err = open_folder(program);
  if (err == 0)
    err = open_health(program);
  return err == 0 ? open_offers(program) : err;
}

static void close_program(struct program *program) {
  while (program->offer_count > 0)
    offer_close(&program->offers[--program->offer_count]);
  health_close(&program->health);
  loop_remove(&program->loop, &program->folder);
  loop_close(&program->loop);
}

int main(int argc, char **argv) {
  static struct program program;
  program.options = (struct options){
      .node = NODE_OPTIONS_DEFAULT, .kubelet_folder = "/var/lib/kubelet/device-plugins", .shares = 10};
  options_read(&table, &program.options, argc, argv);
  program.options.terms.container = &program.options.node.container;
  log_setup("gpushare-device-plugin", program.options.node.log);
  int err = open_program(&program);
  if (err < 0) {
    log_error("not started: %s", strerror(-err));
    return EXIT_FAILURE;
  }
  log_info("%zu GPUs in %u shares each", program.gpus.count, program.options.shares);
  int code = loop_run(&program.loop);
  close_program(&program);
  return code;
}
