/* peers.h - which cards may reach each other's memory. Any thread. */
#ifndef GS_PEERS_H
#define GS_PEERS_H

void peers_fork_child(void);

#endif
