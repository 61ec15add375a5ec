/* container.c - what a container must have, by the terms. */
#include "kubelet/container.h"

#include <stdio.h>
#include <string.h>

static void add_mount(struct container_needs *needs, const char *container_path, const char *host_path) {
  struct container_mount *mount = &needs->mounts[needs->mount_count++];
  snprintf(mount->container_path, sizeof mount->container_path, "%s", container_path);
  snprintf(mount->host_path, sizeof mount->host_path, "%s", host_path);
}

static void add_env(struct container_needs *needs, const char *name, const char *folder, const char *file) {
  struct container_env *env = &needs->envs[needs->env_count++];
  env->name = name;
  snprintf(env->value, sizeof env->value, "%s%s", folder, file);
}

struct container_needs container_needs(const struct container_terms *terms) {
  struct container_needs needs = {.mount_count = 0};
  char path[CONTAINER_PATH_SIZE];
  /* The socket's folder, not the socket: a daemon that is started anew makes a new one. */
  snprintf(path, sizeof path, "%.*s", (int)(strrchr(terms->socket, '/') - terms->socket), terms->socket);
  add_mount(&needs, path, path);
  add_env(&needs, "GPUSHARE_SOCKET", terms->socket, "");
  add_mount(&needs, terms->library_folder, terms->library_folder);
  if (terms->preload_by_env) {
    add_env(&needs, "LD_PRELOAD", terms->library_folder, "/libunified.so");
  } else {
    snprintf(path, sizeof path, "%s/ld.so.preload", terms->library_folder);
    add_mount(&needs, "/etc/ld.so.preload", path);
  }
  return needs;
}
