/* host_gpus.c - see host_gpus.h: a folder per GPU, and in it a text with a line "GPU UUID:  GPU-...". */
#include "host_gpus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/parse.h"

#define LABEL "GPU UUID:"

static int read_text(int folder, const char *gpu, char *text, size_t size) {
  char path[300];
  snprintf(path, sizeof path, "%.255s/information", gpu);
  int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
  int err = length < 0 ? -errno : 0;
  if (fd >= 0)
    close(fd);
  text[length < 0 ? 0 : length] = '\0';
  return err;
}

/* A GPU that nobody has used since the start of the machine has no UUID yet, only question marks. */
static int read_uuid(int folder, const char *gpu, uint8_t uuid[GS_UUID_SIZE]) {
  char text[4096];
  int err = read_text(folder, gpu, text, sizeof text);
  if (err < 0)
    return err;
  char *value = strstr(text, LABEL);
  if (!value)
    return -ENODATA;
  value += strlen(LABEL);
  value += strspn(value, " \t");
  value[strcspn(value, " \t\n")] = '\0';
  return parse_uuid(value, uuid);
}

int host_gpus_read(const char *folder, uint8_t (*uuids)[GS_UUID_SIZE], int most) {
  DIR *directory = opendir(folder);
  int count = 0, err = 0;
  if (!directory)
    return -errno;
  for (const struct dirent *entry; err == 0 && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.')
      continue;
    err = count < most ? read_uuid(dirfd(directory), entry->d_name, uuids[count]) : -E2BIG;
    count++;
  }
  closedir(directory);
  return err < 0 ? err : count;
}
