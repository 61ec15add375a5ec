/* draft.h - a file that is whole or as it was before, never in between. */
#ifndef GS_CTL_DRAFT_H
#define GS_CTL_DRAFT_H

#include <limits.h>
#include <stdio.h>

struct draft {
  FILE *out;
  const char *path;
  char name[PATH_MAX]; /* of what will become the file; empty: it is written as it stands */
};

/* What is not an ordinary file (/dev/stdout, a pipe, a link) is not replaced but written to. 0 or -errno. */
int draft_open(struct draft *draft, const char *path);

/* All is written: now it is the file. 0 or -errno, and the file is as it was. */
int draft_keep(struct draft *draft);

void draft_drop(struct draft *draft);

#endif
