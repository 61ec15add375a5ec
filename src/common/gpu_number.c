/* gpu_number.c - see gpu_number.h. */
#include "common/gpu_number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/parse.h"

const char *gpu_number_format(uint32_t number, char text[GPU_NUMBER_TEXT_SIZE]) {
  if (GS_GPU_PART(number))
    snprintf(text, GPU_NUMBER_TEXT_SIZE, "%" PRIu32 ":%" PRIu32, GS_GPU_CARD(number),
             GS_GPU_PART(number) - 1);
  else
    snprintf(text, GPU_NUMBER_TEXT_SIZE, "%" PRIu32, GS_GPU_CARD(number));
  return text;
}

int gpu_number_parse(const char *text, uint32_t *number) {
  char card_text[GPU_NUMBER_TEXT_SIZE];
  int64_t card, part = -1;
  size_t length = strcspn(text, ":");
  if (length >= sizeof card_text)
    return -EINVAL;
  memcpy(card_text, text, length);
  card_text[length] = '\0';
  if (parse_integer(card_text, 0, GS_GPU_CARD_MAX, &card) < 0 ||
      (text[length] && parse_integer(text + length + 1, 0, GS_GPU_PART_MAX - 1, &part) < 0))
    return -EINVAL;
  *number = GS_GPU_NUMBER((uint32_t)card, (uint32_t)(part + 1));
  return 0;
}

int gpu_number_compare(uint32_t a, uint32_t b) {
  uint64_t one = (uint64_t)GS_GPU_CARD(a) << 32 | GS_GPU_PART(a);
  uint64_t other = (uint64_t)GS_GPU_CARD(b) << 32 | GS_GPU_PART(b);
  return (one > other) - (one < other);
}

void gpu_number_format_uuid(uint32_t number, const uint8_t uuid[GS_UUID_SIZE], char *text) {
  format_uuid(uuid, text);
  if (GS_GPU_PART(number))
    memcpy(text, "MIG-", 4);
}
