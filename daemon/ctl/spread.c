/* spread.c - see spread.h. A job that has just been started has no memory yet, so their number counts before
 * their room. */
#include "ctl/spread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"

/* ---- for whom ---- */

/* Programs that start several processes, each of which takes a GPU of its own. */
static bool is_launcher(const char *program) {
  static const char *const names[] = {"torchrun", "deepspeed", "accelerate", "horovodrun",
                                      "mpirun",   "mpiexec",   "srun"};
  static const char *const modules[] = {"torch.distributed.run", "torch.distributed.launch",
                                        "accelerate.commands.launch"};
  const char *slash = strrchr(program, '/');
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(slash ? slash + 1 : program, names[i]) == 0)
      return true;
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
    if (strcmp(program, modules[i]) == 0)
      return true;
  return false;
}

/* python -m MODULE */
static bool names_launcher(char *const *words) {
  bool is_module = false;
  for (; *words && !(is_module && is_launcher(*words)); words++)
    is_module = strcmp(*words, "-m") == 0;
  return *words;
}

bool spread_is_needed(const struct spread *spread) { return spread->count > spread->per_job; }

bool spread_concerns(const struct spread *spread, char *const *command, const struct joblist_job *job) {
  char *const *words = job->words + job->settings;
  const char *gang = joblist_setting(job, "GPUSHARE_GANG");
  if (!spread_is_needed(spread) || joblist_setting(job, "CUDA_VISIBLE_DEVICES"))
    return false;
  if (spread->as_told)
    return true;
  bool is_of_gang = gang && *gang && strcmp(gang, "none") != 0;
  return !is_of_gang && !is_launcher(*command ? *command : *words) && !names_launcher(command) &&
         !names_launcher(words);
}

/* ---- the GPUs ---- */

void spread_add(struct spread *spread, const char *name) {
  if (spread->count == SPREAD_GPUS_MAX)
    return;
  struct spread_gpu *gpu = &spread->gpus[spread->count++];
  *gpu = (struct spread_gpu){.room_bytes = SPREAD_UNUSED};
  snprintf(gpu->name, sizeof gpu->name, "%s", name);
}

void spread_forget_rooms(struct spread *spread) {
  for (size_t i = 0; i < spread->count; i++)
    spread->gpus[i].room_bytes = SPREAD_UNUSED;
}

void spread_set_use(struct spread *spread, const uint8_t uuid[GS_UUID_SIZE], uint64_t capacity_bytes,
                    uint64_t used_bytes) {
  uint8_t own[GS_UUID_SIZE];
  for (size_t i = 0; i < spread->count; i++)
    if (parse_uuid(spread->gpus[i].name, own) == 0 && memcmp(own, uuid, sizeof own) == 0)
      spread->gpus[i].room_bytes = capacity_bytes == 0           ? SPREAD_UNUSED
                                   : capacity_bytes > used_bytes ? capacity_bytes - used_bytes
                                                                 : 0;
}

/* ---- the choice ---- */

static uint64_t bit(size_t gpu) { return UINT64_C(1) << gpu; }

uint64_t spread_take(struct spread *spread) {
  uint64_t taken = 0;
  for (size_t n = 0; n < spread->per_job && n < spread->count; n++) {
    struct spread_gpu *best = NULL;
    for (struct spread_gpu *gpu = spread->gpus; gpu < spread->gpus + spread->count; gpu++)
      if (!(taken & bit((size_t)(gpu - spread->gpus))) &&
          (!best || gpu->running < best->running ||
           (gpu->running == best->running && gpu->room_bytes > best->room_bytes)))
        best = gpu;
    taken |= bit((size_t)(best - spread->gpus));
    best->running++;
  }
  return taken;
}

void spread_give_back(struct spread *spread, uint64_t taken) {
  for (size_t i = 0; i < spread->count; i++)
    if (taken & bit(i))
      spread->gpus[i].running--;
}

char *spread_text(const struct spread *spread, uint64_t taken) {
  char *text = calloc(SPREAD_GPUS_MAX, SPREAD_NAME_SIZE), *end = text;
  for (size_t i = 0; text && i < spread->count; i++)
    if (taken & bit(i))
      end += sprintf(end, "%s%s", end == text ? "" : ",", spread->gpus[i].name);
  return text;
}
