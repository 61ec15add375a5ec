/* cards.c - see cards.h. */
#include "server/cards.h"

#include <stdlib.h>
#include <string.h>

#include "common/gpu_number.h"
#include "common/parse.h"
#include "core/scheduler.h"
#include "shared/printable.h"

static int compare(const void *a, const void *b) {
  return gpu_number_compare(((const struct card *)a)->number, ((const struct card *)b)->number);
}

static void make_printable(char *text, size_t size) {
  char copy[64];
  text[size - 1] = '\0';
  printable_copy(copy, text, size);
  memset(text, 0, size); /* of equal cards all bytes are equal */
  memcpy(text, copy, strlen(copy));
}

const char *cards_settle(struct cards *cards) {
  if (cards->count > CARDS_MAX)
    return "too many cards";
  for (uint32_t i = 0; i < cards->count; i++) {
    struct card *card = &cards->list[i];
    make_printable(card->bus, sizeof card->bus);
    make_printable(card->name, sizeof card->name);
    card->split = card->split != 0;
    card->pad = 0;
    if (uuid_is_zero(card->uuid))
      return "a card without a UUID";
    if (card->total_bytes > SCHED_BYTES_MAX)
      return "a card of an impossible size";
    if (GS_GPU_PART(card->number) > GS_GPU_PART_MAX)
      return "a card with an impossible index";
    for (uint32_t k = 0; k < i; k++)
      if (memcmp(card->uuid, cards->list[k].uuid, sizeof card->uuid) == 0 ||
          card->number == cards->list[k].number)
        return "two cards with one UUID or index";
  }
  qsort(cards->list, cards->count, sizeof *cards->list, compare);
  return NULL;
}

const struct card *cards_find(const struct cards *cards, const uint8_t uuid[GS_UUID_SIZE]) {
  for (uint32_t i = 0; i < cards->count; i++)
    if (memcmp(cards->list[i].uuid, uuid, GS_UUID_SIZE) == 0)
      return &cards->list[i];
  return NULL;
}

const struct card *cards_at(const struct cards *cards, uint32_t number) {
  for (uint32_t i = 0; i < cards->count; i++)
    if (cards->list[i].number == number)
      return &cards->list[i];
  return NULL;
}

bool cards_are_same(const struct cards *cards, const struct cards *other) {
  return cards->source == other->source && cards->partial == other->partial && cards->count == other->count &&
         memcmp(cards->list, other->list, cards->count * sizeof *cards->list) == 0;
}
