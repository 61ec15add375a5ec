/* command.c - the command line of this process. Read when the library is loaded: later,
 * programs write their titles over it. */
#include "client/command.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/fnv.h"
#include "gpushare/protocol.h"

static uint64_t hash;
static char text[GS_COMMAND_SIZE];
static size_t text_size;

uint64_t command_hash(void) { return hash; }

const char *command_text(void) { return text; }

static void add_text(const unsigned char *bytes, ssize_t count) {
  for (ssize_t i = 0; i < count && text_size < sizeof text - 1; i++)
    text[text_size++] = bytes[i] ? (char)bytes[i] : ' ';
}

/* 0: it can't be read. */
static uint64_t hash_file(int fd) {
  unsigned char bytes[4096];
  uint64_t sum = FNV_BASIS;
  ssize_t count;
  while ((count = read(fd, bytes, sizeof bytes)) != 0)
    if (count > 0) {
      sum = fnv_add(sum, bytes, (size_t)count);
      add_text(bytes, count);
    } else if (errno != EINTR) {
      return 0;
    }
  return sum;
}

__attribute__((constructor)) static void read_command(void) {
  int kept = errno, fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    hash = hash_file(fd);
    close(fd);
    while (text_size > 0 && text[text_size - 1] == ' ')
      text[--text_size] = '\0';
  }
  errno = kept;
}
