/* cdi.c - gpusharectl cdi generate: what containers need, as a specification of the Container Device
 * Interface.
 *
 * Its devices are no hardware: they bring the library and the daemon's socket into a container, beside the
 * GPUs that another specification brings. /etc/ld.so.preload rather than LD_PRELOAD, which would replace the
 * image's own.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/parse.h"
#include "ctl/ctl.h"
#include "ctl/output.h"

#define KIND "gpushare.io/share"
/* The first one: nothing later is used, and runtimes refuse what is newer than they are. */
#define CDI_VERSION "0.3.0"

/* On the host, with all links resolved. */
struct places {
  char library[PATH_MAX], preload[PATH_MAX]; /* preload: empty if there is none */
  char folder[PATH_MAX];                     /* of the socket */
  const char *socket;
};

/* ---- what there is ---- */

static void cut_name(char *path) {
  char *slash = strrchr(path, '/');
  if (slash)
    slash[slash == path] = '\0';
}

/* gpushare/ld.so.preload beside the library: its one line is where the library is in containers. */
static void find_preload(struct places *places) {
  char folder[PATH_MAX], path[PATH_MAX + sizeof "/gpushare/ld.so.preload"];
  strcpy(folder, places->library);
  cut_name(folder);
  snprintf(path, sizeof path, "%s/gpushare/ld.so.preload", folder);
  if (!realpath(path, places->preload))
    *places->preload = '\0';
}

static int find_places(const struct request *request, struct places *places) {
  char found[PATH_MAX];
  places->socket = daemon_path(&request->run);
  if (*places->socket != '/' || strlen(places->socket) >= sizeof places->folder)
    return usage_error("containers need the whole path of the socket, not", places->socket);
  strcpy(places->folder, places->socket);
  cut_name(places->folder);
  int code = find_library(request->run.library, found);
  if (code != CTL_OK)
    return code;
  if (!realpath(found, places->library))
    return command_error(CTL_REFUSED, "can't find libunified.so: name it with --lib");
  find_preload(places);
  return CTL_OK;
}

/* ---- the specification ---- */

static void add_mount(json_t *mounts, const char *host, const char *container, const char *option) {
  json_t *mount = json_object(), *options = json_array();
  static const char *const all[] = {"ro", "nosuid", "nodev", "bind"};
  output_text(mount, "hostPath", host);
  output_text(mount, "containerPath", container);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    json_array_append_new(options, json_string(all[i]));
  if (option)
    json_array_append_new(options, json_string(option));
  json_object_set_new(mount, "options", options);
  json_array_append_new(mounts, mount);
}

/* The socket's folder, not the socket: a daemon that is started anew makes a new one. Read-only: a socket can
 * be connected to all the same. */
static json_t *mounts_json(const struct places *places) {
  json_t *mounts = json_array();
  add_mount(mounts, places->folder, places->folder, "noexec");
  add_mount(mounts, places->library, GPUSHARE_CONTAINER_LIBRARY, NULL);
  if (*places->preload)
    add_mount(mounts, places->preload, "/etc/ld.so.preload", "noexec");
  return mounts;
}

static void add_variable(json_t *env, const char *name, const char *value) {
  json_array_append_new(env, json_sprintf("%s=%s", name, value));
}

/* class NULL: the program's own. */
static json_t *device_json(const struct places *places, const char *name, const char *class) {
  json_t *device = json_object(), *edits = json_object(), *env = json_array();
  add_variable(env, "GPUSHARE_SOCKET", places->socket);
  if (class)
    add_variable(env, "GPUSHARE_CLASS", class);
  json_object_set_new(edits, "env", env);
  output_text(device, "name", name);
  json_object_set_new(device, "containerEdits", edits);
  return device;
}

static json_t *specification(const struct places *places) {
  json_t *root = json_object(), *devices = json_array(), *edits = json_object();
  json_array_append_new(devices, device_json(places, "all", NULL));
  for (unsigned class = GS_CLASS_STANDARD; class <= GS_CLASS_OPPORTUNISTIC; class ++)
    json_array_append_new(devices, device_json(places, class_name(class), class_name(class)));
  json_object_set_new(edits, "mounts", mounts_json(places));
  if (!*places->preload)
    json_object_set_new(edits, "env", json_pack("[s]", "LD_PRELOAD=" GPUSHARE_CONTAINER_LIBRARY));
  output_text(root, "cdiVersion", CDI_VERSION);
  output_text(root, "kind", KIND);
  json_object_set_new(root, "devices", devices);
  json_object_set_new(root, "containerEdits", edits);
  return root;
}

/* ---- where it goes ---- */

/* Runtimes look at the file whenever it changes. */
static int write_file(json_t *root, const char *path) {
  struct draft draft;
  int err = draft_open(&draft, path);
  if (err == 0) {
    json_dumpf(root, draft.out, JSON_INDENT(2));
    err = draft_keep(&draft);
  }
  return err ? command_error(CTL_REFUSED, "can't write %s: %s", path, strerror(-err)) : CTL_OK;
}

int cdi_command(const struct request *request) {
  struct places places;
  if (strcmp(request->words[1], "generate") != 0)
    return usage_error("cdi has only generate, not", request->words[1]);
  int code = find_places(request, &places);
  if (code != CTL_OK)
    return code;
  if (!*places.preload)
    fprintf(stderr,
            "gpusharectl: there is no gpushare/ld.so.preload beside %s: containers get LD_PRELOAD, which "
            "replaces that of their images\n",
            places.library);
  json_t *root = specification(&places);
  if (!request->file)
    return output_json(root);
  code = write_file(root, request->file);
  json_decref(root);
  return code;
}
