/* journal.c - whether stderr goes to systemd's journal: JOURNAL_STREAM=DEVICE:INODE names it, and stays in
 * the environment also where somebody has redirected stderr since. */
#include "server/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool journal_on_stderr(void) {
  const char *stream = getenv("JOURNAL_STREAM");
  struct stat status;
  char own[48];
  if (!stream || fstat(STDERR_FILENO, &status) < 0)
    return false;
  snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
  return strcmp(stream, own) == 0;
}
