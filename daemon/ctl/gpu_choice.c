/* gpu_choice.c - see gpu_choice.h. */
#include "ctl/gpu_choice.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/gpu_number.h"
#include "common/parse.h"
#include "ctl/ctl.h"

#define WORD_SIZE 64

__attribute__((format(printf, 3, 4))) static int complain(struct gpu_choice *choice, int code,
                                                          const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(choice->error, sizeof choice->error, format, list);
  va_end(list);
  return code;
}

/* Go behind the next word of the list; false: there is none. One that is too long is cut, and names no GPU
 * either. */
static bool next_word(const char **list, char word[WORD_SIZE]) {
  if (!*list)
    return false;
  size_t length = strcspn(*list, ",");
  snprintf(word, WORD_SIZE, "%.*s", (int)length, *list);
  *list = (*list)[length] ? *list + length + 1 : NULL;
  return true;
}

int gpu_choice_needs_status(const char *text) {
  char word[WORD_SIZE];
  uint8_t uuid[GS_UUID_SIZE];
  while (next_word(&text, word))
    if (parse_uuid(word, uuid) < 0)
      return true;
  return false;
}

static int add(struct gpu_choice *choice, const uint8_t uuid[GS_UUID_SIZE]) {
  for (size_t i = 0; i < choice->count; i++)
    if (memcmp(choice->uuids[i], uuid, GS_UUID_SIZE) == 0)
      return CTL_OK;
  if (choice->count == GPU_CHOICE_MAX)
    return complain(choice, CTL_USAGE, "too many GPUs");
  memcpy(choice->uuids[choice->count++], uuid, GS_UUID_SIZE);
  return CTL_OK;
}

static bool is_prefix(const char *word) {
  return (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0) && word[4] &&
         !word[4 + strspn(word + 4, "0123456789abcdefABCDEF-")];
}

static int add_prefix(struct gpu_choice *choice, const char *word, const struct gs_msg *msgs, size_t count) {
  const struct gs_msg *found = NULL;
  size_t length = 0;
  unsigned candidates = 0;
  char names[400] = "";
  for (size_t i = 0; i < count; i++) {
    char uuid[GS_UUID_TEXT_SIZE];
    if (msgs[i].type != GS_STATUS_GPU)
      continue;
    gpu_number_format_uuid(msgs[i].gpu, msgs[i].gpu_status.uuid, uuid);
    if (strncasecmp(uuid, word, strlen(word)) != 0)
      continue;
    found = &msgs[i];
    candidates++;
    if (length < sizeof names)
      length += (size_t)snprintf(names + length, sizeof names - length, "%s%s (GPU %s)",
                                 candidates > 1 ? ", " : "", uuid, GPU_NUMBER_TEXT(msgs[i].gpu));
  }
  if (candidates == 0)
    return complain(choice, CTL_REFUSED, "no GPU's UUID begins with %s: see gpusharectl status", word);
  if (candidates > 1)
    return complain(choice, CTL_REFUSED, "%s may be any of %s", word, names);
  return add(choice, found->gpu_status.uuid);
}

static int add_word(struct gpu_choice *choice, const char *word, const struct gs_msg *msgs, size_t count) {
  uint8_t uuid[GS_UUID_SIZE];
  uint32_t number;
  bool is_uuid = parse_uuid(word, uuid) == 0, is_number = gpu_number_parse(word, &number) == 0;
  /* On the wire a UUID of zeros means all GPUs; a GPU that is called so there is none. */
  if (is_uuid && uuid_is_zero(uuid))
    return complain(choice, CTL_REFUSED, "no GPU has the UUID %s: see gpusharectl status", word);
  if (is_uuid)
    return add(choice, uuid);
  for (size_t i = 0; is_number && i < count; i++)
    if (msgs[i].type == GS_STATUS_GPU && msgs[i].gpu == number)
      return add(choice, msgs[i].gpu_status.uuid);
  if (is_number)
    return complain(choice, CTL_REFUSED, "there is no GPU %s: see gpusharectl status", word);
  if (is_prefix(word))
    return add_prefix(choice, word, msgs, count);
  return complain(choice, CTL_USAGE,
                  "not a GPU, which is its index, its UUID or how that begins, nor all: '%s'; try --help",
                  word);
}

int gpu_choice_read(struct gpu_choice *choice, const char *text, const struct gs_msg *msgs, size_t count) {
  char word[WORD_SIZE];
  int code = CTL_OK;
  choice->count = 0;
  *choice->error = '\0';
  while (code == CTL_OK && next_word(&text, word))
    code = add_word(choice, word, msgs, count);
  return code;
}
