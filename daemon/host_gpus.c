/* host_gpus.c - see host_gpus.h: a folder per GPU, named by its place on the bus, and in it a text with a
 * line "GPU UUID:  GPU-...". */
#include "host_gpus.h"

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

/* A GPU that nobody has used since the start of the machine has no UUID yet, only question marks. */
static int read_card(int folder, const char *gpu, struct card *card) {
  char text[4096], value[64];
  int err = read_text(folder, gpu, text, sizeof text);
  *card = (struct card){.minor = CARD_MINOR_UNKNOWN};
  if (err < 0)
    return err;
  if (!find_value(text, "GPU UUID", value, sizeof value))
    return -ENODATA;
  value[strcspn(value, " \t")] = '\0';
  int64_t minor;
  char number[16];
  if (find_value(text, "Device Minor", number, sizeof number) &&
      parse_integer(number, 0, INT32_MAX, &minor) == 0)
    card->minor = (uint32_t)minor;
  find_value(text, "Model", card->name, sizeof card->name);
  snprintf(card->bus, sizeof card->bus, "%.31s", gpu);
  return parse_uuid(value, card->uuid);
}

static int read_folder(const char *folder, struct card *cards, int most) {
  DIR *directory = opendir(folder);
  int count = 0, err = 0;
  if (!directory)
    return -errno;
  for (const struct dirent *entry; err == 0 && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.')
      continue;
    err = count < most ? read_card(dirfd(directory), entry->d_name, &cards[count]) : -E2BIG;
    count++;
  }
  closedir(directory);
  return err < 0 ? err : count;
}

int host_gpus_read(const char *folder, uint8_t (*uuids)[GS_UUID_SIZE], int most) {
  static struct card cards[CARDS_MAX];
  int count = read_folder(folder, cards, most < (int)CARDS_MAX ? most : (int)CARDS_MAX);
  for (int i = 0; i < count; i++)
    memcpy(uuids[i], cards[i].uuid, GS_UUID_SIZE);
  return count;
}

/* "0000:65:00.0": hexadecimal digits, as many in each. */
static int compare_places(const void *a, const void *b) {
  return strcmp(((const struct card *)a)->bus, ((const struct card *)b)->bus);
}

static bool has_instances(const char *folder) {
  char pattern[300];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%.200s/../capabilities/gpu*/mig/gi*", folder);
  bool some = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
  if (some)
    globfree(&found);
  return some;
}

int host_gpus_cards(const char *folder, struct cards *cards) {
  int count = read_folder(folder, cards->list, CARDS_MAX);
  if (count < 0)
    return count;
  if (count == 0 || has_instances(folder))
    return -ENODATA;
  qsort(cards->list, (size_t)count, sizeof *cards->list, compare_places);
  for (int i = 0; i < count; i++)
    cards->list[i].number = GS_GPU_NUMBER((uint32_t)i, 0u);
  cards->count = (uint32_t)count;
  cards->source = CARDS_HOST;
  return cards_settle(cards) ? -EINVAL : 0;
}
