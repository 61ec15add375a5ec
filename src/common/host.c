/* host.c - host memory: /proc/meminfo and the cgroup. No stdio: this also runs in someone else's process. */
#include "common/host.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/descriptor.h"
#include "common/parse.h"
#include "common/text_file.h"

/* Without its last newline. False: there is none, or it is empty. */
static bool read_text(const char *path, char *text, size_t size) {
  struct descriptor file = descriptor_open(path);
  if (file.fd < 0)
    return false;
  text_file_read_open(file.fd, text, size);
  descriptor_close(&file);
  size_t used = strlen(text);
  while (used && text[used - 1] == '\n')
    used--;
  text[used] = '\0';
  return used > 0;
}

/* What follows "KEY", the separator and spaces at the start of a line; no such line: an empty text. */
static const char *find_value(const char *text, const char *key, char separator) {
  size_t length = strlen(key);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, key, length) || line[length] != separator)
      continue;
    for (line += length + 1; *line == ' '; line++)
      ;
    return line;
  }
  return "";
}

static uint64_t read_number(const char *text) {
  uint64_t value = 0;
  for (; *text >= '0' && *text <= '9'; text++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *text - '0', &value))
      return 0;
  return value;
}

uint64_t host_parse_meminfo(const char *text, const char *key) {
  uint64_t kib = read_number(find_value(text, key, ':'));
  return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

/* ---- the cgroup ---- */

/* The process' path in the v2 hierarchy, which is the line "0::PATH". */
static bool cgroup_path(char *path, size_t size) {
  char text[2048];
  if (!read_text("/proc/self/cgroup", text, sizeof text))
    return false;
  char *line = strncmp(text, "0::", 3) ? strstr(text, "\n0::") : text;
  line = line ? strchr(line, '/') : NULL;
  if (!line)
    return false;
  line[strcspn(line, "\n")] = '\0';
  if (strlen(line) >= size)
    return false;
  strcpy(path, line);
  return true;
}

static bool read_text_in(const char *directory, const char *name, char *text, size_t size) {
  char path[4096];
  size_t length = strlen(directory);
  if (length + strlen(name) + 2 > sizeof path)
    return false;
  memcpy(path, directory, length + 1);
  if (path[length - 1] != '/')
    strcat(path, "/");
  strcat(path, name);
  return read_text(path, text, size);
}

static bool read_bytes_in(const char *directory, const char *name, uint64_t *bytes) {
  char text[64];
  return read_text_in(directory, name, text, sizeof text) &&
         parse_bytes(text, bytes) == 0; /* "max" is no number */
}

/* File cache that nobody has touched for a while counts as used, but leaves when memory is asked for. */
static uint64_t cache_bytes(const char *directory) {
  char text[4096];
  return read_text_in(directory, "memory.stat", text, sizeof text)
             ? read_number(find_value(text, "inactive_file", ' '))
             : 0;
}

static uint64_t directory_spare_bytes(const char *directory) {
  uint64_t limit, used, cache;
  if (!read_bytes_in(directory, "memory.max", &limit) || !read_bytes_in(directory, "memory.current", &used))
    return UINT64_MAX;
  cache = cache_bytes(directory);
  used -= cache < used ? cache : used;
  return limit > used ? limit - used : 0;
}

uint64_t host_cgroup_spare_bytes(const char *root, const char *path) {
  char directory[2048];
  uint64_t spare = UINT64_MAX;
  size_t root_length = strlen(root);
  if (root_length + strlen(path) >= sizeof directory)
    return spare;
  strcpy(directory, root);
  strcat(directory, path);
  for (;;) {
    uint64_t left = directory_spare_bytes(directory);
    spare = left < spare ? left : spare;
    char *slash = strrchr(directory, '/');
    if (!slash || slash < directory + root_length)
      return spare;
    *slash = '\0';
  }
}

/* ---- what is asked ---- */

static uint64_t memory_spare_bytes(void) {
  char text[4096];
  return read_text("/proc/meminfo", text, sizeof text) ? host_parse_meminfo(text, "MemAvailable") : 0;
}

static uint64_t own_cgroup_spare_bytes(void) {
  char path[1024];
  return cgroup_path(path, sizeof path) ? host_cgroup_spare_bytes("/sys/fs/cgroup", path) : UINT64_MAX;
}

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t host_spare_bytes(void) {
  int saved = errno;
  uint64_t bytes = lesser(memory_spare_bytes(), own_cgroup_spare_bytes());
  errno = saved;
  return bytes;
}

static void look(void *bytes) {
  *(uint64_t *)bytes = lesser(memory_spare_bytes() / 5 * 4, own_cgroup_spare_bytes());
}

static void look_for_plenty(void *plenty) {
  char text[4096];
  bool known = read_text("/proc/meminfo", text, sizeof text);
  uint64_t quarter = known ? host_parse_meminfo(text, "MemTotal") / 4 : UINT64_MAX;
  *(bool *)plenty = lesser(memory_spare_bytes(), own_cgroup_spare_bytes()) >= quarter;
}

bool host_is_plentiful(void) {
  bool plenty = false;
  descriptor_apart(look_for_plenty, &plenty);
  return plenty;
}

/* For the library: threads of ours ask in the middle of whatever the program does. */
uint64_t host_available_bytes(void) {
  uint64_t bytes = 0;
  descriptor_apart(look, &bytes);
  return bytes;
}
