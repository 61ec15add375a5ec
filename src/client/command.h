/* command.h - the command line of this process: as one number, and its beginning for people. */
#ifndef GS_CLIENT_COMMAND_H
#define GS_CLIENT_COMMAND_H

#include <stdint.h>

/* The same for each run of the same command line; 0: it can't be read. Constant; any thread. */
uint64_t command_hash(void);

/* The arguments, with spaces between them, as far as GS_COMMAND_SIZE goes; empty: it can't be read. */
const char *command_text(void);

#endif
