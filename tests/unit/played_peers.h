/* played_peers.h - the socket side, as peer.h wants it, for tests that play it: peers that are admitted
 * everywhere, and read what they are sent. */
#ifndef GS_TEST_PLAYED_PEERS_H
#define GS_TEST_PLAYED_PEERS_H

#include "server/peer.h"

/* What GET_STATUS does, once a test has set it. */
extern void (*played_status_asked)(struct peer *peer);

/* Where the peer comes from; NULL: nobody comes from anywhere. */
extern struct origin (*played_origin)(const struct peer *peer);

/* What a peer is sent, likewise. */
extern void (*played_sent)(struct peer *peer, const struct gs_msg *msg);

#endif
