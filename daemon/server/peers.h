/* peers.h - the connections of a server: their coming and going, their limits. See peer.h for one of them. */
#ifndef GS_PEERS_H
#define GS_PEERS_H

#include "server/server.h"

/* A connection has been accepted. Takes over fd. */
void peers_add(struct server *server, int fd, uint64_t now_ns);

/* epoll says so, of what it was given to watch: the peer is served in its user's turn, or, if it ends and has
 * a GPU, before that. It may be closed already. */
void peers_on_event(void *watched, uint32_t events);

/* Serve peers that end and have a GPU, until then or until there are none: what they have sent is read, and
 * what they have is given back. Their users have turns for that, in which no user owes what it has cost
 * otherwise: others wait for the GPU. */
void peers_serve_leaving(struct server *server, uint64_t until_ns);

/* Serve users in turn, until then or until there is nothing to do. No event can name a peer that was closed
 * before, as those are taken apart here, and in peers_serve_leaving. */
void peers_serve(struct server *server, uint64_t until_ns);

/* When the first of those that must do something has run out of time; UINT64_MAX. */
uint64_t peers_deadline_ns(const struct server *server);
void peers_on_time(struct server *server, uint64_t now_ns);

void peers_close_all(struct server *server);

/* ---- for readers.c and pictures.c ---- */

/* There is something to do for it. */
void peers_set_ready(struct peer *peer);

/* It is sent many messages from now on: its socket holds few, and its user is charged for these. 0, or
 * -EDQUOT. */
int peer_narrow(struct peer *peer);

/* The other end has hung up: what every program does in the end. */
void peers_hang_up(struct peer *peer);

/* What it is sent it must take within a bound; or not any more. */
void peers_set_due(struct peer *peer, uint64_t now_ns);
void peers_set_patient(struct peer *peer);

/* Hear of these from epoll. */
void peers_set_events(struct peer *peer, uint32_t events);

#endif
