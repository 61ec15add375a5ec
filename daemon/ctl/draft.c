/* draft.c - a file that is whole or as it was before, never in between. */
#include "ctl/draft.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int negative_errno(void) { return errno ? -errno : -EIO; }

static int open_as_it_stands(struct draft *draft) {
  draft->name[0] = '\0';
  draft->out = fopen(draft->path, "w");
  return draft->out ? 0 : negative_errno();
}

int draft_open(struct draft *draft, const char *path) {
  struct stat there;
  draft->path = path;
  if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode))
    return open_as_it_stands(draft);
  if ((size_t)snprintf(draft->name, sizeof draft->name, "%s.XXXXXX", path) >= sizeof draft->name)
    return -ENAMETOOLONG;
  int fd = mkstemp(draft->name);
  if (fd < 0)
    return negative_errno();
  draft->out = fdopen(fd, "w");
  if (draft->out)
    return 0;
  close(fd);
  unlink(draft->name);
  return -ENOMEM;
}

int draft_keep(struct draft *draft) {
  errno = 0;
  bool written = !ferror(draft->out) && (!*draft->name || fchmod(fileno(draft->out), 0644) == 0);
  written &= fclose(draft->out) == 0;
  if (written && (!*draft->name || rename(draft->name, draft->path) == 0))
    return 0;
  int err = negative_errno();
  if (*draft->name)
    unlink(draft->name);
  return err;
}

void draft_drop(struct draft *draft) {
  fclose(draft->out);
  if (*draft->name)
    unlink(draft->name);
}
