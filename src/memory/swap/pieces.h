/*
 * pieces.h - physical memory under pieces: the driver calls, which change no state of ours but for what
 * passing.h keeps.
 *
 * Threading: as space.h. A context of the device is current for pieces_map.
 */
#ifndef GS_PIECES_H
#define GS_PIECES_H

#include "memory/swap/space.h"

/* Give pieces [first, first + count) physical memory, as many of them as the driver has memory for; `mapped`
 * of them have it afterwards, also when the result is an error. */
CUresult pieces_map(const struct space *space, struct block *block, size_t first, size_t count,
                    size_t *mapped);

/* Where the device may read and write all of a mapped piece: what moves it asks. */
CUresult pieces_reach(const struct space *space, struct block *block, size_t i, CUdeviceptr *at);

/* At its own address and at the aliases. */
CUresult pieces_unmap(struct block *block, size_t first, size_t count);

/* Map the mapped pieces [first, first + count) at the alias, too, with its rights; and undo that. On an error
 * none is. */
CUresult pieces_map_alias(const struct block *block, size_t first, size_t count, const struct alias *alias);
CUresult pieces_unmap_alias(const struct block *block, size_t first, size_t count, const struct alias *alias);

/* The devices that have rights at the alias: how many. */
size_t alias_rights(const struct alias *alias, CUmemAccessDesc access[DEVICES]);

/* Change the rights of the mapped pieces [first, first + count) at the alias. */
CUresult pieces_set_access(const struct block *block, size_t first, size_t count, const struct alias *alias,
                           const CUmemAccessDesc *access, size_t users);

/* Let `peer` reach the mapped pieces [first, first + count), or not any more. */
CUresult pieces_set_peer(const struct block *block, size_t first, size_t count, CUdevice peer, bool access);

#endif
