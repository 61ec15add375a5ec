/* quote.h - words to text that a shell reads back as these words. Pure. */
#ifndef GS_CTL_QUOTE_H
#define GS_CTL_QUOTE_H

#include "ctl/joblist.h"

/* A job's settings, the command and the job's words in one line without tabs, from malloc; NULL without
 * memory. Control characters are written as bash, ksh and zsh read them: $'\011'. */
char *quote_command(char *const *command, const struct joblist_job *job);

#endif
