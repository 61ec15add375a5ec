/* peers.h - the connections of a server: their coming and going, their limits. See peer.h for one of them. */
#ifndef GS_PEERS_H
#define GS_PEERS_H

#include "server.h"

/* A connection has been accepted. Takes over fd. */
void peers_add(struct server *server, int fd, uint64_t now_ns);

/* epoll says so, of what it was given to watch. The peer may be closed already. */
void peers_on_event(void *watched, uint32_t events);

/* When the first of those that must do something has run out of time; UINT64_MAX. */
uint64_t peers_deadline_ns(const struct server *server);
void peers_on_time(struct server *server, uint64_t now_ns);

/* Take apart what was closed in this turn. Once no event can name a closed peer any more. */
void peers_bury(struct server *server, uint64_t now_ns);

void peers_close_all(struct server *server);

/* ---- for readers.c ---- */

/* The other end has hung up: what every program does in the end. */
void peers_hang_up(struct peer *peer);

/* What it is sent it must take within a bound; or not any more. */
void peers_set_due(struct peer *peer, uint64_t now_ns);
void peers_set_patient(struct peer *peer);

/* Hear of these from epoll. */
void peers_set_events(struct peer *peer, uint32_t events);

#endif
