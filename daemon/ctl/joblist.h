/* joblist.h - many jobs: each is words to append to one command, and settings of its environment; and its
 * words as a text that a shell reads back as these words. Pure. */
#ifndef GS_CTL_JOBLIST_H
#define GS_CTL_JOBLIST_H

#include <stddef.h>

struct joblist_job {
  char **words;    /* NULL at the end */
  size_t settings; /* how many of them, from the first on, are NAME=VALUE for the environment */
  size_t line;     /* where it stands, from 1 */
};

struct joblist {
  struct joblist_job *jobs;
  size_t count;
  char **words; /* of all jobs */
};

struct joblist_error {
  size_t line;
  const char *what;
};

/*
 * A job per line; lines without words are none. Words are parted by blanks and quoted as in a shell: '...' as
 * it is; "..." with \ before " \ $ and `; elsewhere \ before any character. A # where a word could begin
 * starts a comment. Nothing is expanded. Words in front that read NAME=VALUE, the name not quoted, are
 * settings.
 *
 * Takes the text apart where it lies: it must outlive the list. 0; -ENOMEM; or -EINVAL, with the error told.
 */
int joblist_parse(struct joblist *list, char *text, struct joblist_error *error);

/* As often the same, without words of its own. 0 or -ENOMEM. */
int joblist_repeat(struct joblist *list, size_t count);

/* What it sets a variable of its environment to; NULL: nothing. */
const char *joblist_setting(const struct joblist_job *job, const char *name);

void joblist_free(struct joblist *list);

/* A job's settings, the command and the job's words in one line without tabs, from malloc; NULL without
 * memory. Control characters are written as bash, ksh and zsh read them: $'\011'. */
char *quote_command(char *const *command, const struct joblist_job *job);

#endif
