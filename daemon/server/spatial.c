/* spatial.c - see spatial.h. */
#include "server/spatial.h"

#include <string.h>

/* ---- which GPUs ---- */

static void add(struct spatial *spatial, const uint8_t uuid[GS_UUID_SIZE]) {
  if (spatial->count < OVERRIDES_MAX)
    memcpy(spatial->gpus[spatial->count++], uuid, GS_UUID_SIZE);
}

static bool some_override_says(const struct overrides *overrides, enum gs_spatial value) {
  for (size_t i = 0; i < overrides->count; i++)
    if (overrides->list[i].fields & OVERRIDE_SPATIAL && overrides->list[i].settings.spatial == value)
      return true;
  return false;
}

static void add_overrides(struct spatial *spatial, const struct overrides *overrides) {
  for (size_t i = 0; i < overrides->count; i++)
    if (!overrides->list[i].numbered && overrides->list[i].fields & OVERRIDE_SPATIAL &&
        overrides->list[i].settings.spatial == GS_SPATIAL_MPS)
      add(spatial, overrides->list[i].uuid);
}

void spatial_choose(struct spatial *spatial, const struct sched_settings *general,
                    const struct overrides *overrides, const uint8_t (*host)[GS_UUID_SIZE], int host_count) {
  *spatial = (struct spatial){.all = general->spatial == GS_SPATIAL_MPS &&
                                     !some_override_says(overrides, GS_SPATIAL_NONE)};
  if (spatial->all)
    return;
  for (int i = 0; i < host_count; i++)
    if (overrides_settings(overrides, host[i], *general).spatial == GS_SPATIAL_MPS)
      add(spatial, host[i]);
  if (host_count < 1)
    add_overrides(spatial, overrides);
  spatial->all = host_count > 0 && spatial->count == host_count;
}

bool spatial_is_on(const struct spatial *spatial) { return spatial->all || spatial->count > 0; }

bool spatial_has(const struct spatial *spatial, const uint8_t uuid[GS_UUID_SIZE]) {
  for (int i = 0; i < spatial->count; i++)
    if (memcmp(spatial->gpus[i], uuid, GS_UUID_SIZE) == 0)
      return true;
  return spatial->all;
}

bool spatial_is_same(const struct spatial *spatial, const struct spatial *other) {
  return spatial->all == other->all && spatial->count == other->count &&
         memcmp(spatial->gpus, other->gpus, (size_t)spatial->count * GS_UUID_SIZE) == 0;
}

void spatial_visible(const struct spatial *spatial, char text[SPATIAL_VISIBLE_SIZE]) {
  *text = '\0';
  for (int i = 0; !spatial->all && i < spatial->count; i++) {
    if (i > 0)
      *text++ = ',';
    format_uuid(spatial->gpus[i], text);
    text += strlen(text);
  }
}

/* ---- which programs ---- */

/* It tells the GPUs that it sees if its environment names them; else it may be any. */
static bool sees_only_ours(const struct spatial *spatial, const struct gs_msg *ask) {
  uint32_t count = ask->ask_spatial.count;
  if (spatial->all)
    return true;
  if (count < 1 || count > GS_SPATIAL_UUIDS)
    return false;
  for (uint32_t i = 0; i < count; i++)
    if (!spatial_has(spatial, ask->ask_spatial.uuids[i]))
      return false;
  return true;
}

enum gs_spatial_verdict spatial_judge(const struct spatial *spatial, const struct gs_msg *ask, uid_t uid,
                                      uid_t own) {
  if (!spatial_is_on(spatial))
    return GS_SPATIAL_OFF;
  if (!sees_only_ours(spatial, ask))
    return GS_SPATIAL_OTHER_GPUS;
  if ((own != 0 && uid != own) || (spatial->programs > 0 && uid != spatial->uid))
    return GS_SPATIAL_OTHER_USER;
  return spatial->programs < SPATIAL_PROGRAMS_MOST ? GS_SPATIAL_ON : GS_SPATIAL_FULL;
}

void spatial_enter(struct spatial *spatial, uid_t uid) {
  spatial->uid = uid;
  spatial->programs++;
}

void spatial_leave(struct spatial *spatial) { spatial->programs--; }
