/* journal.h - whether somebody keeps what we write to stderr line by line. */
#ifndef GS_JOURNAL_H
#define GS_JOURNAL_H

#include <stdbool.h>

/* stderr goes to systemd's journal: JOURNAL_STREAM names it, as systemd.exec(5) describes. */
bool journal_on_stderr(void);

#endif
