/*
 * pictures.h - who is sent the daemon's state (GET_STATUS).
 *
 * A picture is made once for all that have asked by then, in slices, and no more often than its making allows
 * others to be served. None is older than the question that it answers. Readers share it: each is a place in
 * it. A user is charged for every picture that its connections still read, and for what their sockets hold.
 */
#ifndef GS_PICTURES_H
#define GS_PICTURES_H

#include "server/server.h"

/* Go on with the one that is being made, until then; those who have asked for it are given it once it is
 * done. */
void pictures_run(struct server *server, uint64_t until_ns);

/* Before then there is nothing to run; 0: at once; UINT64_MAX: nobody asks. */
uint64_t pictures_deadline_ns(const struct server *server);

/* The peer has been given one, and its socket may take more. */
void pictures_send(struct peer *peer);

/* The peer reads no more: it is closed. */
void pictures_leave(struct peer *peer);

#endif
