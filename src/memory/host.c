/* host.c - host memory: /proc/meminfo and the cgroup. No stdio: this runs in someone else's process. */
#include "memory/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "common/parse.h"

/* The start of a small file as text, without its last newline. */
static bool read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  size_t used = 0;
  ssize_t got;
  while (used + 1 < size &&
         ((got = read(fd, text + used, size - 1 - used)) > 0 || (got < 0 && errno == EINTR)))
    used += got > 0 ? (size_t)got : 0;
  close(fd);
  while (used && text[used - 1] == '\n')
    used--;
  text[used] = '\0';
  return used > 0;
}

uint64_t host_parse_meminfo(const char *text, const char *key) {
  size_t length = strlen(key);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, key, length) || line[length] != ':')
      continue;
    uint64_t kib = 0;
    for (line += length + 1; *line == ' '; line++)
      ;
    for (; *line >= '0' && *line <= '9'; line++)
      if (__builtin_mul_overflow(kib, 10, &kib) || __builtin_add_overflow(kib, *line - '0', &kib))
        return 0;
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
  }
  return 0;
}

/* "/sys/fs/cgroup" + the process' path in the v2 hierarchy, which is the line "0::PATH". */
static bool cgroup_directory(char *path, size_t size) {
  static const char root[] = "/sys/fs/cgroup";
  char text[2048];
  if (!read_text("/proc/self/cgroup", text, sizeof text))
    return false;
  char *line = strncmp(text, "0::", 3) ? strstr(text, "\n0::") : text;
  if (!line)
    return false;
  line = strchr(line, '/');
  if (!line)
    return false;
  line[strcspn(line, "\n")] = '\0';
  if (sizeof root + strlen(line) > size)
    return false;
  memcpy(path, root, sizeof root);
  strcat(path, line);
  return true;
}

static bool read_bytes_in(const char *directory, const char *name, uint64_t *bytes) {
  char path[4096], text[64];
  size_t length = strlen(directory);
  if (length + strlen(name) + 2 > sizeof path)
    return false;
  memcpy(path, directory, length + 1);
  if (path[length - 1] != '/')
    strcat(path, "/");
  strcat(path, name);
  return read_text(path, text, sizeof text) && parse_bytes(text, bytes) == 0; /* "max" is no number */
}

/* What the cgroup and its ancestors leave; UINT64_MAX without a limit. */
static uint64_t cgroup_available_bytes(void) {
  uint64_t available = UINT64_MAX, limit, used;
  char path[2048];
  if (!cgroup_directory(path, sizeof path))
    return available;
  while (strlen(path) >= strlen("/sys/fs/cgroup")) {
    if (read_bytes_in(path, "memory.max", &limit) && read_bytes_in(path, "memory.current", &used)) {
      uint64_t left = limit > used ? limit - used : 0;
      available = left < available ? left : available;
    }
    char *slash = strrchr(path, '/');
    if (!slash)
      break;
    *slash = '\0';
  }
  return available;
}

uint64_t host_available_bytes(void) {
  int saved = errno;
  char text[4096];
  uint64_t host = 0;
  if (read_text("/proc/meminfo", text, sizeof text))
    host = host_parse_meminfo(text, "MemAvailable") / 5 * 4;
  uint64_t cgroup = cgroup_available_bytes();
  errno = saved;
  return cgroup < host ? cgroup : host;
}
