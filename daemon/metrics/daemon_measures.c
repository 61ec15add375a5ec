/* daemon_measures.c - what is measured of the daemon itself, and of the host. */
#include <stdio.h>
#include <time.h>

#include "common/clock.h"
#include "metrics/measures.h"
#include "metrics/metrics.h"
#include "server/users.h"

static void put_build(const struct scene *scene) {
  char protocol[16];
  snprintf(protocol, sizeof protocol, "%u", GS_PROTOCOL_VERSION);
  exposition_put_info(scene->exposition,
                      (struct label[]){{"version", GPUSHARE_VERSION}, {"protocol", protocol}}, 2);
}

static uint64_t started(const struct scene *scene) { return scene->daemon->started_realtime_ns; }

static uint64_t cpu(const struct scene *scene) {
  (void)scene;
  return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static uint64_t clients(const struct scene *scene) { return scene->daemon->client_count; }

static uint64_t registered(const struct scene *scene) { return scene->daemon->registered_count; }

static void put_rejected(const struct scene *scene) {
  const struct daemon *daemon = scene->daemon;
  exposition_put_with(scene->exposition, "reason", "limit", daemon->rejected_counts[GS_REJECT_LIMIT]);
  exposition_put_with(scene->exposition, "reason", "version", daemon->rejected_counts[GS_REJECT_VERSION]);
  exposition_put_with(scene->exposition, "reason", "gpu", daemon->rejected_counts[GS_REJECT_GPU]);
  exposition_put_with(scene->exposition, "reason", "device", daemon->rejected_counts[GS_REJECT_DEVICE]);
}

static void put_handling(const struct scene *scene) {
  const struct users *accounts = scene->daemon->accounts;
  unsigned count = 0;
  for (size_t i = 0; accounts && i < USERS_BUCKETS; i++)
    list_each(node, &accounts->buckets[i]) {
      const struct user *user = list_entry(node, struct user, link);
      char uid[16];
      if (count++ == METRICS_USERS_MAX)
        return;
      snprintf(uid, sizeof uid, "%u", user->uid);
      exposition_put_with(scene->exposition, "uid", uid, user->rota.handled_ns);
    }
}

static uint64_t host_capacity(const struct scene *scene) {
  return scene->daemon->scheduler.host_memory_bytes;
}

static uint64_t host_committed(const struct scene *scene) { return scene->daemon->scheduler.overflow_bytes; }

static uint64_t unlisted(const struct scene *scene) {
  uint64_t count = 0;
  list_each(node, &scene->daemon->scheduler.gpus) {
    count += list_entry(node, struct sched_gpu, link)->job_count;
  }
  return count > METRICS_JOBS_MAX ? count - METRICS_JOBS_MAX : 0;
}

const struct measure measures_of_daemon[] = {
    {{"gpushare_build", FAMILY_INFO, UNIT_NONE, "Version of the daemon, and of the protocol that it speaks."},
     .put = put_build},
    {{"process_start_time_seconds", FAMILY_GAUGE, UNIT_SECONDS,
      "When the daemon started, since the Unix epoch."},
     .value = started},
    {{"process_cpu_seconds", FAMILY_COUNTER, UNIT_SECONDS, "CPU time that the daemon has used."},
     .value = cpu},
    {{"gpushare_clients", FAMILY_GAUGE, UNIT_NONE, "Programs that are connected."}, .value = clients},
    {{"gpushare_clients_registered", FAMILY_COUNTER, UNIT_NONE, "Programs that have connected so far."},
     .value = registered},
    {{"gpushare_clients_rejected", FAMILY_COUNTER, UNIT_NONE,
      "Programs that were turned away: too many of one user (limit), of another protocol version, on a GPU "
      "that the host has not (gpu), or without the GPU's device open (device)."},
     .put = put_rejected},
    {{"gpushare_user_handling_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "Time of the event loop that went into what a user's programs have asked for."},
     .put = put_handling},
    {{"gpushare_host_memory_capacity_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Host memory that may be used for what does not fit on the cards."},
     .value = host_capacity},
    {{"gpushare_host_memory_committed_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "By how much the memory of all jobs exceeds the capacity of their GPUs: so much must fit into host "
      "memory."},
     .value = host_committed},
    {{"gpushare_jobs_unlisted", FAMILY_GAUGE, UNIT_NONE,
      "Jobs on GPUs without samples of their own, because there are too many; the samples of their GPUs "
      "include them."},
     .value = unlisted},
    {.family.name = NULL},
};
