/* label.c - see label.h. */
#include "server/label.h"

#include <stdio.h>
#include <string.h>

#include "common/gpu_number.h"
#include "common/parse.h"
#include "server/events.h"
#include "server/user_names.h"

#define UUID_DIGITS 12 /* with its prefix: as many as tell the GPUs of a machine apart */

static struct label describe(uid_t uid, pid_t pid, const char *process) {
  struct label label;
  const char *name = user_names_find(uid), *gap = *process ? ", " : "";
  if (name)
    snprintf(label.text, sizeof label.text, "%s (uid %u, pid %d%s%s)", name, uid, pid, gap, process);
  else
    snprintf(label.text, sizeof label.text, "uid %u (pid %d%s%s)", uid, pid, gap, process);
  return label;
}

struct label label_process(uid_t uid, pid_t pid) {
  char process[GS_NAME_SIZE];
  peer_read_name(pid, process);
  return describe(uid, pid, process);
}

struct label label_peer(const struct peer *peer) {
  return describe(peer->uid, peer->pid, peer->name);
}

struct label label_job(const struct peer *client) {
  struct label label;
  const char *name = user_names_find(client->uid);
  char number[16];
  snprintf(number, sizeof number, "uid %u", client->uid);
  snprintf(label.text, sizeof label.text, "job %u (pid %d, %s, of %s)", client->job_id, client->pid,
           client->name, name ? name : number);
  return label;
}

/* NVML writes eight digits of the domain, others four. */
static const char *place_of(const struct card *card) {
  const char *colon = strchr(card->bus, ':');
  return colon - card->bus == 8 && strncmp(card->bus, "0000", 4) == 0 ? card->bus + 4 : card->bus;
}

struct label label_gpu(const struct sched_gpu *gpu) {
  struct label label = {"all GPUs"};
  char uuid[GS_UUID_TEXT_SIZE];
  if (!gpu)
    return label;
  const struct card *card = cards_find(&daemon_of(gpu->scheduler)->cards, gpu->uuid);
  bool placed = card && strchr(card->bus, ':');
  format_uuid(gpu->uuid, uuid);
  snprintf(label.text, sizeof label.text, "GPU %s (%s, %.*s)", GPU_NUMBER_TEXT(gpu_of(gpu)->number),
           gpu->name, placed ? CARD_BUS_SIZE : UUID_DIGITS, placed ? place_of(card) : uuid);
  return label;
}
