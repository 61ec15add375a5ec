/* container.h - what a container must have so that its programs share GPUs: the library, and the daemon's
 * socket. Pure. */
#ifndef GS_KUBELET_CONTAINER_H
#define GS_KUBELET_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>

#define CONTAINER_PATH_SIZE 300 /* of folders of less than 256 bytes, and what is in them */
#define CONTAINER_MOUNTS_MAX 3
#define CONTAINER_ENVS_MAX 2

struct container_terms {
  const char *socket;         /* the daemon's; its folder is mounted */
  const char *library_folder; /* with libunified.so and ld.so.preload; mounted at the same place */
  bool preload_by_env;        /* LD_PRELOAD instead of /etc/ld.so.preload */
};

/* All mounts are read-only: a socket can be connected to all the same. */
struct container_mount {
  char container_path[CONTAINER_PATH_SIZE], host_path[CONTAINER_PATH_SIZE];
};

struct container_env {
  const char *name;
  char value[CONTAINER_PATH_SIZE];
};

struct container_needs {
  struct container_mount mounts[CONTAINER_MOUNTS_MAX];
  struct container_env envs[CONTAINER_ENVS_MAX];
  size_t mount_count, env_count;
};

struct container_needs container_needs(const struct container_terms *terms);

#endif
