/* host_gpus.c - see host_gpus.h: a folder per GPU, named by its place on the bus, and in it a text with a
 * line "GPU UUID:  GPU-...". */
#include "server/host_gpus.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"
#include "common/text_file.h"

static int read_text(int folder, const char *gpu, char *text, size_t size) {
  char path[300];
  snprintf(path, sizeof path, "%.255s/information", gpu);
  ssize_t length = text_file_read(folder, path, text, size);
  return length < 0 ? (int)length : 0;
}

/* What follows "LABEL:" and blanks in its line; false: there is no such line. */
static bool find_value(const char *text, const char *label, char *value, size_t size) {
  size_t length = strlen(label);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, label, length) != 0 || line[length] != ':')
      continue;
    line += length + 1;
    line += strspn(line, " \t");
    snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
  }
  return false;
}

/* A GPU that nobody has used since the start of the machine has no UUID yet, only question marks. Its UUID
 * here is zero then, as that of a GPU that can't be read. */
static void read_card(int folder, const char *gpu, struct card *card) {
  char text[4096], value[64], number[16];
  int64_t minor;
  *card = (struct card){.minor = CARD_MINOR_UNKNOWN};
  snprintf(card->bus, sizeof card->bus, "%.31s", gpu);
  if (read_text(folder, gpu, text, sizeof text) < 0 || !find_value(text, "GPU UUID", value, sizeof value))
    return;
  value[strcspn(value, " \t")] = '\0';
  if (parse_uuid(value, card->uuid) < 0)
    memset(card->uuid, 0, sizeof card->uuid);
  if (find_value(text, "Device Minor", number, sizeof number) &&
      parse_integer(number, 0, INT32_MAX, &minor) == 0)
    card->minor = (uint32_t)minor;
  find_value(text, "Model", card->name, sizeof card->name);
}

static int read_folder(const char *folder, struct card *cards, int most) {
  DIR *directory = opendir(folder);
  int count = 0;
  if (!directory)
    return -errno;
  for (const struct dirent *entry; count >= 0 && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.')
      continue;
    if (count < most)
      read_card(dirfd(directory), entry->d_name, &cards[count++]);
    else
      count = -E2BIG;
  }
  closedir(directory);
  return count;
}

int host_gpus_read(const char *folder, uint8_t (*uuids)[GS_UUID_SIZE], int most) {
  static struct card cards[CARDS_MAX];
  int count = read_folder(folder, cards, most < (int)CARDS_MAX ? most : (int)CARDS_MAX);
  for (int i = 0; i < count; i++)
    if (uuid_is_zero(cards[i].uuid))
      return -ENODATA;
  for (int i = 0; i < count; i++)
    memcpy(uuids[i], cards[i].uuid, GS_UUID_SIZE);
  return count;
}

/* "0000:65:00.0": hexadecimal digits, as many in each. */
static int compare_places(const void *a, const void *b) {
  return strcmp(((const struct card *)a)->bus, ((const struct card *)b)->bus);
}

/* By its minor; of a card without one: any may be meant. */
static bool has_instances(const char *folder, uint32_t minor) {
  char pattern[300], which[16] = "*";
  glob_t found;
  if (minor != CARD_MINOR_UNKNOWN)
    snprintf(which, sizeof which, "%u", minor);
  snprintf(pattern, sizeof pattern, "%.200s/../capabilities/gpu%s/mig/gi*", folder, which);
  bool some = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
  if (some)
    globfree(&found);
  return some;
}

/* All have a number, as nvidia-smi sees all of them. */
static void set_numbers(struct card *list, int count) {
  qsort(list, (size_t)count, sizeof *list, compare_places);
  for (int i = 0; i < count; i++)
    list[i].number = GS_GPU_NUMBER((uint32_t)i, 0u);
}

int host_gpus_cards(const char *folder, struct cards *cards) {
  int count = read_folder(folder, cards->list, CARDS_MAX);
  if (count < 0)
    return count;
  set_numbers(cards->list, count);
  cards->source = CARDS_HOST;
  cards->partial = false;
  cards->count = 0;
  for (int i = 0; i < count; i++) {
    struct card *card = &cards->list[i];
    card->split = has_instances(folder, card->minor);
    cards->partial |= card->split || uuid_is_zero(card->uuid);
    if (!uuid_is_zero(card->uuid))
      cards->list[cards->count++] = *card;
  }
  if (cards->count == 0)
    return -ENODATA;
  return cards_settle(cards) ? -EINVAL : 0;
}
