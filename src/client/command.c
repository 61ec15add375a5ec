/* command.c - the command line of this process. Read when the library is loaded: later,
 * programs write their titles over it. */
#include "client/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/fnv.h"
#include "gpushare/protocol.h"

static uint64_t hash;
static char text[GS_COMMAND_SIZE];

uint64_t command_hash(void) { return hash; }

const char *command_text(void) { return text; }

/* The arguments, each with a '\0' behind it, become the text. False: some of it is cut off. */
static bool write_text(const char *arguments, size_t size, bool folders) {
  size_t used = 0;
  for (size_t at = 0, length; at < size; at += length + 1) {
    const char *word = arguments + at;
    length = strnlen(word, size - at);
    const char *slash = folders ? NULL : memrchr(word, '/', length);
    const char *shown = slash && slash + 1 < word + length ? slash + 1 : word;
    size_t left = length - (size_t)(shown - word), room = sizeof text - 1 - used;
    if (used)
      text[used - 1] = ' ';
    memcpy(text + used, shown, left < room ? left : room);
    if (left >= room) {
      text[sizeof text - 1] = '\0';
      return left == room && at + length + 1 >= size;
    }
    used += left + 1;
    text[used - 1] = '\0';
  }
  return true;
}

/* 0: it can't be read. */
static uint64_t read_file(int fd) {
  char bytes[4096], begin[1024];
  size_t begun = 0;
  uint64_t sum = FNV_BASIS;
  ssize_t count;
  while ((count = read(fd, bytes, sizeof bytes)) != 0)
    if (count > 0) {
      size_t room = sizeof begin - begun, more = (size_t)count < room ? (size_t)count : room;
      memcpy(begin + begun, bytes, more);
      begun += more;
      sum = fnv_add(sum, bytes, (size_t)count);
    } else if (errno != EINTR) {
      return 0;
    }
  if (!write_text(begin, begun, true))
    write_text(begin, begun, false);
  return sum;
}

__attribute__((constructor)) static void read_command(void) {
  int kept = errno, fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    hash = read_file(fd);
    close(fd);
  }
  errno = kept;
}
