/* ask_spatial.c - programs that ask whether they are to use MPS, before their driver begins. Who does keeps
 * the connection open, so its end tells that of the program. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"
#include "server/daemon.h"
#include "server/log_for.h"

/* ---- namespaces ---- */

static bool read_namespace(pid_t pid, const char *kind, char text[64]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind);
  ssize_t length = readlink(path, text, 63);
  text[length < 0 ? 0 : length] = '\0';
  return length > 0;
}

/* MPS and its programs know each other by process ids, and share memory. */
static bool is_near(pid_t pid) {
  static const char *const kinds[] = {"pid", "ipc"};
  char own[64], other[64];
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!read_namespace(getpid(), kinds[i], own) || !read_namespace(pid, kinds[i], other) ||
        strcmp(own, other) != 0)
      return false;
  return true;
}

/* ---- the answer ---- */

static enum gs_spatial_verdict judge(const struct daemon *daemon, const struct peer *peer,
                                     const struct gs_msg *ask) {
  enum gs_spatial_verdict verdict = spatial_judge(&daemon->spatial, ask, peer->uid, geteuid());
  if (verdict != GS_SPATIAL_ON)
    return verdict;
  if (!mps_is_ready(&daemon->mps))
    return GS_SPATIAL_DOWN;
  return is_near(peer->pid) ? GS_SPATIAL_ON : GS_SPATIAL_APART;
}

/* The least that production leaves over on one of the GPUs: nobody knows yet which one it will be. 0: all. */
static uint32_t leftover_percent(const struct daemon *daemon) {
  uint32_t least = 100;
  list_each(node, &daemon->scheduler.gpus) {
    const struct sched_gpu *gpu = list_entry(node, struct sched_gpu, link);
    uint32_t percent = rates_leftover_percent(&gpu_of(gpu)->rates);
    if (spatial_has(&daemon->spatial, gpu->uuid) && percent < least)
      least = percent;
  }
  if (least == 100)
    return 0;
  return least > SPATIAL_PERCENT_LEAST ? least : SPATIAL_PERCENT_LEAST;
}

static struct gs_msg answer_of(const struct daemon *daemon, enum gs_spatial_verdict verdict, uint32_t class) {
  struct gs_msg msg = wire_msg(GS_SPATIAL, 0);
  msg.spatial.verdict = verdict;
  if (verdict == GS_SPATIAL_ON && class == GS_CLASS_OPPORTUNISTIC) {
    msg.spatial.priority = 1;
    msg.spatial.percent = leftover_percent(daemon);
  }
  return msg;
}

void daemon_on_ask_spatial(struct daemon *daemon, struct peer *peer, const struct gs_msg *ask) {
  if (peer->role != PEER_FRESH) {
    peer_close(peer, "ASK_SPATIAL out of place");
    return;
  }
  enum gs_spatial_verdict verdict = judge(daemon, peer, ask);
  if (verdict == GS_SPATIAL_ON) {
    peer_settle(peer, PEER_SPATIAL);
    spatial_enter(&daemon->spatial, peer->uid);
  }
  log_for(peer->uid, LOG_LEVEL_DEBUG, "pid %d, uid %u asks for MPS: %d", peer->pid, peer->uid, (int)verdict);
  struct gs_msg answer = answer_of(daemon, verdict, ask->ask_spatial.class);
  peer_send(peer, &answer);
}

enum gs_mps_state daemon_mps_state(const struct daemon *daemon) {
  if (!spatial_is_on(&daemon->spatial))
    return GS_MPS_OFF;
  return mps_is_ready(&daemon->mps) ? GS_MPS_RUNS : GS_MPS_DOWN;
}
