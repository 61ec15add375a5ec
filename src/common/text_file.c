/* text_file.c - see text_file.h. */
#include "common/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

ssize_t text_file_read_open(int fd, char *text, size_t size) {
  int saved = errno, err = 0;
  size_t used = 0;
  while (used < size && err == 0) { /* a file of /proc comes in pieces of a page */
    ssize_t got = pread(fd, text + used, size - used, (off_t)used);
    if (got == 0)
      break;
    if (got > 0)
      used += (size_t)got;
    else if (errno != EINTR)
      err = -errno;
  }
  text[err < 0 ? 0 : used < size ? used : size - 1] = '\0';
  errno = saved;
  return err < 0 ? err : (ssize_t)used;
}

ssize_t text_file_read(int folder, const char *path, char *text, size_t size) {
  int saved = errno, fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -errno : text_file_read_open(fd, text, size);
  if (fd < 0)
    text[0] = '\0';
  else
    close(fd);
  errno = saved;
  return length;
}
