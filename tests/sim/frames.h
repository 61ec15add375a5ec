/*
 * frames.h - which managed pages of which process are on a card, and the room that plain allocations take.
 *
 * The order in which pages leave is that of their last arrival, prefetch or fault, oldest first, whoever owns
 * them; accesses to a page that is there don't count, because the driver does not see them. Pages that
 * prefer the card leave after those that don't.
 */
#ifndef SIM_FRAMES_H
#define SIM_FRAMES_H

#include "state.h"

enum arrival { ARRIVAL_PRESENT, ARRIVAL_NEW, ARRIVAL_NO_ROOM };

/* Bring this process's page `key` to the card; *frame is where it was last, and is. *evicted counts pages
 * that left. */
enum arrival frames_admit(unsigned gpu, uint64_t key, int32_t *frame, bool preferred, bool refresh,
                          uint64_t *evicted);
bool frames_resident(unsigned gpu, uint64_t key, int32_t frame);
/* The page leaves the card. False if it was not there. */
bool frames_drop(unsigned gpu, uint64_t key, int32_t frame);

/* Room for a plain allocation; managed pages leave for it. 0 or -ENOMEM. */
int frames_pin(unsigned gpu, uint64_t bytes, uint64_t *evicted);
void frames_unpin(unsigned gpu, uint64_t bytes);

uint64_t frames_free_bytes(unsigned gpu);

#endif
