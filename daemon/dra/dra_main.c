/* dra_main.c - gpushare-dra-driver: its command line, and its parts, put together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "dra/preparer.h"
#include "dra/publisher.h"
#include "dra/slice.h"
#include "kubelet/options.h"
#include "kubelet/rpc_listener.h"

#define ACCOUNT_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount"
#define SOCKET_NAME DRIVER_NAME "-reg.sock"
#define MEMORY_PERCENT_MAX 1000
/* Between looks at the socket's file and at claims that pods share. */
#define LOOK_NS (5 * NS_PER_S)
#define LOOK_PAUSE_FACTOR 4 /* so many times as long as a look takes */
/* A daemon that starts together with this program has so long to answer before the GPUs are withdrawn. */
#define FIRST_PUBLISHED_NS (30 * NS_PER_S)

struct options {
  struct node_options node; /* first */
  const char *name, *registry_folder, *state_folder, *cdi_folder;
  struct api_access api;
  unsigned memory_percent;
  bool removes_slice;
};

/* ---- the command line ---- */

static const char *set_folder(const char **to, const char *value) {
  *to = value;
  return option_is_folder(value) ? NULL : OPTION_FOLDER;
}

static const char *set_registry(void *options, const char *value) {
  if (strlen(value) > sizeof((struct sockaddr_un){0}.sun_path) - sizeof SOCKET_NAME - 1)
    return "the path of a folder that is short enough for a socket in it";
  return set_folder(&((struct options *)options)->registry_folder, value);
}

static const char *set_state(void *options, const char *value) {
  return set_folder(&((struct options *)options)->state_folder, value);
}

static const char *set_cdi(void *options, const char *value) {
  return set_folder(&((struct options *)options)->cdi_folder, value);
}

static const char *set_name(void *options, const char *value) {
  ((struct options *)options)->name = value;
  return *value && strlen(value) < 240 &&
                 strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789-.") == strlen(value)
             ? NULL
             : "the name of a node";
}

static const char *set_server(void *options, const char *value) {
  ((struct options *)options)->api.server = value;
  return strncmp(value, "https://", 8) == 0 && value[strlen(value) - 1] != '/' && strlen(value) < 256
             ? NULL
             : "https://HOST:PORT";
}

static const char *set_token(void *options, const char *value) {
  ((struct options *)options)->api.token_file = value;
  return *value == '/' ? NULL : "the absolute path of a file";
}

static const char *set_ca(void *options, const char *value) {
  ((struct options *)options)->api.ca_file = value;
  return *value == '/' ? NULL : "the absolute path of a file";
}

static const struct option_row rows[] = {
    {"node-name", "NAME", "of the node (default: $NODE_NAME)", .set = set_name},
    {"memory-percent", "N", "of a GPU's memory that claims may be granted together (default 100)",
     .at = offsetof(struct options, memory_percent), .least = 1, .most = MEMORY_PERCENT_MAX},
    {"on-exit", "HOW", "keep what is published, or remove it (default keep)",
     .at = offsetof(struct options, removes_slice), .no = "keep", .yes = "remove"},
    {"registry-dir", "DIR", "the kubelet's (default /var/lib/kubelet/plugins_registry)", .set = set_registry},
    {"state-dir", "DIR", "of prepared claims (default /var/lib/kubelet/plugins/" DRIVER_NAME ")",
     .set = set_state},
    {"cdi-dir", "DIR", "of CDI specs, as the container runtime has it (default /var/run/cdi)",
     .set = set_cdi},
    {"api-server", "URL", "https://HOST:PORT (default: from the pod's environment)", .set = set_server},
    {"token", "FILE", "of the service account (default: the pod's)", .set = set_token},
    {"ca", "FILE", "by which the API server is known (default: the pod's)", .set = set_ca},
};

static const struct option_table table = {
    .program = "gpushare-dra-driver",
    .version = GPUSHARE_VERSION " (DRA v1 and v1beta1, resource.k8s.io/v1)",
    .about =
        "Publishes this node's GPUs to Kubernetes' dynamic resource allocation, as devices of which claims "
        "are\ngranted memory and a share, and gives containers with such claims what gpushare needs. Stays "
        "in the\nforeground and logs to stderr.",
    .exit_codes = "0 ended by a signal; 1 failure, also if there is no GPU",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static int complete(struct options *options) {
  static char server[300];
  const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
  const char *name = getenv("NODE_NAME");
  if (!options->name && name)
    options->name = set_name(options, name) ? NULL : name;
  if (!options->name) {
    log_error("which node is this? Set NODE_NAME by the downward API (spec.nodeName), or use --node-name");
    return -EINVAL;
  }
  if (options->api.server)
    return 0;
  if (!host || !port) {
    log_error(
        "where is the API server? This is no pod (KUBERNETES_SERVICE_HOST is not set): use --api-server, "
        "--token and --ca");
    return -EINVAL;
  }
  bool is_ipv6 = strchr(host, ':');
  snprintf(server, sizeof server, "https://%s%.200s%s:%.20s", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "",
           port);
  options->api.server = server;
  return 0;
}

/* ---- what happens ---- */

struct program {
  struct options options;
  struct loop loop;
  struct gpus gpus;
  struct health health;
  struct timer look, first;
  struct rpc_listener listener;
  struct preparer preparer;
  struct publisher publisher;
};

/* Without a daemon nobody is bound by what is granted. */
static void publish(struct program *program) {
  publisher_publish(&program->publisher, program->health.daemon_answers
                                             ? slice_devices(&program->gpus, program->options.memory_percent)
                                             : json_array());
}

static void on_health(struct health *health) {
  struct program *program = list_entry(health, struct program, health);
  if (health->daemon_answers)
    preparer_bind_all(&program->preparer);
  publish(program);
}

static void on_first(struct timer *timer, uint64_t now_ns) {
  struct program *program = list_entry(timer, struct program, first);
  (void)now_ns;
  if (!program->health.daemon_answers)
    publish(program);
}

/* Why a longer pause after a long look: the kubelet's calls wait meanwhile. */
static void on_look(struct timer *timer, uint64_t now_ns) {
  struct program *program = list_entry(timer, struct program, look);
  rpc_listener_renew(&program->listener);
  preparer_look_for_pods(&program->preparer);
  if (program->health.daemon_answers)
    preparer_bind(&program->preparer);
  uint64_t end_ns = clock_now_ns(), pause_ns = LOOK_PAUSE_FACTOR * (end_ns - now_ns);
  timer->due_ns = end_ns + (pause_ns > LOOK_NS ? pause_ns : LOOK_NS);
}

static void on_registered(struct preparer *preparer) {
  publisher_look(&list_entry(preparer, struct program, preparer)->publisher);
}

/* ---- beginning and end ---- */

static int open_preparer(struct program *program) {
  const struct options *options = &program->options;
  program->preparer.node = options->name;
  program->preparer.gpus = &program->gpus;
  program->preparer.store =
      (struct store){options->state_folder, options->cdi_folder, &options->node.container};
  program->preparer.on_registered = on_registered;
  program->preparer.endpoint = program->listener.address.sun_path;
  int err = api_open(&program->preparer.api, &options->api);
  return err == 0 ? preparer_open(&program->preparer) : err;
}

static int open_publisher(struct program *program) {
  program->publisher = (struct publisher){.access = &program->options.api,
                                          .node = program->options.name,
                                          .removes = program->options.removes_slice};
  return publisher_open(&program->publisher);
}

static int open_health(struct program *program) {
  program->health = (struct health){.loop = &program->loop,
                                    .gpus = &program->gpus,
                                    .socket = program->options.node.container.socket,
                                    .interval_ns = program->options.node.interval_ns,
                                    .on_change = on_health};
  return health_open(&program->health);
}

static int open_listener(struct program *program) {
  program->listener = (struct rpc_listener){.loop = &program->loop,
                                            .service = preparer_service(&program->preparer),
                                            .label = DRIVER_NAME,
                                            .patience_ns = LOOP_NEVER};
  return rpc_listener_open(&program->listener, program->options.registry_folder, SOCKET_NAME);
}

static void add_timers(struct program *program) {
  uint64_t now_ns = clock_now_ns();
  program->look = (struct timer){.due_ns = now_ns + LOOK_NS, .on_due = on_look};
  program->first = (struct timer){.due_ns = now_ns + FIRST_PUBLISHED_NS, .on_due = on_first};
  loop_add_timer(&program->loop, &program->look);
  loop_add_timer(&program->loop, &program->first);
}

/* The kubelet finds the socket once all that it asks for is there. */
static int open_program(struct program *program) {
  int err = complete(&program->options);
  program->gpus = program->options.node.gpus;
  if (err == 0 && program->gpus.count == 0)
    err = gpus_find(&program->gpus);
  if (err == 0)
    err = loop_open(&program->loop);
  if (err == 0)
    err = loop_add_signals(&program->loop);
  if (err == 0)
    err = open_preparer(program);
  if (err == 0)
    err = open_publisher(program);
  if (err == 0)
    err = open_health(program);
  if (err == 0)
    add_timers(program);
  return err == 0 ? open_listener(program) : err;
}

static void close_program(struct program *program) {
  rpc_listener_close(&program->listener);
  health_close(&program->health);
  publisher_close(&program->publisher);
  preparer_close(&program->preparer);
  api_close(&program->preparer.api);
  loop_close(&program->loop);
}

int main(int argc, char **argv) {
  static struct program program;
  program.options =
      (struct options){.node = NODE_OPTIONS_DEFAULT,
                       .registry_folder = "/var/lib/kubelet/plugins_registry",
                       .state_folder = "/var/lib/kubelet/plugins/" DRIVER_NAME,
                       .cdi_folder = "/var/run/cdi",
                       .api = {.token_file = ACCOUNT_FOLDER "/token", .ca_file = ACCOUNT_FOLDER "/ca.crt"},
                       .memory_percent = 100};
  options_read(&table, &program.options, argc, argv);
  log_setup("gpushare-dra-driver", program.options.node.log);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  int err = open_program(&program);
  if (err < 0) {
    log_error("not started: %s", strerror(-err));
    return EXIT_FAILURE;
  }
  log_info("%zu GPUs of node %s", program.gpus.count, program.options.name);
  int code = loop_run(&program.loop);
  close_program(&program);
  return code;
}
