/* peer_access.h - which cards may reach each other's memory. Any thread. */
#ifndef GS_PEER_ACCESS_H
#define GS_PEER_ACCESS_H

void peer_access_fork_child(void);

#endif
