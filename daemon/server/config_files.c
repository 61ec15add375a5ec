/* config_files.c - the configuration file and the drop-ins beside it. */
#include "server/config_files.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_one(struct config *config, const char *path, char *error, size_t error_size) {
  int err = config_read(config, path, error, error_size);
  if (err < 0 && err != -EINVAL)
    snprintf(error, error_size, "can't read %s: %s", path, strerror(-err));
  return err;
}

static int is_drop_in(const struct dirent *entry) {
  const char *end = strrchr(entry->d_name, '.');
  return *entry->d_name != '.' && end && strcmp(end, ".conf") == 0;
}

/* Not by the locale: the order is the same everywhere. */
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_drop_ins(struct config *config, const char *folder, char *error, size_t error_size) {
  struct dirent **entries;
  int err = 0, count = scandir(folder, &entries, is_drop_in, by_name);
  if (count < 0 && errno == ENOENT)
    return 0;
  if (count < 0) {
    err = -errno;
    snprintf(error, error_size, "can't read %s: %s", folder, strerror(-err));
    return err;
  }
  for (int i = 0; i < count; i++) {
    char path[PATH_MAX + sizeof entries[i]->d_name];
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    free(entries[i]);
    if (err == 0)
      err = read_one(config, path, error, error_size);
  }
  free(entries);
  return err;
}

int config_files_read(struct config *config, const char *path, bool needed, char *error, size_t error_size) {
  struct config read = *config;
  char folder[PATH_MAX];
  int err = read_one(&read, path, error, error_size);
  if (err == -ENOENT && !needed)
    err = 0;
  if (err == 0 && snprintf(folder, sizeof folder, "%s.d", path) < (int)sizeof folder)
    err = read_drop_ins(&read, folder, error, error_size);
  if (err == 0)
    *config = read;
  return err;
}
