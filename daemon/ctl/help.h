/* help.h - what gpusharectl tells of itself. */
#ifndef GS_CTL_HELP_H
#define GS_CTL_HELP_H

#include <stdbool.h>

/* All of it. */
void help_all(void);

/* What concerns a command: its entry, and those of its options, which are "--json --gpu ". */
void help_command(const char *name, const char *options, bool is_run);

#endif
