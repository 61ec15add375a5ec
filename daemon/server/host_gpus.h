/* host_gpus.h - which GPUs the host has, as the NVIDIA kernel module tells. */
#ifndef GS_HOST_GPUS_H
#define GS_HOST_GPUS_H

#include <stdint.h>

#include "gpushare/protocol.h"
#include "server/cards.h"

#define HOST_GPUS_FOLDER "/proc/driver/nvidia/gpus"

/* The cards, in the order of their places on the bus, which is nvidia-smi's. 0, or -errno: of none it can be
 * told. They are partial if the kernel module does not tell the UUID of one, as before its first use, or of
 * MIG instances, which it never tells: the card is left out, or stands there as one that is split. */
int host_gpus_cards(const char *folder, struct cards *cards);

/* Their UUIDs, in no order. How many there are, or -errno: they can't be told, all of them. */
int host_gpus_read(const char *folder, uint8_t (*uuids)[GS_UUID_SIZE], int most);

#endif
