/*
 * readers.h - peers that read a record: as fast as they do, and no faster. One that follows stays until it
 * goes; the record itself is its queue.
 */
#ifndef GS_READERS_H
#define GS_READERS_H

#include "server/server.h"

/* The peer's socket takes more. */
void readers_on_writable(struct peer *peer);

/* Something may have happened: those that have had all get it, in their users' turns. */
void readers_on_news(struct server *server);

/* The peer reads no more: it is closed. */
void readers_leave(struct peer *peer);

#endif
