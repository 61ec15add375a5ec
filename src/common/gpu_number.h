/* gpu_number.h - how GPUs are numbered for people: as nvidia-smi does. "0" is a card; "0:1" is the MIG
 * instance that nvidia-smi -L lists as device 1 of card 0. On the wire both are one number (GS_GPU_CARD,
 * GS_GPU_PART). */
#ifndef GS_GPU_NUMBER_H
#define GS_GPU_NUMBER_H

#include <stdint.h>

#include "gpushare/protocol.h"

#define GPU_NUMBER_TEXT_SIZE 16
/* Returns the text. */
const char *gpu_number_format(uint32_t number, char text[GPU_NUMBER_TEXT_SIZE]);
#define GPU_NUMBER_TEXT(number) gpu_number_format(number, (char[GPU_NUMBER_TEXT_SIZE]){0})

/* "0" or "0:1"; a part that there can't be is refused. 0 or -EINVAL. */
int gpu_number_parse(const char *text, uint32_t *number);

/* <0, 0 or >0: by card, then by instance. */
int gpu_number_compare(uint32_t a, uint32_t b);

/* As format_uuid, but "MIG-..." if the number is that of an instance. */
void gpu_number_format_uuid(uint32_t number, const uint8_t uuid[GS_UUID_SIZE], char *text);

#endif
