/* help.h - what gpusharectl tells of itself. */
#ifndef GS_CTL_HELP_H
#define GS_CTL_HELP_H

#include <stdbool.h>

/* All of it. */
void help_all(void);

/* What concerns a command: its entry, and those of its options, which are "--json --gpu ". */
void help_command(const char *name, const char *options, bool is_run);

/* The word may be a misspelt `name`, and is nearer to it than *best, which it becomes; UINT_MAX: to none so
 * far. */
bool help_is_nearer(const char *word, const char *name, unsigned *best);

#endif
