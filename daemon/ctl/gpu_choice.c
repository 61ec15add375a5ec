/* gpu_choice.c - which GPUs a text on the command line names. */
#include "ctl/gpu_choice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/gpu_number.h"
#include "common/parse.h"

#define WORD_SIZE 64

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

bool gpu_choice_needs_status(const char *text) {
  char word[WORD_SIZE];
  uint8_t uuid[GS_UUID_SIZE];
  while (next_word(&text, word))
    if (parse_uuid(word, uuid) < 0)
      return true;
  return false;
}

static int add(struct gpu_choice *choice, const uint8_t uuid[GS_UUID_SIZE], struct ask_error *error) {
  for (size_t i = 0; i < choice->count; i++)
    if (memcmp(choice->uuids[i], uuid, GS_UUID_SIZE) == 0)
      return CTL_OK;
  if (choice->count == GPU_CHOICE_MAX)
    return ask_complain(error, CTL_USAGE, "too many GPUs");
  memcpy(choice->uuids[choice->count++], uuid, GS_UUID_SIZE);
  return CTL_OK;
}

static bool is_prefix(const char *word) {
  return (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0) && word[4] &&
         !word[4 + strspn(word + 4, "0123456789abcdefABCDEF-")];
}

static int add_prefix(struct gpu_choice *choice, const char *word, const struct status *status,
                      struct ask_error *error) {
  const struct gs_msg *found = NULL;
  size_t length = 0;
  bool several = false;
  char names[400] = "";
  for (size_t i = 0; i < status->gpu_count; i++) {
    const struct gs_msg *gpu = status->gpus[i].gpu;
    if (strncasecmp(UUID_TEXT(gpu), word, strlen(word)) != 0)
      continue;
    if (length < sizeof names)
      length += (size_t)snprintf(names + length, sizeof names - length, "%s%s (GPU %s)", found ? ", " : "",
                                 UUID_TEXT(gpu), GPU_NUMBER_TEXT(gpu->gpu));
    several |= found != NULL;
    found = gpu;
  }
  if (!found)
    return ask_complain(error, CTL_REFUSED, "no GPU's UUID begins with %s: see gpusharectl status", word);
  if (several)
    return ask_complain(error, CTL_REFUSED, "%s may be any of %s", word, names);
  return add(choice, found->gpu_status.uuid, error);
}

static int add_word(struct gpu_choice *choice, const char *word, const struct status *status,
                    struct ask_error *error) {
  uint8_t uuid[GS_UUID_SIZE];
  uint32_t number;
  bool is_uuid = parse_uuid(word, uuid) == 0, is_number = gpu_number_parse(word, &number) == 0;
  /* On the wire a UUID of zeros means all GPUs; a GPU that is called so there is none. */
  if (is_uuid && uuid_is_zero(uuid))
    return ask_complain(error, CTL_REFUSED, "no GPU has the UUID %s: see gpusharectl status", word);
  if (is_uuid)
    return add(choice, uuid, error);
  for (size_t i = 0; is_number && i < status->gpu_count; i++)
    if (status->gpus[i].gpu->gpu == number)
      return add(choice, status->gpus[i].gpu->gpu_status.uuid, error);
  if (is_number)
    return ask_complain(error, CTL_REFUSED, "there is no GPU %s: see gpusharectl status", word);
  if (is_prefix(word))
    return add_prefix(choice, word, status, error);
  return ask_complain(error, CTL_USAGE,
                      "not a GPU, which is its index, its UUID or how that begins, nor all: '%s'; try --help",
                      word);
}

int gpu_choice_read(struct gpu_choice *choice, const char *text, const struct status *status,
                    struct ask_error *error) {
  char word[WORD_SIZE];
  int code = CTL_OK;
  choice->count = 0;
  while (code == CTL_OK && next_word(&text, word))
    code = add_word(choice, word, status, error);
  return code;
}
