/*
 * mps.c - as the driver does, look for MPS by CUDA_MPS_PIPE_DIRECTORY: a socket "control" there. Here it is
 * asked with one line, and answers "yes" (tests/system/played_mps.c); whoever is connected is its client.
 * Work runs as ever.
 */
#include "mps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_control(const char *folder) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/control", folder);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && length < (int)sizeof address.sun_path &&
      connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
    return fd;
  if (fd >= 0)
    close(fd);
  return -1;
}

static bool is_taken(int fd) {
  char line[32], answer[4] = "";
  int length = snprintf(line, sizeof line, "client %d\n", getpid());
  return write(fd, line, (size_t)length) == length && read(fd, answer, sizeof answer) == sizeof answer &&
         memcmp(answer, "yes\n", sizeof answer) == 0;
}

static uint32_t number_in(const char *name) {
  const char *value = getenv(name);
  return value ? (uint32_t)strtoul(value, NULL, 10) : 0;
}

CUresult mps_join(struct slot *slot) {
  const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
  int fd = folder && *folder ? connect_control(folder) : -1;
  atomic_store(&slot->mps, 0);
  if (fd < 0)
    return CUDA_SUCCESS;
  if (!is_taken(fd)) {
    close(fd);
    return CUDA_ERROR_MPS_CONNECTION_FAILED;
  }
  atomic_store(&slot->mps_priority, number_in("CUDA_MPS_CLIENT_PRIORITY"));
  atomic_store(&slot->mps_percent, number_in("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
  atomic_store(&slot->mps, 1); /* fd stays open: the process is connected for life */
  return CUDA_SUCCESS;
}
