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

static int find_places(const struct request *request, struct places *places) {
  char found[PATH_MAX], folder[PATH_MAX], path[PATH_MAX + sizeof "/gpushare/ld.so.preload"];
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
  /* Beside the library; its one line is where the library is in containers. */
  strcpy(folder, places->library);
  cut_name(folder);
  snprintf(path, sizeof path, "%s/gpushare/ld.so.preload", folder);
  if (!realpath(path, places->preload))
    *places->preload = '\0';
  return CTL_OK;
}

/* ---- the specification ---- */

static void add_mount(json_t *mounts, const char *host, const char *container, bool executable) {
  json_t *mount = json_pack("{ss ss s[ssss]}", "hostPath", host, "containerPath", container, "options", "ro",
                            "nosuid", "nodev", "bind");
  if (!executable)
    json_array_append_new(json_object_get(mount, "options"), json_string("noexec"));
  json_array_append_new(mounts, mount);
}

/* class NULL: the program's own. */
static void add_device(json_t *devices, const struct places *places, const char *class) {
  json_t *env = json_pack("[o]", json_sprintf("GPUSHARE_SOCKET=%s", places->socket));
  if (class)
    json_array_append_new(env, json_sprintf("GPUSHARE_CLASS=%s", class));
  json_array_append_new(devices,
                        json_pack("{ss s{so}}", "name", class ? class : "all", "containerEdits", "env", env));
}

/* The socket's folder, not the socket: a daemon that is started anew makes a new one. Read-only: a socket can
 * be connected to all the same. */
static json_t *specification(const struct places *places) {
  json_t *devices = json_array(), *mounts = json_array();
  add_device(devices, places, NULL);
  for (unsigned class = GS_CLASS_STANDARD; class <= GS_CLASS_OPPORTUNISTIC; class ++)
    add_device(devices, places, class_name(class));
  add_mount(mounts, places->folder, places->folder, false);
  add_mount(mounts, places->library, GPUSHARE_CONTAINER_LIBRARY, true);
  if (*places->preload)
    add_mount(mounts, places->preload, "/etc/ld.so.preload", false);
  json_t *root = json_pack("{ss ss so s{so}}", "cdiVersion", CDI_VERSION, "kind", KIND, "devices", devices,
                           "containerEdits", "mounts", mounts);
  if (!*places->preload)
    json_object_set_new(json_object_get(root, "containerEdits"), "env",
                        json_pack("[s]", "LD_PRELOAD=" GPUSHARE_CONTAINER_LIBRARY));
  return root;
}

/* ---- the command ---- */

int cdi_command(const struct request *request) {
  struct places places;
  struct draft draft;
  if (strcmp(request->words[1], "generate") != 0)
    return usage_error("cdi has only generate, not", request->words[1]);
  int code = find_places(request, &places);
  if (code != CTL_OK)
    return code;
  if (!*places.preload)
    command_error(CTL_OK,
                  "there is no gpushare/ld.so.preload beside %s: containers get LD_PRELOAD, which "
                  "replaces that of their images",
                  places.library);
  json_t *root = specification(&places);
  if (!request->file)
    return output_json(root);
  int err = draft_open(&draft, request->file); /* runtimes look at the file whenever it changes */
  if (err == 0) {
    json_dumpf(root, draft.out, JSON_INDENT(2));
    err = draft_keep(&draft);
  }
  json_decref(root);
  return err ? command_error(CTL_REFUSED, "can't write %s: %s", request->file, strerror(-err)) : CTL_OK;
}
