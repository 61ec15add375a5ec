/* plugin_main.c - gpushare-device-plugin: its parts, put together. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "common/log.h"
#include "plugin/daemon_link.h"
#include "plugin/folder.h"
#include "plugin/offer.h"
#include "plugin/options.h"
#include "plugin/watch.h"

#define KUBELET_SOCKET "kubelet.sock"

struct program {
  struct options options;
  struct loop loop;
  struct source signals;
  struct gpus gpus;
  struct watch watch;
  struct daemon_link daemon;
  struct folder folder;
  char kubelet_socket[108];
  struct offer offers[2]; /* gpushare.io/gpu and, if there is one, gpushare.io/gpu-opportunistic */
  size_t offer_count;     /* of those that are open */
};

/* ---- what happens ---- */

static void refresh(struct program *program) {
  for (size_t i = 0; i < program->offer_count; i++)
    endpoint_refresh(&program->offers[i].endpoint);
}

static void on_gpus(struct watch *watch) { refresh(list_entry(watch, struct program, watch)); }

static void on_daemon(struct daemon_link *daemon) { refresh(list_entry(daemon, struct program, daemon)); }

static void on_entry(struct folder *folder, const char *name) {
  struct program *program = list_entry(folder, struct program, folder);
  bool kubelet = !name || strcmp(name, KUBELET_SOCKET) == 0;
  for (size_t i = 0; i < program->offer_count; i++)
    (kubelet ? offer_register : offer_renew)(&program->offers[i]);
}

static void on_gone(struct folder *folder) {
  struct program *program = list_entry(folder, struct program, folder);
  log_error("%s has gone: this program must be started anew", program->options.kubelet_folder);
  program->loop.exit_code = EXIT_FAILURE;
}

static void on_signal(struct source *source, uint32_t events) {
  struct program *program = list_entry(source, struct program, signals);
  (void)events;
  log_info("ending");
  program->loop.exit_code = EXIT_SUCCESS;
}

/* ---- beginning and end ---- */

static int open_signals(struct program *program) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  program->signals = (struct source){.fd = signalfd(-1, &signals, SFD_CLOEXEC), .on_event = on_signal};
  return program->signals.fd < 0 ? -errno : loop_add(&program->loop, &program->signals, EPOLLIN);
}

static int open_folder(struct program *program) {
  const char *path = program->options.kubelet_folder;
  program->folder.on_entry = on_entry;
  program->folder.on_gone = on_gone;
  snprintf(program->kubelet_socket, sizeof program->kubelet_socket, "%s/" KUBELET_SOCKET, path);
  int err = folder_open(&program->folder, &program->loop, path);
  if (err < 0)
    log_error("can't watch %s, the kubelet's folder: %s", path, strerror(-err));
  return err;
}

/* What is looked at comes before those who tell of it. */
static int open_health(struct program *program) {
  program->watch.gpus = &program->gpus;
  program->watch.interval_ns = program->daemon.interval_ns = program->options.interval_ns;
  program->watch.on_change = on_gpus;
  program->daemon.socket = program->options.terms.socket;
  program->daemon.on_change = on_daemon;
  daemon_link_open(&program->daemon, &program->loop);
  return watch_open(&program->watch, &program->loop);
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
                                      .daemon_answers = &program->daemon.answers};
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
  program->gpus = program->options.gpus;
  return program->gpus.count > 0 ? 0 : gpus_find(&program->gpus);
}

static int open_program(struct program *program) {
  int err = open_gpus(program);
  if (err == 0)
    err = loop_open(&program->loop);
  if (err == 0)
    err = open_signals(program);
  if (err == 0)
    err = open_folder(program);
  if (err == 0)
    err = open_health(program);
  return err == 0 ? open_offers(program) : err;
}

static void close_program(struct program *program) {
  while (program->offer_count > 0)
    offer_close(&program->offers[--program->offer_count]);
  watch_close(&program->watch);
  daemon_link_close(&program->daemon);
  folder_close(&program->folder);
  loop_close(&program->loop);
}

int main(int argc, char **argv) {
  static struct program program;
  program.options = options_read(argc, argv);
  log_setup("gpushare-device-plugin", program.options.log);
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
